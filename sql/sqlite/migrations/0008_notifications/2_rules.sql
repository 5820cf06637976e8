-- An INSERT into this view, of one recipient of one rule for one event, stores the messages. The
-- trigger below inserts the recipients, or for a rule with a query a trigger that `apply` creates.
create view outlog_notifying as select 0 as event_id, '' as rule, '' as recipient where false;
-- Messages are written by an update of this row, which itself never changes; outlog_routing
-- explains why.
create table outlog_notified (
    is_only   integer primary key check (is_only = 1),
    event_id  integer,
    rule      text,
    recipient text);
insert into outlog_notified (is_only) values (1);
create trigger outlog_notified_stays before delete on outlog_notified
begin
    select raise(abort, 'read_only: DELETE of outlog_notified: without its row nobody is notified');
end;
create trigger outlog_notifying_goes_on instead of insert on outlog_notifying
begin
    insert into outlog_notified (is_only, event_id, rule, recipient)
    values (1, new.event_id, new.rule, new.recipient)
    on conflict (is_only) do update
       set event_id = excluded.event_id, rule = excluded.rule, recipient = excluded.recipient;
end;
create trigger outlog_notified_writes before update on outlog_notified
begin
    insert into outlog_outbox (destination, event_type, payload, content_type, org_id, idempotency_key, metadata,
           correlation_id, causation_id, aggregate_type, aggregate_id)
    select m.destination, m.event_type,
           json_object('recipient', m.recipient, 'channel', m.channel, 'template', m.template,
                       'template_version', m.version, 'category', m.category, 'rule', m.rule, 'event', json(m.event)),
           'application/vnd.outlog.notification+json', m.org_id, m.key,
           json_patch('{}', json_object('traceparent', m.traceparent, 'recipient', m.recipient, 'channel', m.channel,
                       'template', m.template, 'template_version', m.version, 'category', m.category, 'rule', m.rule)),
           m.correlation_id, m.id, m.aggregate_type, m.aggregate_id
      from (select n.*, case when length(cast(n.long_key as blob)) <= 512 then n.long_key  -- else by the event
                        else 'notification_dispatch:' || n.id || ':' || length(cast(n.recipient as blob)) || ':'
                             || n.recipient || ':' || n.channel || ':' || n.template
                        end as key
              from (select e.event_type, e.org_id, e.correlation_id, e.id, e.aggregate_type, e.aggregate_id,
                           json_extract(e.metadata, '$.traceparent') as traceparent,
                           r.name as rule, r.template, t.version, u.recipient, c.channel,
                           case c.channel when 'email' then r.email_to else r.in_app_to end as destination,
                           coalesce(r.category, substr(e.event_type, 1, instr(e.event_type || '.', '.') - 1))
                               as category,
                           json_object('event_id', e.event_id, 'id', e.id, 'org_id', e.org_id,
                               'event_type', e.event_type, 'event_version', e.event_version,
                               'aggregate_type', e.aggregate_type,
                               'aggregate_id', e.aggregate_id, 'aggregate_seq', e.aggregate_seq,
                               'occurred_at', e.occurred_at, 'actor_type', e.actor_type, 'actor_id', e.actor_id,
                               'correlation_id', e.correlation_id,
                               'payload', case when length(cast(e.payload as blob)) <= 200000
                                               then json(e.payload) end) as event,
                           'notification_dispatch:' || replace(replace(coalesce(e.org_id, ''), '%', '%25'), ':', '%3A')
                               || ':' || replace(replace(e.event_type, '%', '%25'), ':', '%3A')
                               || ':' || replace(replace(e.aggregate_type, '%', '%25'), ':', '%3A')
                               || ':' || replace(replace(e.aggregate_id, '%', '%25'), ':', '%3A')
                               || ':' || replace(replace(u.recipient, '%', '%25'), ':', '%3A') || ':' || c.channel
                               || ':' || replace(replace(r.template, '%', '%25'), ':', '%3A')
                               || case when r.once_event then ':' || e.aggregate_seq else '' end as long_key
                      from outlog_events e
                      join outlog_notification_rules r on r.name = new.rule
                      join (select case when length(cast(new.recipient as blob)) <= 320 then cast(new.recipient as text)
                                        else '' end as recipient) u
                      join (select 'email' as channel union all select 'in_app') c
                      left join outlog_templates t on t.name = r.template and t.is_current
                     where e.event_id = new.event_id
                       and (r.is_audit or e.event_type not glob 'outlog.*')
                       and (r.org_id is null or r.org_id = e.org_id)
                       and (r.aggregate_type is null or r.aggregate_type = e.aggregate_type)
                       and (r.condition is null or not exists (
                            select 1 from json_each(r.condition) j
                             where replace(json_type(e.payload, j.key), 'real', 'integer')
                                   is not replace(j.type, 'real', 'integer')
                                or json_extract(e.payload, j.key) is not j.value))) n
             where n.destination is not null) m
     where coalesce((select p.enabled from outlog_preferences p
                      where p.org_id = coalesce(m.org_id, '') and p.user_id = m.recipient and p.channel = m.channel
                        and p.category in (m.category, '*')
                      order by p.category = '*' limit 1), 1)
       and not exists (select 1 from outlog_outbox_keys o where o.org_key = coalesce(m.org_id, '')
                          and o.destination = m.destination and o.idempotency_key = m.key)
       and not exists (select 1 from outlog_outbox o where coalesce(o.org_id, '') = coalesce(m.org_id, '')
                          and o.destination = m.destination and o.idempotency_key = m.key)
     order by m.channel;                -- not what was sent before, or by a rule with the same template
    select raise(ignore);
end;

create trigger outlog_events_are_notified after insert on outlog_events
when exists (select 1 from outlog_notification_rules)
begin
    insert into outlog_notifying (event_id, rule, recipient)
    select new.event_id, r.name, case when w.type in ('text', 'integer') then w.value else '' end
      from outlog_notification_rules r,
           json_each(case
               when r.path is not null then
                    case json_type(new.payload, r.path)
                         when 'array' then json_extract(new.payload, r.path)
                         when 'text' then json_array(json_extract(new.payload, r.path))
                         when 'integer' then json_array(json_extract(new.payload, r.path))
                         else '[""]' end
               else coalesce((select v.value from outlog_settings s, json_each(s.value) v
                               where s.key = 'roles.' || r.role and v.key in (new.org_id, '*')
                               order by v.key = '*' and new.org_id is not '*' limit 1), '[""]') end) w
     where r.lookup is null
       and new.event_type glob r.pattern
     order by r.name;
end;
