-- Events that bring their own number: for an import into an empty store, and for nothing else.

-- name: archive_event(event_id, id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id, causation_id, app_id, env_id, visibility, metadata, payload)
insert into outlog_events (event_id, id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type,
       event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id, causation_id, app_id, env_id,
       visibility, metadata, payload)
values (:event_id, :id, :occurred_at, :org_id, :aggregate_type, :aggregate_id, :aggregate_seq, :event_type,
       :event_version, :actor_type, :actor_id, :request_id, :idempotency_key, :correlation_id, :causation_id, :app_id,
       :env_id, :visibility, :metadata, :payload)

-- name: archive_number(event_id)
-- AUTOINCREMENT has followed by itself.
select :event_id
