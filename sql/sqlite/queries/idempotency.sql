-- Command idempotency (I1).

-- name: idempotency_claim(org_key, actor_id, endpoint, idempotency_key, request_hash, now)
-- 1 row: this transaction has the key. 0 rows: it exists.
insert into outlog_idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash, created_at)
values (:org_key, :actor_id, :endpoint, :idempotency_key, :request_hash, :now)
on conflict do nothing

-- name: idempotency_get(org_key, actor_id, endpoint, idempotency_key, request_hash)
select request_hash = :request_hash as is_same, response
  from outlog_idempotency_records
 where org_key = :org_key and actor_id = :actor_id and endpoint = :endpoint
   and idempotency_key = :idempotency_key

-- name: idempotency_store(org_key, actor_id, endpoint, idempotency_key, response)
-- 1 row: stored. 0 rows: the key was not begun here.
update outlog_idempotency_records set response = :response
 where org_key = :org_key and actor_id = :actor_id and endpoint = :endpoint
   and idempotency_key = :idempotency_key and response is null

-- name: idempotency_forget(org_key, actor_id, endpoint, idempotency_key)
-- Deletes a key that was claimed and never answered.
delete from outlog_idempotency_records
 where org_key = :org_key and actor_id = :actor_id and endpoint = :endpoint
   and idempotency_key = :idempotency_key and response is null
