-- Tokens of the API.

-- name: token_add(id, scope, org_id, hash, rate_milli)
insert into outlog.tokens (id, scope, org_id, hash, rate_milli, created_at)
values (:id::uuid, :scope, :org_id, :hash, :rate_milli::bigint, outlog.after(0))
returning id, scope, org_id, hash, rate_milli, created_at, last_used_at, revoked_at

-- name: token_get(id)
select id, scope, org_id, hash, rate_milli, created_at, last_used_at, revoked_at
  from outlog.tokens where id = :id::uuid

-- name: token_list()
select id, scope, org_id, hash, rate_milli, created_at, last_used_at, revoked_at
  from outlog.tokens order by id

-- name: token_find(hash)
select id from outlog.tokens where hash = :hash and revoked_at is null

-- name: token_revoke(id)
update outlog.tokens set revoked_at = outlog.after(0) where id = :id::uuid and revoked_at is null

-- name: token_used(id)
update outlog.tokens set last_used_at = outlog.after(0) where id = :id::uuid
