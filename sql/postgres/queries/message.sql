-- Putting messages into the outbox.

-- name: message_insert(event_id, destination, event_type, payload, payload_bytes, content_type, org_id, idempotency_key, ordering_key, partition_key, headers, metadata, available_at, max_attempts, correlation_id, causation_id, aggregate_type, aggregate_id)
-- 0 rows: the id or the key is taken. payload_bytes is hexadecimal.
insert into outlog.outbox (event_id, destination, event_type, payload, payload_bytes, content_type, org_id,
       idempotency_key, ordering_key, partition_key, headers, metadata, available_at, max_attempts,
       correlation_id, causation_id, aggregate_type, aggregate_id)
values (:event_id::uuid, :destination, :event_type, :payload, decode(:payload_bytes, 'hex'), :content_type, :org_id,
       :idempotency_key, :ordering_key, :partition_key, :headers::json, :metadata::json, :available_at::timestamptz,
       :max_attempts::integer, :correlation_id, :causation_id::uuid, :aggregate_type, :aggregate_id)
on conflict do nothing

-- name: message_by_key(org_id, destination, idempotency_key)
select event_id from outlog.message_with_key(:org_id, :destination, :idempotency_key) event_id where event_id is not null
