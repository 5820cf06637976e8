-- I1: a command is done once per (org, actor, endpoint, key). Claim the key, do the work, store the
-- answer: all in the caller's transaction, so only committed answers are ever kept.

-- Null: the key is new and now yours. Otherwise the first call's answer. A call with the same key
-- that is still open is waited for (lock_timeout bounds the wait).
create function outlog.idempotency_begin(org_id text, actor_id text, endpoint text,
        idempotency_key text, request json) returns text language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    hash text := outlog.request_hash(idempotency_begin.request);
    first outlog.idempotency_records;
begin
    if octet_length(idempotency_begin.idempotency_key) not between 1 and 512 then
        perform outlog.fail('invalid_field', 'idempotency_key must have 1 to 512 bytes',
                            json_build_object('pointer', '/idempotency_key'));
    end if;
    insert into outlog.idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash)
    values (coalesce(idempotency_begin.org_id, ''), idempotency_begin.actor_id,
            idempotency_begin.endpoint, idempotency_begin.idempotency_key, hash)
    on conflict on constraint idempotency_records_pkey do nothing;
    if found then
        return null;
    end if;
    select * into first from outlog.idempotency_records r
     where r.org_key = coalesce(idempotency_begin.org_id, '')
       and r.actor_id = idempotency_begin.actor_id
       and r.endpoint = idempotency_begin.endpoint
       and r.idempotency_key = idempotency_begin.idempotency_key;
    if first.request_hash is distinct from hash then
        perform outlog.fail('idempotency_key_reuse', format('key %s was used for another request; '
            'take a new key', idempotency_begin.idempotency_key));
    end if;
    return first.response;
end $$;

create function outlog.idempotency_end(org_id text, actor_id text, endpoint text,
        idempotency_key text, response text) returns void language sql
    security definer set search_path = pg_catalog, pg_temp as $$
    update outlog.idempotency_records r set response = idempotency_end.response
     where r.org_key = coalesce(idempotency_end.org_id, '')
       and r.actor_id = idempotency_end.actor_id
       and r.endpoint = idempotency_end.endpoint
       and r.idempotency_key = idempotency_end.idempotency_key
       and r.response is null
$$;
