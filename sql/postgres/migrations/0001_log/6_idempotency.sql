-- I1: a command is done once per (org, actor, endpoint, key). Claim the key, do the work, store the
-- answer: all in the caller's transaction, so only committed answers are ever kept.

-- True: the key was new and is now held by this transaction. One that is held elsewhere is waited
-- for (lock_timeout bounds the wait). The table itself is open to nobody: an answer is written once
-- and shown only to whom it belongs.
create function outlog.idempotency_claim(org_key text, actor_id text, endpoint text,
        idempotency_key text, request_hash text, at timestamptz default now()) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if num_nulls(actor_id, endpoint, idempotency_key, request_hash) > 0 then
        perform outlog.fail('misuse', 'actor_id, endpoint, idempotency_key and request are required');
    elsif octet_length(idempotency_key) not between 1 and 512 then
        perform outlog.fail('invalid_field', 'idempotency_key must have 1 to 512 bytes',
                            json_build_object('pointer', '/idempotency_key'));
    end if;
    insert into outlog.idempotency_records values (org_key, actor_id, endpoint, idempotency_key,
                                                   request_hash, null, at)
    on conflict on constraint idempotency_records_pkey do nothing;
    return found;
exception when lock_not_available then
    perform outlog.fail('idempotency_in_progress', format('the first call with key %s is still running; '
        'try again', idempotency_key));
end $$;

-- What is kept under a key: whether the request is the same one, and then the answer.
create function outlog.idempotency_get(org_key text, actor_id text, endpoint text, idempotency_key text,
        request_hash text, out is_same boolean, out response text) returns setof record
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    select r.request_hash = idempotency_get.request_hash,
           case when r.request_hash = idempotency_get.request_hash then r.response end
      from outlog.idempotency_records r
     where r.org_key = idempotency_get.org_key and r.actor_id = idempotency_get.actor_id
       and r.endpoint = idempotency_get.endpoint and r.idempotency_key = idempotency_get.idempotency_key
$$;

-- Null: the key is new and now yours. Otherwise the first call's answer. A call with the same key
-- that is still open is waited for (lock_timeout bounds the wait).
create function outlog.idempotency_begin(org_id text, actor_id text, endpoint text,
        idempotency_key text, request json) returns text language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    hash text := outlog.request_hash(request);
    first record;
begin
    if outlog.idempotency_claim(coalesce(org_id, ''), actor_id, endpoint, idempotency_key, hash) then
        return null;
    end if;
    select * into first
      from outlog.idempotency_get(coalesce(org_id, ''), actor_id, endpoint, idempotency_key, hash);
    if not first.is_same then
        perform outlog.fail('idempotency_key_reuse', format('key %s was used for another request; '
            'take a new key', idempotency_key));
    end if;
    if first.response is null then
        perform outlog.fail('idempotency_in_progress', format('a call with key %s was begun and is not answered; if '
            'nobody works on it any more, look what it did and take a new key', idempotency_key));
    end if;
    return first.response;
end $$;

-- Stores the answer; false when the key was not begun in this transaction.
create function outlog.idempotency_end(org_id text, actor_id text, endpoint text,
        idempotency_key text, response text) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    update outlog.idempotency_records r set response = idempotency_end.response
     where r.org_key = coalesce(idempotency_end.org_id, '')
       and r.actor_id = idempotency_end.actor_id
       and r.endpoint = idempotency_end.endpoint
       and r.idempotency_key = idempotency_end.idempotency_key
       and r.response is null;
    return found;
end $$;

-- Removes at most max_rows answers that are older than a time; a row for each. 24 h are kept always.
create function outlog.purge_idempotency(before timestamptz, max_rows integer) returns setof integer
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    with gone as (
        delete from outlog.idempotency_records where ctid = any (array(
            select ctid from outlog.idempotency_records
             where created_at < least(before, now() - interval '24 hours') limit max_rows))
        returning 1)
    select 1 from gone
$$;
