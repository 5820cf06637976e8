-- Command idempotency (I1).

-- name: idempotency_claim(org_key, actor_id, endpoint, idempotency_key, request_hash, now)
-- 1 row: the key is ours. 0 rows: it exists. Waits for an open transaction that holds it.
insert into outlog.idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash, created_at)
values (:org_key, :actor_id, :endpoint, :idempotency_key, :request_hash, :now)
on conflict do nothing

-- name: idempotency_get(org_key, actor_id, endpoint, idempotency_key)
select request_hash, response from outlog.idempotency_records
 where org_key = :org_key and actor_id = :actor_id and endpoint = :endpoint
   and idempotency_key = :idempotency_key

-- name: idempotency_store(org_key, actor_id, endpoint, idempotency_key, response)
update outlog.idempotency_records set response = :response
 where org_key = :org_key and actor_id = :actor_id and endpoint = :endpoint
   and idempotency_key = :idempotency_key and response is null
