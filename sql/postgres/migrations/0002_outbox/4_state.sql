-- Every message with its current state, as if it were columns (S1). A lookup by id is a few index
-- probes; counts come from lanes and parked, never from here.
create view outlog.outbox_state as
select
       --= message shown: o.{name},
       --=| state: s.state,
       --=| attempts: case when p.seq is not null then p.attempts when s.state = 'PENDING' then 0
       --=+      else 1 end as attempts,
       --=| available_at: coalesce(p.available_at, o.available_at) as available_at,
       --=| updated_at: coalesce(p.updated_at, b.published_at, case when s.state = 'CLAIMED'
       --=+      then coalesce(c.claimed_at, l.claimed_at) end, o.created_at) as updated_at,
       --=| claimed_at: case when s.state = 'CLAIMED'
       --=+      then coalesce(p.claimed_at, c.claimed_at, l.claimed_at) end as claimed_at,
       --=| claimed_by: case when s.state = 'CLAIMED' then coalesce(p.claimed_by, l.owner) end as claimed_by,
       --=| published_at: case when s.state = 'PUBLISHED'
       --=+      then coalesce(p.published_at, b.published_at) end as published_at,
       --=| last_error: p.last_error,
       --=| error_details: case when a.outcome <> 'ok' then json_build_object('outcome', a.outcome, 'status', a.status,
       --=+      'error', a.error, 'response', a.response, 'permanent', a.permanent) end as error_details,
       --=| result: case when a.outcome = 'ok'
       --=+      then json_build_object('status', a.status, 'response', a.response) end as result,
       --=| idempotency_key: coalesce(o.idempotency_key, o.event_id::text) as idempotency_key,
       o.payload, o.payload_bytes, o.lane, o.seq, coalesce(p.held, false) as held,
       coalesce(p.is_replay, false) as is_replay
  from outlog.outbox o
  join outlog.lanes l on l.lane = o.lane
  left join outlog.parked p on p.lane = o.lane and p.seq = o.seq
  left join lateral (select d.head, d.claim, d.claimed_at from outlog.side_cursors d      -- the innermost owns it
        where d.lane = o.lane and d.destination = o.destination
          and d.org_key in ('', ':' || coalesce(o.org_id, '')) and d.since < o.seq
        order by d.org_key desc limit 1) c on true
 cross join lateral (select case
       when p.seq is not null then p.state
       when o.seq > l.head or l.gaps @> o.seq or o.seq > c.head then 'PENDING'
       when coalesce(c.claim, l.claim) @> o.seq then 'CLAIMED'
       else 'PUBLISHED' end) s(state)
  left join lateral (select coalesce(
        (select r.published_at from (select * from outlog.batches i        -- of its side cursor, if it had one
              where i.lane = o.lane and i.destination = o.destination and i.org_key = ':' || coalesce(o.org_id, '')
                and i.to_seq >= o.seq order by i.to_seq limit 1) r where r.from_seq <= o.seq),
        (select r.published_at from (select * from outlog.batches i
              where i.lane = o.lane and i.destination = o.destination and i.org_key = ''
                and i.to_seq >= o.seq order by i.to_seq limit 1) r where r.from_seq <= o.seq),
        (select r.published_at from outlog.batches r       -- of nested ranges the inner one
              where r.lane = o.lane and r.destination = '' and r.org_key = ''
                and r.to_seq >= o.seq and r.from_seq <= o.seq
              order by r.to_seq limit 1)) as published_at
        where s.state = 'PUBLISHED' and p.seq is null) b on true
  left join lateral (select * from outlog.attempts t where t.lane = o.lane and t.seq = o.seq
        order by t.attempt desc limit 1) a on true;

-- What is in an open claim and has no row of its own: of lanes, and of their side cursors.
create view outlog.open_claims as
select o.lane, o.seq, l.claimed_at
  from outlog.lanes l cross join lateral unnest(l.claim) r
 cross join lateral (select * from outlog.outbox where lane = l.lane and seq >= lower(r) and seq < upper(r) offset 0) o
 where not exists (select from outlog.side_cursors s
                    where s.lane = o.lane and s.destination = o.destination and s.since < o.seq)
   and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq)
union all
select o.lane, o.seq, s.claimed_at
  from outlog.side_cursors s cross join lateral unnest(s.claim) r
 cross join lateral (select * from outlog.outbox where lane = s.lane and seq >= lower(r) and seq < upper(r)
                        and destination = s.destination offset 0) o
 where s.org_key in ('', ':' || coalesce(o.org_id, ''))
   and not exists (select from outlog.side_cursors i
                    where i.lane = o.lane and i.destination = o.destination and i.org_key > s.org_key
                      and i.org_key = ':' || coalesce(o.org_id, '') and i.since < o.seq)
   and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq);

-- The names of the specification's text of April 2026, for tools that expect them.
create view outlog.open_outbox as
select event_id, event_type, coalesce(payload_bytes, convert_to(payload, 'UTF8')) as payload,
       case state when 'CLAIMED' then 'DELIVERING' when 'PUBLISHED' then 'DELIVERED' else state end as status,
       created_at, partition_key, ordering_key, metadata, headers, attempts, last_error, available_at,
       claimed_at as locked_at, claimed_by as locked_by, published_at as delivered_at, updated_at
  from outlog.outbox_state;

do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_append') then
        grant insert (
            --=, message given: {name}
            ) on outlog.outbox to outlog_append;
        grant execute on function outlog.message_with_key, outlog.uuid7 to outlog_append;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        -- It appends the events of effects and nothing else.
        grant execute on function outlog.append_one, outlog.append_batch, outlog.lock_head, outlog.after,
            outlog.uuid7, outlog.message_with_key, outlog.purge_idempotency to outlog_relay;
        grant select on outlog.heads, outlog.outbox, outlog.outbox_state, outlog.open_outbox, outlog.outbox_keys,
            outlog.lanes, outlog.side_cursors, outlog.open_claims, outlog.lane_plan, outlog.parked,
            outlog.batches, outlog.attempts, outlog.relays,
            outlog.effects, outlog.destinations, outlog.routes, outlog.settings, outlog.breakers,
            outlog.successes, outlog.consumers, outlog.owners to outlog_relay;
        grant insert, update on outlog.parked, outlog.lanes, outlog.relays, outlog.effects to outlog_relay;
        grant insert on outlog.batches, outlog.attempts, outlog.outbox to outlog_relay;
        grant delete on outlog.relays to outlog_relay;
        grant insert, update, delete on outlog.side_cursors to outlog_relay;
        grant insert, update, delete on outlog.breakers, outlog.successes, outlog.owners to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant execute on all functions in schema outlog to outlog_admin;
        revoke execute on function outlog.lane_sequence from outlog_admin;
        grant select on all tables in schema outlog to outlog_admin;
        grant insert, update on outlog.parked, outlog.lanes, outlog.effects to outlog_admin;
        grant insert on outlog.outbox to outlog_admin;
        grant insert, update, delete on outlog.destinations, outlog.routes, outlog.settings, outlog.relays,
            outlog.owners to outlog_admin;
    end if;
end $$;
revoke all on all functions in schema outlog from public;
