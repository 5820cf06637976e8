-- I1: a command is executed once per (org, actor, endpoint, key). Claim the key, do the work, store
-- the answer: all in the caller's transaction, so only committed answers are ever kept.

-- Returns true when the key was new; this transaction then holds it. Waits for another transaction
--   that holds it (lock_timeout limits the wait). No role may use the table itself: an answer is
--   written once, and only callers with the same org, actor and request get it.
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

-- What is stored under a key: whether the request is the same, and if so the answer.
create function outlog.idempotency_get(org_key text, actor_id text, endpoint text, idempotency_key text,
        request_hash text, out is_same boolean, out response text) returns setof record
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    select r.request_hash = idempotency_get.request_hash,
           case when r.request_hash = idempotency_get.request_hash then r.response end
      from outlog.idempotency_records r
     where r.org_key = idempotency_get.org_key and r.actor_id = idempotency_get.actor_id
       and r.endpoint = idempotency_get.endpoint and r.idempotency_key = idempotency_get.idempotency_key
$$;

-- idempotency_begin: claims an idempotency key for a command of your own.
-- Parameters: org_id              null: infrastructure
--             actor_id, endpoint  with org_id the scope of the key
--             idempotency_key     1 to 512 bytes
--             request             what the command was asked, compared by its canonical form
-- Returns:    null when the key is new: do the work and call outlog.idempotency_end in this
--             transaction. Otherwise returns the answer of the first call.
-- Errors:     idempotency_key_reuse (another request has this key); idempotency_in_progress (the
--             first call still runs after lock_timeout, or committed without an answer);
--             invalid_field (length of the key); misuse (an argument is null).
-- Locks:      the key, until the transaction ends. Waits for another transaction that holds it.
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
        perform outlog.fail('idempotency_in_progress', format('a call with key %s was begun and is not answered; '
            'if nobody works on it any more, look what it did and take a new key', idempotency_key));
    end if;
    return first.response;
end $$;

-- idempotency_end: stores the answer of the command that outlog.idempotency_begin allowed, under
-- the same arguments.
-- Parameters: response  what repeats get; text of any form
-- Returns:    false when this transaction did not begin the key, or has stored an answer already.
-- Errors:     none.
-- Locks:      the key, as outlog.idempotency_begin does.
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

-- Deletes at most max_rows answers that are older than a time, and returns one row for each.
-- Answers younger than 24 hours always stay.
create function outlog.purge_idempotency(before timestamptz, max_rows integer) returns setof integer
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    with gone as (
        delete from outlog.idempotency_records where ctid = any (array(
            select ctid from outlog.idempotency_records
             where created_at < least(before, now() - interval '24 hours') limit max_rows))
        returning 1)
    select 1 from gone
$$;
