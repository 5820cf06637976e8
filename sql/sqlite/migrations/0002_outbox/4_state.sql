-- Messages as the cursors tell: the innermost side cursor that owns one, or the lane. A parked row
-- takes precedence over this.
create view outlog_plain_state as
select o.*, l.owner,
       case when o.seq > l.head or o.seq > i.head or i.head is null and o.seq > d.head then 'PENDING'
            when i.head is not null then iif(o.seq between i.claim_from and i.claim_to, 'CLAIMED', 'PUBLISHED')
            when d.head is not null then iif(o.seq between d.claim_from and d.claim_to, 'CLAIMED', 'PUBLISHED')
            when o.seq between l.claim_from and l.claim_to then 'CLAIMED' else 'PUBLISHED' end as plain_state,
       case when i.head is not null then i.claimed_at when d.head is not null then d.claimed_at
            else l.claimed_at end as claimed_at
  from outlog_outbox o
  join outlog_lanes l on l.lane = o.lane
  left join outlog_side_cursors d on d.lane = o.lane and d.destination = o.destination and d.org_key = ''
        and d.since < o.seq
  left join outlog_side_cursors i on i.lane = o.lane and i.destination = o.destination
        and i.org_key = ':' || coalesce(o.org_id, '') and i.since < o.seq;

-- When what a cursor has passed was published: by the batch of its side cursor, if it had one.
create view outlog_published as
select o.seq, coalesce(
       (select iif(b.from_seq <= o.seq, b.published_at, null) from outlog_batches b
         where b.destination = o.destination and b.org_key = ':' || coalesce(o.org_id, '') and b.to_seq >= o.seq
         order by b.to_seq limit 1),
       (select iif(b.from_seq <= o.seq, b.published_at, null) from outlog_batches b
         where b.destination = o.destination and b.org_key = '' and b.to_seq >= o.seq
         order by b.to_seq limit 1),
       (select b.published_at from outlog_batches b
         where b.destination = '' and b.org_key = '' and b.to_seq >= o.seq and b.from_seq <= o.seq
         order by b.to_seq limit 1)) as published_at
  from outlog_outbox o;

-- Every message with its current state, as if it were columns (S1). A lookup by id is a few index
-- probes; counts come from lanes and parked, never from here.
create view outlog_outbox_state as
select
       --= message shown: o.{name},
       --=| state: coalesce(p.state, o.plain_state) as state,
       --=| attempts: case when p.seq is not null then p.attempts when o.plain_state = 'PENDING' then 0
       --=+      else 1 end as attempts,
       --=| available_at: coalesce(p.available_at, o.available_at) as available_at,
       --=| updated_at: coalesce(p.updated_at, case o.plain_state when 'CLAIMED' then o.claimed_at
       --=+      when 'PUBLISHED' then (select b.published_at from outlog_published b where b.seq = o.seq) end,
       --=+      o.created_at) as updated_at,
       --=| claimed_at: case when p.seq is not null then p.claimed_at
       --=+      when o.plain_state = 'CLAIMED' then o.claimed_at end as claimed_at,
       --=| claimed_by: case when p.seq is not null then p.claimed_by
       --=+      when o.plain_state = 'CLAIMED' then o.owner end as claimed_by,
       --=| published_at: case when p.seq is not null then p.published_at when o.plain_state = 'PUBLISHED'
       --=+      then (select b.published_at from outlog_published b where b.seq = o.seq) end as published_at,
       --=| last_error: p.last_error,
       --=| error_details: (select json_object('outcome', a.outcome, 'status', a.status, 'error', a.error,
       --=+          'response', a.response, 'permanent', json(iif(a.permanent, 'true', 'false')))
       --=+    from outlog_attempts a where a.seq = o.seq and a.outcome <> 'ok'
       --=+     and a.attempt = (select max(attempt) from outlog_attempts where seq = o.seq)) as error_details,
       --=| result: (select json_object('status', a.status, 'response', a.response) from outlog_attempts a
       --=+   where a.seq = o.seq and a.outcome = 'ok'
       --=+     and a.attempt = (select max(attempt) from outlog_attempts where seq = o.seq)) as result,
       --=| idempotency_key: coalesce(o.idempotency_key, o.event_id) as idempotency_key,
       o.payload, o.payload_bytes, o.lane, o.seq, coalesce(p.held, 0) as held, coalesce(p.is_replay, 0) as is_replay
  from outlog_plain_state o
  left join outlog_parked p on p.seq = o.seq;

-- What is in an open claim and has no row of its own: of the lane, and of its side cursors.
-- `+`: by number; SQLite would make an index of all destinations for it.
create view outlog_open_claims as
select o.lane, o.seq, l.claimed_at
  from outlog_lanes l cross join outlog_outbox o on o.seq between l.claim_from and l.claim_to
 where not exists (select 1 from outlog_side_cursors s
                    where s.lane = o.lane and s.destination = o.destination and s.since < o.seq)
   and not exists (select 1 from outlog_parked p where p.seq = o.seq)
union all
select o.lane, o.seq, s.claimed_at
  from outlog_side_cursors s cross join outlog_outbox o on o.seq between s.claim_from and s.claim_to
   and +o.destination = s.destination
 where s.org_key in ('', ':' || coalesce(o.org_id, ''))
   and not exists (select 1 from outlog_side_cursors i
                    where i.lane = o.lane and i.destination = o.destination and i.org_key > s.org_key
                      and i.org_key = ':' || coalesce(o.org_id, '') and i.since < o.seq)
   and not exists (select 1 from outlog_parked p where p.seq = o.seq);

-- The names of the specification's text of April 2026, for tools that expect them.
create view outlog_open_outbox as
select event_id, event_type, coalesce(payload_bytes, payload) as payload,
       case state when 'CLAIMED' then 'DELIVERING' when 'PUBLISHED' then 'DELIVERED' else state end as status,
       created_at, partition_key, ordering_key, metadata, headers, attempts, last_error, available_at,
       claimed_at as locked_at, claimed_by as locked_by, published_at as delivered_at, updated_at
  from outlog_outbox_state;
