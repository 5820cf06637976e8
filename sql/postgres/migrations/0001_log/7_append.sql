-- Appending (E4, E5). Each function relies on the checks of the one that calls it:
--   append        for SQL: named arguments; refuses types that only outlog writes
--   append_own  the same for outlog's own commands: every other check, then append_one
--   append_one    one checked event in two statements
--   append_batch  many checked events at once, for the C library of a relay or an administrator
--   append_checked  the same for the C library of an application: every check, then append_batch
-- The fields come from sql/schema/event.json. A migration that adds one includes this file again
-- (--<), which replaces these functions.
do $$
declare
    old regprocedure;
begin
    for old in select p.oid from pg_proc p where p.pronamespace = 'outlog'::regnamespace
                  and p.proname in ('append', 'append_own', 'append_one', 'append_batch',
                                    'append_checked') loop
        execute format('drop function %s', old);
    end loop;
end $$;

-- Makes a function of text also take the types that drivers send: documents as json or jsonb, the
-- caller's own id as uuid, causation_id as any type.
--
-- A privileged function takes concrete types only: with a polymorphic argument it would run a cast
-- that its caller made, with the rights of the owner (R1). So these overloads turn the arguments
-- into text with the rights of the caller, and call the function of text.
--
-- An argument of such a type is required in its overload: two functions that differ only in the
-- type of an argument that is left out would both fit. A literal without a type fits text best.
create or replace function outlog.overload(name text, documents text[], own_id text default null)
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    main     pg_proc;
    document text;
begin
    select * into strict main from pg_proc p
     where p.pronamespace = 'outlog'::regnamespace and p.proname = overload.name;
    foreach document in array array[null, 'json', 'jsonb'] loop
        if document is not null or 'causation_id' = any (main.proargnames) then
            perform outlog.overload_with(main, documents, document, null);
        end if;
        if own_id is not null then
            perform outlog.overload_with(main, documents, document, own_id);
        end if;
    end loop;
    perform outlog.overload_rights(name);
end $$;

-- Applications may call the function and all its overloads.
create or replace function outlog.overload_rights(name text) returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
declare
    made    regprocedure;
    grantee text;
begin
    for made in select p.oid from pg_proc p
                 where p.pronamespace = 'outlog'::regnamespace and p.proname = overload_rights.name loop
        execute format('revoke all on function %s from public', made);
        for grantee in select r.rolname from pg_roles r where r.rolname in ('outlog_append', 'outlog_admin') loop
            execute format('grant execute on function %s to %I', made, grantee);
        end loop;
    end loop;
end $$;

-- One overload: documents have the type `document`, null: text; own_id, where given, is a uuid.
create or replace function outlog.overload_with(main pg_proc, documents text[], document text, own_id text)
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    required integer := case when document is not null then array_position(main.proargnames, documents[1]) else 0 end;
    front    text[];
    rest     text[];
    passed   text[];
    arg      text;
    other    text;      -- the type, where it is not that of the function of text
begin
    for n in 1 .. main.pronargs loop
        arg := main.proargnames[n];
        other := case when arg = any (documents) then document
                      when arg = own_id then 'uuid'
                      when arg = 'causation_id' then 'anycompatible' end;
        passed := passed || format('%I => %I.%I%s', arg, main.proname, arg,
                                   case when other is not null then '::text' end);
        if other = 'uuid' or (other = 'anycompatible' and document is null and own_id is null) then
            front := front || format('%I %s', arg, other);
        else
            rest := rest || format('%I %s%s', arg, coalesce(other, format_type(main.proargtypes[n - 1], null)),
                case when n > required then ' default ' || case when other is not null then 'null'
                                                           else pg_get_function_arg_default(main.oid, n) end end);
        end if;
    end loop;
    execute format('create function outlog.%I(%s) returns %s language sql set search_path = pg_catalog, pg_temp as %L',
                   main.proname, array_to_string(front || rest, ', '), pg_get_function_result(main.oid),
                   format('select * from outlog.%I(%s)', main.proname, array_to_string(passed, ', ')));
end $$;

-- append_one: stores one event whose fields are checked.
-- Parameters: the event's columns; expected_seq: the aggregate's last number, null for any.
-- Returns:    the numbers and the time that the event got.
-- Errors:     sequence_conflict; unique_violation where the id is taken.
-- Locks:      the aggregate's row of outlog.heads until the transaction ends. It is locked before
--             the event takes its event_id, so within one aggregate event_id and aggregate_seq rise
--             together, and the next appender waits until this one has committed.
create or replace function outlog.append_one(
        --= event given: {name} {type},
        expected_seq bigint,
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
    insert into outlog.events as e (
        --=, event inserted: {name}
        )
    values (
        --=, event inserted: {name}
        )
    returning e.event_id, e.occurred_at into event_id, occurred_at;
end $$;

create or replace function outlog.refuse_sequence(aggregate_type text, aggregate_id text, expected bigint,
        actual bigint, index integer) returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.fail('sequence_conflict', format('%s/%s: expected sequence %s, actual %s; read it again '
        'and decide anew', aggregate_type, aggregate_id, expected, actual),
        json_build_object('expected', expected, 'actual', actual, 'index', index));
end $$;

-- append_batch: stores many checked events.
-- Parameters: head_*: one entry per aggregate of the batch, in key order (so two batches cannot
--             deadlock), with the number of events it gets. Event n belongs to head number head[n]
--             and is its nth[n]-th. An array that would hold only nulls is null itself.
--             wait_ms: how long it waits for a lock, null for as long as the session does.
-- Returns:    one row per event, in the order of the arrays.
-- Errors:     sequence_conflict with the index of the event.
-- Locks:      the rows of outlog.heads of all its aggregates until the transaction ends.
create or replace function outlog.append_batch(
        head_org_key text[], head_aggregate_type text[], head_aggregate_id text[], head_count bigint[],
        head integer[], nth bigint[],
        --= event given: {name} {type}[],
        --=| payload: payload text[],
        --=| metadata: metadata text[],
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
    insert into outlog.events as e (
        --=, event inserted: {name}
        )
    select
        --=, event inserted: u.{name}{cast}
        --=| aggregate_seq: lasts[u.head] - head_count[u.head] + u.nth
      from (select
                --= event given: unnest(append_batch.{name}) as {name},
                unnest(append_batch.head) as head, unnest(append_batch.nth) as nth) u
    returning e.event_id, e.aggregate_seq::bigint, e.occurred_at;
end $$;

-- Refuses the first event of a batch that expected another sequence of its aggregate.
create or replace function outlog.refuse_sequences(
    head_aggregate_type text[], head_aggregate_id text[], head_count bigint[],
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
create or replace function outlog.lock_head(org_key text, aggregate_type text, aggregate_id text) returns void
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into outlog.heads as h values (org_key, aggregate_type, aggregate_id, 0)
    on conflict on constraint heads_pkey do update set aggregate_seq = h.aggregate_seq
$$;

-- Raises invalid_field with this text, whose first word is the name of the field.
create or replace function outlog.refuse_with(refusal text) returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.fail('invalid_field', refusal, json_build_object('pointer', '/' || split_part(refusal, ' ', 1)));
end $$;

-- Refuses a text that breaks a limit (E16), for the commands of runs.
create or replace function outlog.refuse_field(field text, value text, max_bytes integer, required boolean)
    returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if value is null and required then
        perform outlog.refuse_with(field || ' is required');
    elsif octet_length(value) not between 1 and max_bytes then
        perform outlog.refuse_with(format('%s must have 1 to %s bytes, it has %s', field, max_bytes,
                                                octet_length(value)));
    end if;
end $$;

create or replace function outlog.refuse_unknown_type(org_id text, event_type text, payload json)
    returns void language plpgsql stable
    set search_path = pg_catalog, pg_temp as $$
declare
    known outlog.event_types;
    member record;
begin
    select * into known from outlog.event_types t where t.event_type = refuse_unknown_type.event_type;
    if not found then
        perform outlog.fail('unknown_event_type', format('org %s only takes registered event types, and %s is '
            'not one; register it or correct the name', org_id, event_type),
            json_build_object('pointer', '/event_type'));
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
create or replace function outlog.find_event(reference text) returns outlog.events language plpgsql stable
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

-- append_checked: stores many events of a caller that is not trusted to have checked them (R5).
-- Parameters: those of append_batch. The C library has checked them, so a refusal means that
--             somebody else called.
-- Errors:     misuse (the numbers of the events do not fit their aggregates); those of append.
create or replace function outlog.append_checked(
        head_org_key text[], head_aggregate_type text[], head_aggregate_id text[], head_count bigint[],
        head integer[], nth bigint[],
        --= event given: {name} {type}[],
        --=| payload: payload text[],
        --=| metadata: metadata text[],
        expected_seq bigint[], wait_ms integer)
    returns table (event_id bigint, aggregate_seq bigint, occurred_at timestamptz)
    language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_variable
begin
    perform outlog.check_numbers(head_org_key, head_aggregate_type, head_aggregate_id, head_count, head, nth,
                                 org_id, aggregate_type, aggregate_id);
    perform outlog.check_causes(id, causation_id, org_id);
    perform outlog.check_event(e.org_id, e.event_type, e.payload, e.metadata)
       from (select unnest(append_checked.org_id) as org_id, unnest(append_checked.event_type) as event_type,
                    unnest(append_checked.payload) as payload, unnest(append_checked.metadata) as metadata) e;
    return query select * from outlog.append_batch(head_org_key, head_aggregate_type, head_aggregate_id, head_count,
        head, nth,
        --= event given: {name},
        expected_seq, wait_ms);
end $$;

-- Every event belongs to the aggregate of its head, and the events of a head are 1, 2, 3 …
create or replace function outlog.check_numbers(head_org_key text[], head_aggregate_type text[],
        head_aggregate_id text[], head_count bigint[], head integer[], nth bigint[], org_id text[],
        aggregate_type text[], aggregate_id text[])
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    if exists (select from (select unnest(check_numbers.head) as head, unnest(check_numbers.org_id) as org_id,
                                   unnest(check_numbers.aggregate_type) as aggregate_type,
                                   unnest(check_numbers.aggregate_id) as aggregate_id) e
                where (head_org_key[e.head], head_aggregate_type[e.head], head_aggregate_id[e.head])
                      is distinct from (coalesce(e.org_id, ''), e.aggregate_type, e.aggregate_id))
       or exists (select from generate_subscripts(head_count, 1) h
                    left join (select unnest(check_numbers.head) as head, unnest(check_numbers.nth) as nth) e
                      on e.head = h
                   group by h having (count(e.nth), count(distinct e.nth), min(e.nth), max(e.nth))
                                     is distinct from (head_count[h], head_count[h], 1, head_count[h])) then
        perform outlog.fail('misuse', 'the numbers of the events do not fit their aggregates');
    end if;
end $$;

-- T2: a cause is stored, or stands before its effect in the same call; both are of one org.
create or replace function outlog.check_causes(id uuid[], causation_id uuid[], org_id text[])
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    unknown uuid;
begin
    select e.cause into unknown
      from (select generate_subscripts(check_causes.id, 1) as n, unnest(check_causes.causation_id) as cause,
                   unnest(check_causes.org_id) as org) e
     where e.cause is not null
       and not exists (select from outlog.events c where c.id = e.cause and c.org_id is not distinct from e.org)
       and not exists (select from generate_series(1, e.n - 1) b where check_causes.id[b] = e.cause
                          and check_causes.org_id[b] is not distinct from e.org)
     limit 1;
    if found then
        perform outlog.fail('unknown_causation', format('no event %s in this org; the cause must be stored first',
                            unknown), json_build_object('pointer', '/causation_id'));
    end if;
end $$;

create or replace function outlog.check_event(org_id text, event_type text, payload text, metadata text)
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    body json := outlog.checked_json(payload, 'payload');
begin
    if outlog.is_reserved(event_type) then
        perform outlog.refuse_reserved(event_type);
    end if;
    perform outlog.refuse_secrets(body, 'payload');
    if metadata is not null then
        perform outlog.refuse_secrets(outlog.checked_json(metadata, 'metadata'), 'metadata');
    end if;
    if exists (select from outlog.strict_orgs s where s.org_id = check_event.org_id) then
        perform outlog.refuse_unknown_type(org_id, event_type, body);
    end if;
end $$;

-- X1: types that only outlog's own commands write: audit events, and the states of signals, runs,
-- steps and effects.
create or replace function outlog.is_reserved(event_type text) returns boolean language plpgsql immutable
    set search_path = pg_catalog, pg_temp as $$
begin
    return starts_with(event_type, 'outlog.') or event_type in (
        --= reserved_types()
    );
end $$;

create or replace function outlog.refuse_reserved(event_type text) returns void language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.fail('invalid_field', format('event_type %s is written by outlog''s own commands alone; call the '
        'command, or take another name', event_type), json_build_object('pointer', '/event_type'));
end $$;

-- append_own: append without the check of X1, for the commands of runs and effects.
create or replace function outlog.append_own(
        --=, event arguments: {name} {argument}
        )
    returns outlog.append_result language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    reference text := append_own.causation_id;      -- an id or an event_id
    own_id    text := lower(append_own.id);
    refusal   text;
    result    outlog.append_result;
    cause     outlog.events;
    body      json;
    extra     json;
    first     outlog.events;
    stored    text;
    taken     record;
begin
    -- A null counts as no argument at all, except for org_id.
    append_own.event_version := coalesce(append_own.event_version, 1);
    append_own.actor_type := coalesce(append_own.actor_type, 'system');
    append_own.actor_id := coalesce(append_own.actor_id, 'system');
    if append_own.org_id = '' then
        perform outlog.fail('org_required', 'org_id is missing; give one, or null for an infrastructure event',
                            json_build_object('pointer', '/org_id'));
    end if;
    refusal := case
        --= event required: when append_own.{name} is null then '{name} is required'
        --= event limited: when octet_length(append_own.{name}::text) not between 1 and {max} then
        --=+     format('{name} must have 1 to {max} bytes, it has %s',
        --=+            octet_length(append_own.{name}::text))
        when append_own.event_version < 1 then 'event_version must be 1 or more'
        when append_own.expected_seq < 0 then 'expected_seq must be 0 or more'
        when append_own.actor_type not in ('user', 'service_principal', 'system') then
            'actor_type must be user, service_principal or system'
        when own_id !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'id must be a UUID'
    end;
    if refusal is not null then
        perform outlog.refuse_with(refusal);
    end if;

    body := outlog.checked_json(append_own.payload, 'payload');
    perform outlog.refuse_secrets(body, 'payload');
    if append_own.metadata is not null then
        extra := outlog.checked_json(append_own.metadata, 'metadata');
        perform outlog.refuse_secrets(extra, 'metadata');
    end if;
    if pg_relation_size('outlog.strict_orgs') > 0 then      -- else known without a query
        if exists (select from outlog.strict_orgs s where s.org_id = append_own.org_id) then
            perform outlog.refuse_unknown_type(append_own.org_id, append_own.event_type, body);
        end if;
    end if;

    if append_own.idempotency_key is not null then
        stored := outlog.idempotency_begin(append_own.org_id, append_own.actor_id, 'append', append_own.idempotency_key,
            ('{"events":[' || left(json_strip_nulls(json_build_object(
                --=, event hashed: '{name}', append_own.{name}
                --=| causation_id: 'causation_id', reference
                --=| id: 'id', own_id
                ))::text, -1)
             || ',"metadata":' || coalesce(append_own.metadata, 'null') || ',"payload":' || append_own.payload
             || '}]}')::json);
        if stored is not null then
            select (e ->> 'event_id')::bigint, (e ->> 'id')::uuid, (e ->> 'aggregate_seq')::bigint,
                   (e ->> 'occurred_at')::timestamptz, e ->> 'correlation_id', true into result
              from json_array_elements(stored::json -> 'events') e;
            return result;
        end if;
    end if;

    if reference is not null then
        cause := outlog.find_event(reference);
        if cause.event_id is null or cause.org_id is distinct from append_own.org_id then
            perform outlog.fail('unknown_causation',
                format('no event %s in this org; the cause must be stored first', reference),
                json_build_object('pointer', '/causation_id'));
        end if;
    end if;
    result.id := coalesce(own_id::uuid, outlog.uuid7());
    result.correlation_id := coalesce(append_own.correlation_id, cause.correlation_id, outlog.uuid7()::text);
    result.duplicate := false;

    if own_id is not null then
        -- Two calls with one id meet at the aggregate's head; the second then sees the first.
        perform outlog.lock_head(coalesce(append_own.org_id, ''), append_own.aggregate_type, append_own.aggregate_id);
        first := outlog.find_event(own_id);
        if first.event_id is not null then
            if (first.org_id, first.aggregate_type, first.aggregate_id, first.event_type, first.event_version,
                outlog.normal_json(first.payload)) is distinct from
               (append_own.org_id, append_own.aggregate_type, append_own.aggregate_id, append_own.event_type,
                append_own.event_version, outlog.normal_json(body)) then
                perform outlog.fail('id_conflict',
                    format('id %s is taken by an event with other content; take a new id', own_id),
                    json_build_object('pointer', '/id'));
            end if;
            result := (first.event_id, first.id, first.aggregate_seq, first.occurred_at, first.correlation_id, true);
        end if;
    end if;

    if not result.duplicate then
        append_own.request_id := coalesce(append_own.request_id, outlog.uuid7()::text);
        if own_id is null then
            taken := outlog.append_one(
                    --= event given: {name} => append_own.{name},
                    --=| payload: payload => body,
                    --=| metadata: metadata => extra,
                    --=| id: id => result.id,
                    --=| correlation_id: correlation_id => result.correlation_id,
                    --=| causation_id: causation_id => cause.id,
                    expected_seq => append_own.expected_seq);
        else
            begin               -- a subtransaction, only for an id that another may have taken meanwhile
                taken := outlog.append_one(
                    --= event given: {name} => append_own.{name},
                    --=| payload: payload => body,
                    --=| metadata: metadata => extra,
                    --=| id: id => result.id,
                    --=| correlation_id: correlation_id => result.correlation_id,
                    --=| causation_id: causation_id => cause.id,
                    expected_seq => append_own.expected_seq);
            exception when unique_violation then
                perform outlog.fail('id_conflict', format('id %s is taken by another event; take a new id', result.id),
                                    json_build_object('pointer', '/id'));
            end;
        end if;
        result.event_id := taken.event_id;
        result.aggregate_seq := taken.aggregate_seq;
        result.occurred_at := taken.occurred_at;
    end if;
    if append_own.idempotency_key is not null then
        perform outlog.idempotency_end(append_own.org_id, append_own.actor_id, 'append', append_own.idempotency_key,
            json_build_object('events', json_build_array(json_build_object('event_id', result.event_id,
                'id', result.id, 'aggregate_seq', result.aggregate_seq,
                'occurred_at', outlog.rfc3339(result.occurred_at), 'correlation_id', result.correlation_id,
                'duplicate', result.duplicate)),
                'messages', json_build_array())::text);
    end if;
    return result;
end $$;

-- append: appends one event; the function for SQL.
-- Parameters: the fields of an event by name. A null counts as no argument at all, except for
--             org_id, where null is an event of the infrastructure. causation_id is an id or an
--             event_id: a uuid, a number or a text. payload and metadata may be json or jsonb too.
-- Returns:    one row: event_id, id, aggregate_seq, occurred_at, correlation_id, and duplicate: the
--             idempotency_key or the id was stored before.
-- Errors:     org_required, invalid_field, too_large, invalid_json, secret_material,
--             unknown_event_type, unknown_causation, sequence_conflict, id_conflict,
--             idempotency_key_reuse, idempotency_in_progress; `pointer` names the field.
-- Locks:      the aggregate's row of outlog.heads and the idempotency key, until the transaction
--             ends.
create or replace function outlog.append(
        --=, event arguments: {name} {argument}
        )
    returns setof outlog.append_result
    -- jit: the planner would compile the checks of JSON, which takes half a second
    language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_variable
begin
    if outlog.is_reserved(append.event_type) then
        perform outlog.refuse_reserved(append.event_type);
    end if;
    return next outlog.append_own(
        --=, event arguments: {name} => append.{name}
        );
end $$;

-- Times as every interface writes them: UTC, microseconds.
create or replace function outlog.rfc3339(at timestamptz) returns text language sql stable
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

select outlog.overload('append', '{payload, metadata}', 'id');

-- The rights of functions that were made again; where they are new, the roles come next.
revoke all on all functions in schema outlog from public;
do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_append') then
        grant execute on function outlog.append_checked to outlog_append;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant execute on function outlog.append_one, outlog.append_batch to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant execute on function outlog.append_one, outlog.append_batch, outlog.append_checked to outlog_admin;
    end if;
end $$;
