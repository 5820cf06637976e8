-- Messages that SQL enqueues, and messages that routes make of events.

create type outlog.enqueue_result as (event_id uuid, duplicate boolean);

-- enqueue: puts one message into the outbox; the function for SQL.
-- Parameters: the fields of a message by name; payload or payload_bytes; available_at or delay.
--             causation_id is an id or an event_id: a uuid, a number or a text. payload, headers
--             and metadata may be json or jsonb too.
-- Returns:    one row: the message's event_id, and duplicate where its key was used before.
-- Errors:     invalid_field, too_large, invalid_json, secret_material, unknown_causation,
--             id_conflict; `pointer` names the field.
-- Locks:      the idempotency key until the transaction ends. A repeat waits for the first.
create function outlog.enqueue(
        --=, message arguments: {name} {argument}
        )
    returns setof outlog.enqueue_result
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    result outlog.enqueue_result;
    cause  outlog.events;
    due    timestamptz;
    refusal text;
begin
    refusal := case
        --= message required: when enqueue.{name} is null then '{name} is required'
        --= message texts: when octet_length(enqueue.{name}::text) not between 1 and {max} then
        --=+     format('{name} must have 1 to {max} bytes, it has %s',
        --=+            octet_length(enqueue.{name}::text))
        when enqueue.max_attempts < 1 then 'max_attempts must be 1 or more'
        when enqueue.event_id !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'event_id must be a UUID'
    end;
    if refusal is not null then
        perform outlog.refuse_with(refusal);
    end if;
    if (enqueue.payload is null) = (enqueue.payload_bytes is null) then
        perform outlog.fail('invalid_field', 'give payload or payload_bytes', json_build_object('pointer', '/payload'));
    end if;
    if coalesce(octet_length(enqueue.payload), octet_length(enqueue.payload_bytes)) > 262144 then
        perform outlog.fail('too_large', 'payload is over the limit of 262144 bytes',
                            json_build_object('pointer', '/payload'));
    end if;
    if enqueue.headers is not null then
        perform outlog.checked_json(enqueue.headers, 'headers');         -- that they are flat, the table checks
    end if;
    if enqueue.metadata is not null then
        perform outlog.checked_json(enqueue.metadata, 'metadata');      -- the table checks it for secrets
    end if;
    if enqueue.available_at is not null then
        due := enqueue.available_at;
    elsif abs(extract(epoch from enqueue.delay)) < 1e11 then       -- 3000 years: surely a time
        due := clock_timestamp() + enqueue.delay;
    elsif enqueue.delay is not null then
        due := 'infinity';
    end if;
    if due not between '0001-01-01Z' and '9999-12-31 23:59:59.999999Z' then
        perform outlog.fail('invalid_field', 'available_at, or the end of delay, must be a time of the years 1 to 9999',
                            json_build_object('pointer', case when enqueue.available_at is null then '/delay'
                                                              else '/available_at' end));
    end if;
    if enqueue.causation_id is not null then
        cause := outlog.find_event(enqueue.causation_id);
        if cause.event_id is null or cause.org_id is distinct from coalesce(enqueue.org_id, cause.org_id) then
            perform outlog.fail('unknown_causation', format('no event %s in this org; the cause must be stored first',
                enqueue.causation_id), json_build_object('pointer', '/causation_id'));
        end if;
    end if;
    -- I2: a repeat is ignored and answered with the first one.
    for attempt in 1 .. 3 loop
        if enqueue.idempotency_key is not null then
            result.event_id := outlog.message_with_key(enqueue.org_id, enqueue.destination, enqueue.idempotency_key);
            if result.event_id is not null then
                result.duplicate := true;
                return next result;
                return;
            end if;
        end if;
        insert into outlog.outbox as o (
                --=, message given: {name}
                )
        values (
                --=, message given: enqueue.{name}
                --=| event_id: coalesce(enqueue.event_id::uuid, outlog.uuid7())
                --=| available_at: due
                --=| causation_id: cause.id
                --=| content_type: coalesce(enqueue.content_type, 'application/json')
                --=| headers: enqueue.headers::json
                --=| metadata: enqueue.metadata::json
                --=| correlation_id: coalesce(enqueue.correlation_id, cause.correlation_id)
                )
        on conflict do nothing returning o.event_id into result.event_id;
        if found then
            if not exists (select from outlog.destinations d where d.name = enqueue.destination) then
                raise notice 'unknown_destination: there is no destination %: the message waits until '
                    '`outlog apply` adds it', enqueue.destination;
            end if;
            result.duplicate := false;
            return next result;
            return;
        end if;
        -- Another transaction inserted the key and committed meanwhile: find it.
        if enqueue.idempotency_key is null then
            exit;
        end if;
    end loop;
    perform outlog.fail('id_conflict', format('message id %s is taken', enqueue.event_id),
                        json_build_object('pointer', '/event_id'));
end $$;

select outlog.overload('enqueue', '{payload, headers, metadata}', 'event_id');

-- Headers are flat: a receiver cannot tell a nested value from a text that looks like JSON. Only a
-- text with a second bracket can hold one. An import brings the rows of another store as they are.
create or replace function outlog.guard_headers() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    header text;
begin
    select h.key into header from json_each(new.headers) h where json_typeof(h.value) in ('object', 'array') limit 1;
    if found then
        perform outlog.fail('invalid_field', format('header %s must be a string, a number or a boolean', header),
                            json_build_object('pointer', '/headers/' || header));
    end if;
    return new;
end $$;
create or replace trigger outbox_headers_are_flat before insert on outlog.outbox
    for each row when (new.seq is null and new.headers::text ~ '[{[].*[{[]') execute function outlog.guard_headers();
alter table outlog.outbox enable always trigger outbox_headers_are_flat;

create or replace function outlog.message_with_key(org_id text, destination text, idempotency_key text) returns uuid
    language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select event_id from (
        select o.event_id from outlog.outbox o
         where o.org_id is not distinct from message_with_key.org_id
           and o.destination = message_with_key.destination
           and o.idempotency_key = message_with_key.idempotency_key
        union all
        select k.event_id from outlog.outbox_keys k
         where k.org_key = coalesce(message_with_key.org_id, '') and k.destination = message_with_key.destination
           and k.idempotency_key = message_with_key.idempotency_key) m limit 1
$$;

-- "/a/b" as PostgreSQL's path.
create or replace function outlog.json_path(pointer text) returns text[] language sql immutable
begin atomic
    select coalesce(array_agg(replace(replace(part, '~1', '/'), '~0', '~') order by n), '{}')
      from regexp_split_to_table(substr(pointer, 2), '/') with ordinality p(part, n)
     where pointer <> '';
end;

create or replace function outlog.condition_holds(condition json, payload json) returns boolean
language sql immutable
begin atomic
    select coalesce(bool_and((payload #> outlog.json_path(c.key))::jsonb is not distinct from c.value::jsonb), true)
      from json_each(condition) c;
end;

-- Routes: evaluated once per statement, in the event's own transaction, for every interface.
create or replace function outlog.route_events() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    if pg_relation_size('outlog.routes') = 0 then
        return null;                    -- not one page: no query, as this runs after every INSERT
    end if;
    if not exists (select from outlog.routes) then
        return null;
    end if;
    insert into outlog.outbox (destination, event_type, payload, org_id, idempotency_key, ordering_key,
            metadata, correlation_id, causation_id, aggregate_type, aggregate_id)
    select distinct on (e.event_id, r.destination)     -- two routes to one destination are one message
           r.destination, e.event_type, e.payload::text, e.org_id, e.id || ':' || r.destination,
           coalesce(r.ordering_key, coalesce(e.org_id, '') || '/' || e.aggregate_type || '/' || e.aggregate_id),
           case when e.metadata -> 'traceparent' is not null
                then json_build_object('traceparent', e.metadata ->> 'traceparent') end,
           e.correlation_id, e.id, e.aggregate_type, e.aggregate_id
      from appended e
      join outlog.routes r on e.event_type like r.pattern
       and (r.is_audit or e.event_type not like 'outlog.%')
       and (e.org_id is not null or r.is_audit or r.aggregate_type is not null    -- infrastructure: only where named
            or strpos(replace(r.pattern, E'\\%', ''), '%') = 0)
       and (r.org_id is null or r.org_id = e.org_id)
       and (r.aggregate_type is null or r.aggregate_type = e.aggregate_type)
       and (r.condition is null or outlog.condition_holds(r.condition, e.payload))
     order by e.event_id, r.destination, r.name
    on conflict do nothing;             -- a message of a caller may have used the key
    return null;
end $$;
create or replace trigger events_are_routed after insert on outlog.events
    referencing new table as appended for each statement execute function outlog.route_events();
alter table outlog.events enable always trigger events_are_routed;
