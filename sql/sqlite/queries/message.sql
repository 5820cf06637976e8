-- Putting messages into the outbox.

-- name: message_insert(event_id, destination, event_type, payload, payload_bytes, content_type, org_id, idempotency_key, ordering_key, partition_key, headers, metadata, available_at, max_attempts, correlation_id, causation_id, aggregate_type, aggregate_id)
insert into outlog_outbox (event_id, destination, event_type, payload, payload_bytes, content_type, org_id,
       idempotency_key, ordering_key, partition_key, headers, metadata, available_at, max_attempts,
       correlation_id, causation_id, aggregate_type, aggregate_id)
values (:event_id, :destination, :event_type, :payload, outlog_unhex(:payload_bytes), :content_type, :org_id,
       :idempotency_key, :ordering_key, :partition_key, :headers, :metadata, :available_at,
       :max_attempts, :correlation_id, :causation_id, :aggregate_type, :aggregate_id)
on conflict do nothing

-- name: message_by_key(org_id, destination, idempotency_key)
select event_id from outlog_outbox
 where coalesce(org_id, '') = coalesce(:org_id, '') and destination = :destination and idempotency_key = :idempotency_key
union all
select event_id from outlog_outbox_keys
 where org_key = coalesce(:org_id, '') and destination = :destination and idempotency_key = :idempotency_key
