-- Putting messages into the outbox.

-- name: message_insert(message.given)
-- 0 rows: the id or the key is taken. payload_bytes is hexadecimal.
insert into outlog.outbox (
       --=, message given: {name}
       )
values (
       --=, message given: :{name}{cast}
       --=| payload_bytes: decode(:payload_bytes, 'hex')
       )
on conflict do nothing

-- name: message_by_key(org_id, destination, idempotency_key)
select event_id from outlog.message_with_key(:org_id, :destination, :idempotency_key) event_id
 where event_id is not null
