-- Command idempotency (I1), through functions: an application's role may not read the table.

-- name: idempotency_claim(org_key, actor_id, endpoint, idempotency_key, request_hash, now)
-- 1 row: this transaction has the key. 0 rows: it exists. Waits for a transaction that holds it.
select 1 where outlog.idempotency_claim(:org_key, :actor_id, :endpoint, :idempotency_key,
                                        :request_hash, :now)

-- name: idempotency_get(org_key, actor_id, endpoint, idempotency_key, request_hash)
select is_same, response
  from outlog.idempotency_get(:org_key, :actor_id, :endpoint, :idempotency_key, :request_hash)

-- name: idempotency_store(org_key, actor_id, endpoint, idempotency_key, response)
-- 1 row: stored. 0 rows: the key was not begun here.
select 1 where outlog.idempotency_end(:org_key, :actor_id, :endpoint, :idempotency_key, :response)

-- name: idempotency_forget(org_key, actor_id, endpoint, idempotency_key)
-- Deletes a key that was claimed and never answered.
delete from outlog.idempotency_records
 where org_key = :org_key and actor_id = :actor_id and endpoint = :endpoint
   and idempotency_key = :idempotency_key and response is null
