-- Messages that routes make of events, in the event's own transaction, whichever interface appended
-- it. What a trigger writes follows the OR clause of the statement that fired it: under OR IGNORE
-- and OR FAIL an event would stay although its message is refused. A trigger fired by DO UPDATE
-- does not follow it. So each message is written by an update of this row, which itself never
-- changes. It also makes events without a route cheaper: only for the others does SQLite open the
-- outbox.
create table outlog_routing (
    is_only         integer primary key check (is_only = 1),
    event_id        integer,
    destination     text,
    idempotency_key text,
    ordering_key    text);
insert into outlog_routing (is_only) values (1);
create trigger outlog_routing_stays before delete on outlog_routing
begin
    select raise(abort, 'read_only: DELETE of outlog_routing: without its row no event is routed');
end;
create trigger outlog_routing_writes before update on outlog_routing
begin
    insert into outlog_outbox (destination, event_type, payload, org_id, idempotency_key, ordering_key,
           metadata, correlation_id, causation_id, aggregate_type, aggregate_id)
    select new.destination, e.event_type, e.payload, e.org_id, new.idempotency_key, new.ordering_key,
           case when json_extract(e.metadata, '$.traceparent') is not null
                then json_object('traceparent', json_extract(e.metadata, '$.traceparent')) end,
           e.correlation_id, e.id, e.aggregate_type, e.aggregate_id
      from outlog_events e
     where e.event_id = new.event_id    -- two routes to one destination are one message
       and not exists (select 1 from outlog_outbox o where coalesce(o.org_id, '') = coalesce(e.org_id, '')
                          and o.destination = new.destination and o.idempotency_key = new.idempotency_key);
    select raise(ignore);
end;
create trigger outlog_events_are_routed after insert on outlog_events
when exists (select 1 from outlog_routes)
begin
    insert into outlog_routing (is_only, event_id, destination, idempotency_key, ordering_key)
    select 1, new.event_id, r.destination, new.id || ':' || r.destination,
           coalesce(r.ordering_key, coalesce(new.org_id, '') || '/' || new.aggregate_type || '/' || new.aggregate_id)
      from outlog_routes r
     where new.event_type glob r.pattern
       and (r.is_audit or new.event_type not glob 'outlog.*')
       and (new.org_id is not null or r.is_audit or r.aggregate_type is not null  -- infrastructure: only by name
            or instr(replace(r.pattern, '[*]', ''), '*') = 0)
       and (r.org_id is null or r.org_id = new.org_id)
       and (r.aggregate_type is null or r.aggregate_type = new.aggregate_type)
       and (r.condition is null or not exists (
            select 1 from json_each(r.condition) c
             where replace(json_type(new.payload, c.key), 'real', 'integer')
                   is not replace(c.type, 'real', 'integer')
                or json_extract(new.payload, c.key) is not c.value))
     order by r.name
    on conflict (is_only) do update
       set event_id = excluded.event_id, destination = excluded.destination,
           idempotency_key = excluded.idempotency_key, ordering_key = excluded.ordering_key;
end;
