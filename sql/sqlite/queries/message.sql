-- Putting messages into the outbox.

-- name: message_insert(message.given)
-- 0 rows: the id or the key is taken. payload_bytes is hexadecimal.
insert into outlog_outbox (
       --=, message given: {name}
       )
values (
       --=, message given: :{name}
       --=| payload_bytes: outlog_unhex(:payload_bytes)
       )
on conflict do nothing

-- name: message_by_key(org_id, destination, idempotency_key)
select event_id from outlog_outbox
 where coalesce(org_id, '') = coalesce(:org_id, '') and destination = :destination
   and idempotency_key = :idempotency_key
union all
select event_id from outlog_outbox_keys
 where org_key = coalesce(:org_id, '') and destination = :destination and idempotency_key = :idempotency_key
