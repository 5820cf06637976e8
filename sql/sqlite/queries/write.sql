-- Appending, and the heads that number each aggregate's events.

-- name: head_add(org_key, aggregate_type, aggregate_id, count) @sqlite
-- Takes the next `count` numbers of an aggregate; returns the last of them.
insert into outlog_heads (org_key, aggregate_type, aggregate_id, aggregate_seq)
values (:org_key, :aggregate_type, :aggregate_id, :count)
on conflict do update set aggregate_seq = aggregate_seq + excluded.aggregate_seq
returning aggregate_seq

-- name: event_insert(id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id, causation_id, app_id, env_id, visibility, metadata, payload) @sqlite
insert into outlog_events (id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq,
       event_type, event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id,
       causation_id, app_id, env_id, visibility, metadata, payload)
values (:id, :occurred_at, :org_id, :aggregate_type, :aggregate_id, :aggregate_seq,
       :event_type, :event_version, :actor_type, :actor_id, :request_id, :idempotency_key, :correlation_id,
       :causation_id, :app_id, :env_id, :visibility, :metadata, :payload)

-- name: head_lock(org_key, aggregate_type, aggregate_id)
-- One writer at a time: being inside a write transaction is the lock.
select 1 where :org_key is not null and :aggregate_type is not null and :aggregate_id is not null

-- name: idempotency_purge(before, limit literal)
-- A bounded chunk, so that no lock is held for long.
delete from outlog_idempotency_records where (org_key, actor_id, endpoint, idempotency_key) in (
    select org_key, actor_id, endpoint, idempotency_key from outlog_idempotency_records
     where created_at < :before limit :limit)
