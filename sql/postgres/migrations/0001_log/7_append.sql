-- Appending (E4, E5). Three functions, one inside the other's contract:
--   append_one    one event whose fields were checked already; two statements, as lean as it gets
--   append_batch  many of them at once, for the C library
--   append        the SQL door: named arguments, every check, then append_one

-- The head row is locked before the event takes its event_id, so within one aggregate event_id and
-- aggregate_seq rise together, and the next appender waits until this one has committed.
create function outlog.append_one(org_id text, aggregate_type text, aggregate_id text, event_type text,
        event_version integer, payload json, metadata json, id uuid, actor_type text, actor_id text,
        request_id text, correlation_id text, causation_id uuid, idempotency_key text, app_id text,
        env_id text, visibility text, expected_seq bigint,
        out event_id bigint, out aggregate_seq bigint, out occurred_at timestamptz)
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
    insert into outlog.heads as h values (coalesce(org_id, ''), aggregate_type, aggregate_id, 1)
    on conflict on constraint heads_pkey do update set aggregate_seq = h.aggregate_seq + 1
    returning h.aggregate_seq into aggregate_seq;
    if expected_seq <> aggregate_seq - 1 then
        perform outlog.refuse_sequence(aggregate_type, aggregate_id, expected_seq, aggregate_seq - 1, 0);
    end if;
    insert into outlog.events as e (id, causation_id, org_id, aggregate_type, aggregate_id, aggregate_seq,
            event_type, event_version, actor_type, actor_id, request_id, correlation_id, idempotency_key,
            app_id, env_id, visibility, metadata, payload)
    values (id, causation_id, org_id, aggregate_type, aggregate_id, aggregate_seq,
            event_type, event_version, actor_type, actor_id, request_id, correlation_id, idempotency_key,
            app_id, env_id, visibility, metadata, payload)
    returning e.event_id, e.occurred_at into event_id, occurred_at;
end $$;

create function outlog.refuse_sequence(aggregate_type text, aggregate_id text, expected bigint,
        actual bigint, index integer) returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.fail('sequence_conflict', format('%s/%s: expected sequence %s, actual %s; read it again '
        'and decide anew', aggregate_type, aggregate_id, expected, actual),
        json_build_object('expected', expected, 'actual', actual, 'index', index));
end $$;

-- head_* has one entry for each aggregate of the batch, in key order (so two batches cannot
-- deadlock), with the number of events it gets. Event n belongs to head number head[n] and is the
-- nth[n]-th of it. An array that would hold only nulls is null itself.
create function outlog.append_batch(
        head_org_key text[], head_aggregate_type text[], head_aggregate_id text[], head_count bigint[],
        head integer[], nth bigint[], org_id text[], aggregate_type text[], aggregate_id text[],
        event_type text[], event_version integer[], payload text[], metadata text[], id uuid[],
        actor_type text[], actor_id text[], request_id text[], correlation_id text[],
        causation_id uuid[], idempotency_key text[], app_id text[], env_id text[], visibility text[],
        expected_seq bigint[], wait_ms integer)
    returns table (event_id bigint, aggregate_seq bigint, occurred_at timestamptz)
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    lasts bigint[];   -- the last aggregate_seq of each head, this batch included
    done text;
begin
    if wait_ms is not null then     -- the events of several callers: none waits long for another's lock
        done := set_config('lock_timeout', wait_ms::text, true);
    end if;
    with taken as (
        insert into outlog.heads as h (org_key, aggregate_type, aggregate_id, aggregate_seq)
        select unnest(head_org_key), unnest(head_aggregate_type),
               unnest(head_aggregate_id), unnest(head_count)
        on conflict on constraint heads_pkey do update
           set aggregate_seq = h.aggregate_seq + excluded.aggregate_seq
        returning h.aggregate_seq)
    select array_agg(t.aggregate_seq) into lasts from taken t;
    if expected_seq is not null then
        perform outlog.refuse_sequences(head_aggregate_type, head_aggregate_id, head_count, lasts, head, nth,
                                        expected_seq);
    end if;

    return query
    insert into outlog.events as e (id, causation_id, org_id, aggregate_type, aggregate_id, aggregate_seq,
            event_type, event_version, actor_type, actor_id, request_id, correlation_id, idempotency_key,
            app_id, env_id, visibility, metadata, payload)
    select u.id, u.causation_id, u.org_id, u.aggregate_type, u.aggregate_id,
           lasts[u.head] - head_count[u.head] + u.nth,
           u.event_type, u.event_version, u.actor_type, u.actor_id, u.request_id, u.correlation_id,
           u.idempotency_key, u.app_id, u.env_id, u.visibility, u.metadata::json,
           u.payload::json
      from (select unnest(append_batch.head) as head, unnest(append_batch.nth) as nth,
                   unnest(append_batch.org_id) as org_id,
                   unnest(append_batch.aggregate_type) as aggregate_type,
                   unnest(append_batch.aggregate_id) as aggregate_id,
                   unnest(append_batch.event_type) as event_type,
                   unnest(append_batch.event_version) as event_version,
                   unnest(append_batch.payload) as payload, unnest(append_batch.metadata) as metadata,
                   unnest(append_batch.id) as id, unnest(append_batch.actor_type) as actor_type,
                   unnest(append_batch.actor_id) as actor_id, unnest(append_batch.request_id) as request_id,
                   unnest(append_batch.correlation_id) as correlation_id,
                   unnest(append_batch.causation_id) as causation_id,
                   unnest(append_batch.idempotency_key) as idempotency_key,
                   unnest(append_batch.app_id) as app_id, unnest(append_batch.env_id) as env_id,
                   unnest(append_batch.visibility) as visibility) u
    returning e.event_id, e.aggregate_seq::bigint, e.occurred_at;
end $$;

-- Refuses the first event of a batch that expected another sequence of its aggregate.
create function outlog.refuse_sequences(head_aggregate_type text[], head_aggregate_id text[], head_count bigint[],
        lasts bigint[], head integer[], nth bigint[], expected_seq bigint[])
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    wrong record;
begin
    select w.* into wrong
      from (select e.n, e.head, e.expected, lasts[e.head] - head_count[e.head] + e.nth - 1 as actual
              from (select generate_subscripts(expected_seq, 1) as n, unnest(refuse_sequences.head) as head,
                           unnest(refuse_sequences.nth) as nth, unnest(expected_seq) as expected) e) w
     where w.expected <> w.actual order by w.n limit 1;
    if found then
        perform outlog.refuse_sequence(head_aggregate_type[wrong.head], head_aggregate_id[wrong.head], wrong.expected,
                                       wrong.actual, wrong.n - 1);
    end if;
end $$;

-- Locks an aggregate's head without moving it, so that repeats of one id come one after another.
create function outlog.lock_head(org_key text, aggregate_type text, aggregate_id text) returns void
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into outlog.heads as h values (org_key, aggregate_type, aggregate_id, 0)
    on conflict on constraint heads_pkey do update set aggregate_seq = h.aggregate_seq
$$;

-- Names the first field that breaks a limit (E16); called only when one does.
create function outlog.refuse_field(field text, value text, most integer, required boolean)
    returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if value is null and required then
        perform outlog.fail('invalid_field', field || ' is required', json_build_object('pointer', '/' || field));
    elsif octet_length(value) not between 1 and most then
        perform outlog.fail('invalid_field', format('%s must have 1 to %s bytes, it has %s', field, most,
                            octet_length(value)), json_build_object('pointer', '/' || field));
    end if;
end $$;

create function outlog.refuse_unknown_type(org_id text, event_type text, payload json)
    returns void language plpgsql stable
    set search_path = pg_catalog, pg_temp as $$
declare
    known outlog.event_types;
    member record;
begin
    select * into known from outlog.event_types t where t.event_type = refuse_unknown_type.event_type;
    if not found then
        perform outlog.fail('unknown_event_type', format('org %s only takes registered event types, and %s is '
            'not one; register it or correct the name', org_id, event_type), json_build_object('pointer', '/event_type'));
    end if;
    for member in select key, value as wanted from json_each_text(known.shape) loop
        if payload -> member.key is null then
            if right(member.wanted, 1) <> '?' then
                perform outlog.fail('invalid_field', format('payload of %s needs %s', event_type, member.key),
                                    json_build_object('pointer', '/payload/' || member.key));
            end if;
        elsif rtrim(member.wanted, '?') not in ('any', json_typeof(payload -> member.key))
              and not (right(member.wanted, 1) = '?' and json_typeof(payload -> member.key) = 'null') then
            perform outlog.fail('invalid_field', format('payload of %s: %s must be %s', event_type, member.key,
                rtrim(member.wanted, '?')), json_build_object('pointer', '/payload/' || member.key));
        end if;
    end loop;
end $$;

-- The event with this id or event_id.
create function outlog.find_event(reference text) returns outlog.events language plpgsql stable
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    found outlog.events;
begin
    if reference ~ '^[0-9]{1,18}$' then
        select * into found from outlog.events e where e.event_id = reference::bigint;
    elsif reference ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        select * into found from outlog.events e where e.id = reference::uuid;
    end if;
    return found;
end $$;

create function outlog.append(
        org_id text default '', aggregate_type text default null, aggregate_id text default null,
        event_type text default null, payload text default null, event_version integer default 1,
        actor_type text default 'system', actor_id text default 'system', request_id text default null,
        correlation_id text default null, causation_id anycompatible default null, idempotency_key text default null,
        app_id text default null, env_id text default null, visibility text default null,
        metadata text default null, expected_seq bigint default null, id anycompatible default null)
    returns setof outlog.append_result
    -- jit: to the planner the checks of JSON look large enough to compile, which takes half a second
    language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    cause_said text := append.causation_id::text;      -- an id or an event_id: uuid, number or text
    own_id  text := lower(append.id::text);
    result  outlog.append_result;
    cause   outlog.events;
    body    json;
    extra   json;
    first   outlog.events;
    stored  text;
    taken   record;
begin
    -- A null says the same as no argument at all, but for org_id.
    append.event_version := coalesce(append.event_version, 1);
    append.actor_type := coalesce(append.actor_type, 'system');
    append.actor_id := coalesce(append.actor_id, 'system');
    if append.org_id = '' then
        perform outlog.fail('org_required', 'org_id is missing; give one, or null for an infrastructure event',
                            json_build_object('pointer', '/org_id'));
    end if;
    if not coalesce(octet_length(append.aggregate_type) between 1 and 50
            and octet_length(append.aggregate_id) between 1 and 255
            and octet_length(append.event_type) between 1 and 100
            and octet_length(append.actor_id) between 1 and 100
            and append.event_version >= 1
            and append.actor_type in ('user', 'service_principal', 'system'), false)
       or octet_length(append.org_id) > 100 or octet_length(append.request_id) not between 1 and 255
       or octet_length(append.correlation_id) not between 1 and 255
       or octet_length(cause_said) not between 1 and 64
       or octet_length(append.idempotency_key) not between 1 and 512
       or octet_length(append.app_id) not between 1 and 100 or octet_length(append.env_id) not between 1 and 100
       or octet_length(append.visibility) not between 1 and 100 or append.expected_seq < 0 then
        perform outlog.refuse_field('org_id', append.org_id, 100, false);
        perform outlog.refuse_field('aggregate_type', append.aggregate_type, 50, true);
        perform outlog.refuse_field('aggregate_id', append.aggregate_id, 255, true);
        perform outlog.refuse_field('event_type', append.event_type, 100, true);
        perform outlog.refuse_field('actor_id', append.actor_id, 100, true);
        perform outlog.refuse_field('request_id', append.request_id, 255, false);
        perform outlog.refuse_field('correlation_id', append.correlation_id, 255, false);
        perform outlog.refuse_field('causation_id', cause_said, 64, false);
        perform outlog.refuse_field('idempotency_key', append.idempotency_key, 512, false);
        perform outlog.refuse_field('app_id', append.app_id, 100, false);
        perform outlog.refuse_field('env_id', append.env_id, 100, false);
        perform outlog.refuse_field('visibility', append.visibility, 100, false);
        if append.event_version < 1 then
            perform outlog.fail('invalid_field', 'event_version must be 1 or more', json_build_object('pointer', '/event_version'));
        elsif append.expected_seq < 0 then
            perform outlog.fail('invalid_field', 'expected_seq must be 0 or more', json_build_object('pointer', '/expected_seq'));
        end if;
        perform outlog.fail('invalid_field', 'actor_type must be user, service_principal or system',
                            json_build_object('pointer', '/actor_type'));
    end if;
    if own_id is not null and own_id !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        perform outlog.fail('invalid_field', 'id must be a UUID', json_build_object('pointer', '/id'));
    end if;

    body := outlog.checked_json(append.payload, 'payload');
    perform outlog.refuse_secrets(body, 'payload');
    if append.metadata is not null then
        extra := outlog.checked_json(append.metadata, 'metadata');
        perform outlog.refuse_secrets(extra, 'metadata');
    end if;
    if pg_relation_size('outlog.strict_orgs') > 0 then      -- else known without a query
        if exists (select from outlog.strict_orgs s where s.org_id = append.org_id) then
            perform outlog.refuse_unknown_type(append.org_id, append.event_type, body);
        end if;
    end if;

    if append.idempotency_key is not null then
        stored := outlog.idempotency_begin(append.org_id, append.actor_id, 'append', append.idempotency_key,
            ('{"events":[' || left(json_strip_nulls(json_build_object(
                'aggregate_id', append.aggregate_id, 'aggregate_type', append.aggregate_type,
                'app_id', append.app_id, 'causation_id', cause_said,
                'correlation_id', append.correlation_id, 'env_id', append.env_id,
                'event_type', append.event_type, 'event_version', append.event_version,
                'expected_seq', append.expected_seq, 'id', own_id,
                'visibility', append.visibility))::text, -1)
             || ',"metadata":' || coalesce(append.metadata, 'null') || ',"payload":' || append.payload || '}]}')::json);
        if stored is not null then
            return query select (e ->> 'event_id')::bigint, (e ->> 'id')::uuid, (e ->> 'aggregate_seq')::bigint,
                         (e ->> 'occurred_at')::timestamptz, e ->> 'correlation_id', true
                    from json_array_elements(stored::json -> 'events') e;
            return;
        end if;
    end if;

    if cause_said is not null then
        cause := outlog.find_event(cause_said);
        if cause.event_id is null or cause.org_id is distinct from append.org_id then
            perform outlog.fail('unknown_causation', format('no event %s in this org; the cause must be stored first',
                cause_said), json_build_object('pointer', '/causation_id'));
        end if;
    end if;
    result.id := coalesce(own_id::uuid, outlog.uuid7());
    result.correlation_id := coalesce(append.correlation_id, cause.correlation_id, outlog.uuid7()::text);
    result.duplicate := false;

    if own_id is not null then
        -- Two calls with one id meet at the aggregate's head; the second then sees the first.
        perform outlog.lock_head(coalesce(append.org_id, ''), append.aggregate_type, append.aggregate_id);
        first := outlog.find_event(own_id);
        if first.event_id is not null then
            if (first.org_id, first.aggregate_type, first.aggregate_id, first.event_type, first.event_version,
                outlog.normal_json(first.payload)) is distinct from
               (append.org_id, append.aggregate_type, append.aggregate_id, append.event_type, append.event_version,
                outlog.normal_json(body)) then
                perform outlog.fail('id_conflict', format('id %s is taken by an event with other content; take a new id',
                    own_id), json_build_object('pointer', '/id'));
            end if;
            result := (first.event_id, first.id, first.aggregate_seq, first.occurred_at, first.correlation_id, true);
        end if;
    end if;

    if not result.duplicate then
        append.request_id := coalesce(append.request_id, outlog.uuid7()::text);
        if own_id is null then
            taken := outlog.append_one(append.org_id, append.aggregate_type, append.aggregate_id, append.event_type,
                append.event_version, body, extra, result.id, append.actor_type, append.actor_id,
                append.request_id, result.correlation_id, cause.id, append.idempotency_key, append.app_id,
                append.env_id, append.visibility, append.expected_seq);
        else
            begin               -- a subtransaction, only for an id that another may have taken meanwhile
                taken := outlog.append_one(append.org_id, append.aggregate_type, append.aggregate_id, append.event_type,
                    append.event_version, body, extra, result.id, append.actor_type, append.actor_id,
                    append.request_id, result.correlation_id, cause.id, append.idempotency_key, append.app_id,
                    append.env_id, append.visibility, append.expected_seq);
            exception when unique_violation then
                perform outlog.fail('id_conflict', format('id %s is taken by another event; take a new id', result.id),
                                    json_build_object('pointer', '/id'));
            end;
        end if;
        result.event_id := taken.event_id;
        result.aggregate_seq := taken.aggregate_seq;
        result.occurred_at := taken.occurred_at;
    end if;
    if append.idempotency_key is not null then
        perform outlog.idempotency_end(append.org_id, append.actor_id, 'append', append.idempotency_key,
            json_build_object('events', json_build_array(json_build_object('event_id', result.event_id,
                'id', result.id, 'aggregate_seq', result.aggregate_seq, 'occurred_at', outlog.rfc3339(result.occurred_at),
                'correlation_id', result.correlation_id, 'duplicate', result.duplicate)),
                'messages', json_build_array())::text);
    end if;
    return next result;
end $$;

-- Times as every door writes them: UTC, microseconds.
create function outlog.rfc3339(at timestamptz) returns text language sql stable
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
