-- Events that bring their own number: for an import into an empty store, and for nothing else.

-- name: archive_event(event_id, id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id, causation_id, app_id, env_id, visibility, metadata, payload)
insert into outlog.events (event_id, id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type,
       event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id, causation_id, app_id, env_id,
       visibility, metadata, payload)
overriding system value
values (:event_id, :id::uuid, :occurred_at::timestamptz, :org_id, :aggregate_type, :aggregate_id, :aggregate_seq,
       :event_type, :event_version, :actor_type, :actor_id, :request_id, :idempotency_key, :correlation_id,
       :causation_id::uuid, :app_id, :env_id, :visibility, :metadata::json, :payload::json)

-- name: archive_number(event_id)
-- The next event follows the last one that came.
select setval('outlog.events_event_id_seq', greatest(:event_id::bigint, 1), :event_id::bigint > 0)
