-- Messages asked for by SQL, and messages that routes make of events.

create type outlog.enqueue_result as (event_id uuid, duplicate boolean);

create function outlog.enqueue(
        destination text, event_type text, payload text default null, payload_bytes bytea default null,
        content_type text default 'application/json', org_id text default null,
        idempotency_key text default null, ordering_key text default null, partition_key text default null,
        headers text default null, metadata text default null, available_at timestamptz default null,
        delay interval default null, max_attempts integer default null, correlation_id text default null,
        causation_id anycompatible default null, aggregate_type text default null, aggregate_id text default null,
        event_id uuid default null)
    returns setof outlog.enqueue_result
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    result outlog.enqueue_result;
    cause  outlog.events;
    due    timestamptz;
begin
    if (octet_length(enqueue.destination) between 1 and 100 and octet_length(enqueue.event_type) between 1 and 100
            and coalesce(octet_length(enqueue.org_id) between 1 and 100, true)
            and coalesce(octet_length(enqueue.idempotency_key) between 1 and 512, true)
            and coalesce(octet_length(enqueue.ordering_key) between 1 and 512, true)
            and coalesce(octet_length(enqueue.partition_key) between 1 and 512, true)
            and coalesce(octet_length(enqueue.content_type) between 1 and 200, true)
            and coalesce(octet_length(enqueue.correlation_id) between 1 and 255, true)
            and coalesce(octet_length(enqueue.aggregate_type) between 1 and 50, true)
            and coalesce(octet_length(enqueue.aggregate_id) between 1 and 255, true)) is not true then
        perform outlog.refuse_field('destination', enqueue.destination, 100, true);
        perform outlog.refuse_field('event_type', enqueue.event_type, 100, true);
        perform outlog.refuse_field('org_id', enqueue.org_id, 100, false);
        perform outlog.refuse_field('idempotency_key', enqueue.idempotency_key, 512, false);
        perform outlog.refuse_field('ordering_key', enqueue.ordering_key, 512, false);
        perform outlog.refuse_field('partition_key', enqueue.partition_key, 512, false);
        perform outlog.refuse_field('content_type', enqueue.content_type, 200, false);
        perform outlog.refuse_field('correlation_id', enqueue.correlation_id, 255, false);
        perform outlog.refuse_field('aggregate_type', enqueue.aggregate_type, 50, false);
        perform outlog.refuse_field('aggregate_id', enqueue.aggregate_id, 255, false);
    end if;
    if (enqueue.payload is null) = (enqueue.payload_bytes is null) then
        perform outlog.fail('invalid_field', 'give payload or payload_bytes', json_build_object('pointer', '/payload'));
    end if;
    if coalesce(octet_length(enqueue.payload), octet_length(enqueue.payload_bytes)) > 262144 then
        perform outlog.fail('too_large', 'payload is over the limit of 262144 bytes', json_build_object('pointer', '/payload'));
    end if;
    if enqueue.headers is not null then
        perform outlog.checked_json(enqueue.headers, 'headers');
    end if;
    if enqueue.metadata is not null then
        perform outlog.checked_json(enqueue.metadata, 'metadata');      -- for secrets the table looks itself
    end if;
    if enqueue.max_attempts < 1 then
        perform outlog.fail('invalid_field', 'max_attempts must be 1 or more', json_build_object('pointer', '/max_attempts'));
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
                            json_build_object('pointer', case when enqueue.available_at is null then '/delay' else '/available_at' end));
    end if;
    if enqueue.causation_id is not null then
        cause := outlog.find_event(enqueue.causation_id::text);
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
        insert into outlog.outbox as o (event_id, destination, event_type, payload, payload_bytes, content_type,
                org_id, idempotency_key, ordering_key, partition_key, headers, metadata, available_at,
                max_attempts, correlation_id, causation_id, aggregate_type, aggregate_id)
        values (coalesce(enqueue.event_id, outlog.uuid7()), enqueue.destination, enqueue.event_type, enqueue.payload,
                enqueue.payload_bytes, coalesce(enqueue.content_type, 'application/json'), enqueue.org_id, enqueue.idempotency_key,
                enqueue.ordering_key, enqueue.partition_key, enqueue.headers::json, enqueue.metadata::json,
                due, enqueue.max_attempts,
                coalesce(enqueue.correlation_id, cause.correlation_id), cause.id, enqueue.aggregate_type, enqueue.aggregate_id)
        on conflict do nothing returning o.event_id into result.event_id;
        if found then
            result.duplicate := false;
            return next result;
            return;
        end if;
        -- Somebody else inserted the key and committed meanwhile: look again.
        if enqueue.idempotency_key is null then
            exit;
        end if;
    end loop;
    perform outlog.fail('id_conflict', format('message id %s is taken', enqueue.event_id), json_build_object('pointer', '/event_id'));
end $$;

create function outlog.message_with_key(org_id text, destination text, idempotency_key text) returns uuid
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
create function outlog.json_path(pointer text) returns text[] language sql immutable
begin atomic
    select coalesce(array_agg(replace(replace(part, '~1', '/'), '~0', '~') order by n), '{}')
      from regexp_split_to_table(substr(pointer, 2), '/') with ordinality p(part, n)
     where pointer <> '';
end;

create function outlog.condition_holds(condition json, payload json) returns boolean
language sql immutable
begin atomic
    select coalesce(bool_and((payload #> outlog.json_path(c.key))::jsonb is not distinct from c.value::jsonb), true)
      from json_each(condition) c;
end;

-- Routes: evaluated once a statement, in the event's own transaction, whichever door it came through.
create function outlog.route_events() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    if pg_relation_size('outlog.routes') = 0 then
        return null;                    -- not one page: without a query, as this follows every INSERT
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
       and (e.org_id is not null or r.is_audit or r.aggregate_type is not null    -- infrastructure: who names it
            or strpos(replace(r.pattern, E'\\%', ''), '%') = 0)
       and (r.org_id is null or r.org_id = e.org_id)
       and (r.aggregate_type is null or r.aggregate_type = e.aggregate_type)
       and (r.condition is null or outlog.condition_holds(r.condition, e.payload))
     order by e.event_id, r.destination, r.name
    on conflict do nothing;             -- the key may have been used by a message that was asked for
    return null;
end $$;
create trigger events_are_routed after insert on outlog.events
    referencing new table as appended for each statement execute function outlog.route_events();
alter table outlog.events enable always trigger events_are_routed;
