-- Rules are evaluated once per statement in the event's own transaction, whichever interface
-- appended it, as routes are (ADR 9).

-- A part of a key, with the separator escaped.
create function outlog.key_part(part text) returns text language sql immutable
    return replace(replace(coalesce(part, ''), '%', '%25'), ':', '%3A');

-- Runs a rule's query, with the event as $1. The query reads the user's tables, so `public` is in
-- its search_path. It runs with the rights of outlog's owner, who evaluates rules; therefore only a
-- role with those rights may store one (guard_lookup).
create function outlog.look_up(query text, event json) returns setof text language plpgsql stable
    set search_path = pg_catalog, public, pg_temp as $$
begin
    -- format() and not a cast: whoever owns the type of the column may have made one
    return query execute 'select pg_catalog.format(''%s'', l.recipient) from (' || query || ') l (recipient)'
                   using event;
end $$;

create function outlog.guard_lookup() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
declare
    owner oid := (select c.relowner from pg_class c where c.oid = tg_relid);
begin
    if not pg_has_role(current_user, owner, 'usage')
       and not exists (select from outlog.notification_rules r
                        where r.name = new.name and r.lookup = new.lookup) then
        perform outlog.fail('store_error', format('rule %s finds its users by a query, which runs with the rights '
            'of %I; apply it as that role, or name the users by path or role', new.name, pg_get_userbyid(owner)));
    end if;
    return new;
end $$;
create trigger notification_rules_let_in_queries before insert or update on outlog.notification_rules
    for each row when (new.lookup is not null) execute function outlog.guard_lookup();
alter table outlog.notification_rules enable always trigger notification_rules_let_in_queries;

-- The recipients of a rule. Where one is missing the result is '': its message is stored and
-- becomes DEAD with an error that explains it. An empty list means no recipients, and no message.
create function outlog.recipients(rule outlog.notification_rules, event json) returns setof text
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    who json;
begin
    if rule.lookup is not null then
        return query select coalesce(l, '') from outlog.look_up(rule.lookup, event) l;
        return;
    end if;
    if rule.path is not null then
        who := event -> 'payload' #> outlog.json_path(rule.path);
    else
        select coalesce(s.value -> (event ->> 'org_id'), s.value -> '*') into who
          from outlog.settings s where s.key = 'roles.' || rule.role;
    end if;
    if json_typeof(who) = 'array' then
        return query select case when json_typeof(w) = 'string' or w::text ~ '^-?[0-9]+$' then w #>> '{}'
                                 else '' end
                       from json_array_elements(who) w;
    else
        return next case when json_typeof(who) = 'string' or who::text ~ '^-?[0-9]+$' then who #>> '{}' else '' end;
    end if;
end $$;

create function outlog.notify_of_events() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    if pg_relation_size('outlog.notification_rules') = 0 then
        return null;                    -- no query, as in route_events
    end if;
    insert into outlog.outbox (destination, event_type, payload, content_type, org_id, idempotency_key, metadata,
            correlation_id, causation_id, aggregate_type, aggregate_id)
    select m.destination, m.event_type,
           json_build_object('recipient', m.recipient, 'channel', m.channel, 'template', m.template,
                             'template_version', m.version, 'category', m.category, 'rule', m.rule,
                             'event', m.event)::text,
           'application/vnd.outlog.notification+json', m.org_id, m.key,
           json_strip_nulls(json_build_object('traceparent', m.traceparent, 'recipient', m.recipient,
                             'channel', m.channel, 'template', m.template, 'template_version', m.version,
                             'category', m.category, 'rule', m.rule)),
           m.correlation_id, m.id, m.aggregate_type, m.aggregate_id
      from (select e.event_id, e.event_type, e.org_id, e.correlation_id, e.id, e.aggregate_type, e.aggregate_id,
                   e.event, e.traceparent, r.name as rule, r.template, t.version, u.recipient, c.channel,
                   c.destination, g.category,
                   -- A key that is too long is made from the event's id, in at most 491 bytes. It
                   -- has no escapes, so the recipient's length precedes the recipient.
                   case when octet_length(k.key) <= 512 then k.key
                        else 'notification_dispatch:' || e.id || ':' || octet_length(u.recipient) || ':'
                             || u.recipient || ':' || c.channel || ':' || r.template
                   end as key
              from (select a.*, a.metadata ->> 'traceparent' as traceparent,
                           json_build_object('event_id', a.event_id, 'id', a.id, 'org_id', a.org_id,
                               'event_type', a.event_type, 'event_version', a.event_version,
                               'aggregate_type', a.aggregate_type, 'aggregate_id', a.aggregate_id,
                               'aggregate_seq', a.aggregate_seq, 'occurred_at', outlog.rfc3339(a.occurred_at),
                               'actor_type', a.actor_type, 'actor_id', a.actor_id, 'correlation_id', a.correlation_id,
                               'payload', case when octet_length(a.payload::text) <= 200000
                                               then a.payload::json end) as event
                      from appended a) e
              join outlog.notification_rules r on e.event_type like r.pattern
               and (r.is_audit or e.event_type not like 'outlog.%')
               and (r.org_id is null or r.org_id = e.org_id)
               and (r.aggregate_type is null or r.aggregate_type = e.aggregate_type)
               and (r.condition is null or outlog.condition_holds(r.condition, e.payload))
              left join outlog.templates t on t.name = r.template and t.is_current
             cross join lateral (select case when octet_length(w) <= 320 then w else '' end as recipient
                                   from outlog.recipients(r, e.event) w) u
             cross join lateral (values ('email', r.email_to), ('in_app', r.in_app_to)) c (channel, destination)
             cross join lateral (select coalesce(r.category, split_part(e.event_type, '.', 1)) as category) g
             cross join lateral (select 'notification_dispatch:' || outlog.key_part(e.org_id)
                   || ':' || outlog.key_part(e.event_type)
                   || ':' || outlog.key_part(e.aggregate_type) || ':' || outlog.key_part(e.aggregate_id)
                   || ':' || outlog.key_part(u.recipient) || ':' || c.channel || ':' || outlog.key_part(r.template)
                   || case when r.once_event then ':' || e.aggregate_seq else '' end as key) k
             where c.destination is not null) m
     where coalesce((select p.enabled from outlog.preferences p
                      where p.org_id = coalesce(m.org_id, '') and p.user_id = m.recipient and p.channel = m.channel
                        and p.category in (m.category, '*')
                      order by p.category = '*' limit 1), true)
       and not exists (select from outlog.outbox_keys o where o.org_key = coalesce(m.org_id, '')
                          and o.destination = m.destination and o.idempotency_key = m.key)
     order by m.event_id, m.rule, m.channel
    on conflict do nothing;             -- sent before, or by another rule with the same template
    return null;
end $$;
create trigger events_are_notified after insert on outlog.events
    referencing new table as appended for each statement execute function outlog.notify_of_events();
alter table outlog.events enable always trigger events_are_notified;

select outlog.confine('outlog.notices');
select outlog.confine('outlog.preferences');
select outlog.confine('outlog.contacts');
revoke all on function outlog.key_part, outlog.look_up, outlog.guard_lookup, outlog.recipients,
    outlog.notify_of_events from public;
do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant select on outlog.templates, outlog.notification_rules, outlog.contacts, outlog.suppressions
            to outlog_relay;
        grant select, insert, delete on outlog.notices to outlog_relay;
        grant insert on outlog.suppressions to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant select, insert, update, delete on outlog.templates, outlog.notification_rules, outlog.notices,
            outlog.preferences, outlog.contacts, outlog.suppressions to outlog_admin;
        grant execute on function outlog.key_part, outlog.look_up to outlog_admin;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_read') then
        grant select on outlog.templates, outlog.notification_rules, outlog.notices, outlog.preferences,
            outlog.contacts to outlog_read;
    end if;
end $$;
