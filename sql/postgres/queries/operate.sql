-- Listing messages, where PostgreSQL needs other SQL. A lane is read by its seq, from the newest
-- down; `bounds` is a JSON array of [lane, lowest, below]. OFFSET 0 keeps the planner from turning
-- a few index probes into a scan of the outbox.

-- part: is_published(m, l)
-- What is at or below the head and not parked, as its cursor tells: that of the innermost side
-- cursor that owns it, or the lane's (rule 33).
       and coalesce((select p.state from outlog.parked p where p.lane = m.lane and p.seq = m.seq),
                    case when l.gaps @> m.seq then 'PENDING' end,
                    (select case when m.seq > s.head or s.claim @> m.seq then 'PENDING' else 'PUBLISHED' end
                       from outlog.side_cursors s where s.lane = m.lane and s.destination = m.destination
                        and s.org_key in ('', ':' || coalesce(m.org_id, '')) and s.since < m.seq
                      order by s.org_key desc limit 1),
                    case when l.claim @> m.seq then 'PENDING' else 'PUBLISHED' end) = 'PUBLISHED'

-- part: left_to(n, s, l)
-- What a side cursor owns and has not come to.
       n.lane = s.lane and n.seq > s.head and n.seq <= l.head and n.destination = s.destination
       and s.org_key in ('', ':' || coalesce(n.org_id, '')) and not l.gaps @> n.seq
       and not exists (select from outlog.side_cursors i where i.lane = n.lane and i.destination = n.destination
              and i.org_key > s.org_key and i.org_key = ':' || coalesce(n.org_id, '') and i.since < n.seq)
       and not exists (select from outlog.parked p where p.lane = n.lane and p.seq = n.seq)

-- name: message_locations(ids)
select o.event_id, o.lane, o.seq
  from json_array_elements_text(:ids) i
 cross join lateral (select event_id, lane, seq from outlog.outbox where event_id = i::uuid offset 0) o

-- name: message_rows(places, payload?)
-- The settings of the destination and of the type come along where they decide on max_attempts.
-- Messages by [lane, seq], in the order asked for.
select
       --= message shown: v.{name},
       v.lane, v.seq, v.held, v.is_replay,
       o.at_most_once, exists (select from outlog.parked p where p.lane = v.lane and p.seq = v.seq),
       (select d.settings::text from outlog.destinations d where d.name = v.destination and v.max_attempts is null),
       (select s.value::text from outlog.settings s where s.key = 'types.' || v.event_type and v.max_attempts is null)
     , v.payload, v.payload_bytes   --? payload
  from json_array_elements(:places) with ordinality p(place, n)
 cross join lateral (select * from outlog.outbox_state
                      where lane = (p.place ->> 0)::smallint and seq = (p.place ->> 1)::bigint offset 0) v
 cross join lateral (select at_most_once from outlog.outbox where lane = v.lane and seq = v.seq offset 0) o
 order by p.n

-- name: messages_parked(bounds, state, limit literal, destination?, retrying?, event_type?, since?, until?)
-- DEAD and retrying messages all have a parked row. Here and below, lanes are merged by time, but
-- each lane is read downwards by its seq, also where clocks differ: a page ends at a seq, and no
-- message above it is missed.
select top.lane, top.seq
  from json_array_elements(:bounds) b
 cross join lateral (
    select p.lane, p.seq, o.created_at from outlog.parked p
     cross join lateral (select * from outlog.outbox where lane = p.lane and seq = p.seq offset 0) o
     where p.state = :state and p.lane = (b ->> 0)::smallint
       and p.seq >= (b ->> 1)::bigint and p.seq < (b ->> 2)::bigint
       and p.attempts > 0               --? retrying
       --+ asked_for(o, p)
     order by p.seq desc limit :limit) top
 order by min(top.created_at) over (partition by top.lane order by top.seq desc) desc, top.lane, top.seq desc
 limit :limit

-- name: messages_pending(bounds, limit literal, destination?, event_type?, since?, until?)
-- Above the head or in a gap, and parked ones.
select top.lane, top.seq
  from json_array_elements(:bounds) b
  join outlog.lanes l on l.lane = (b ->> 0)::smallint
 cross join lateral (
    select o.lane, o.seq, o.created_at from (
        (select n.* from outlog.outbox n
          where n.lane = l.lane and n.seq > l.head and n.seq >= (b ->> 1)::bigint and n.seq < (b ->> 2)::bigint
            and not exists (select from outlog.parked p where p.lane = n.lane and p.seq = n.seq)
            --+ asked_for(n, n)
          order by n.seq desc limit :limit)
        union all
        (select g.* from unnest(l.gaps) r
          cross join lateral (select * from outlog.outbox
                where lane = l.lane and seq >= lower(r) and seq < upper(r) offset 0) g
          where g.seq >= (b ->> 1)::bigint and g.seq < (b ->> 2)::bigint
            and not exists (select from outlog.parked p where p.lane = g.lane and p.seq = g.seq)
            --+ asked_for(g, g)
          order by g.seq desc limit :limit)
        union all
        (select n.* from outlog.side_cursors s
          cross join lateral (select * from outlog.outbox
                where lane = s.lane and seq > s.head and seq <= l.head
                  and seq >= (b ->> 1)::bigint and seq < (b ->> 2)::bigint order by seq desc offset 0) n
          where s.lane = l.lane and
            --+ left_to(n, s, l)
            --+ asked_for(n, n)
          order by n.seq desc limit :limit)
        union all
        (select k.* from outlog.parked p
          cross join lateral (select * from outlog.outbox where lane = p.lane and seq = p.seq offset 0) k
          where p.state = 'PENDING' and p.lane = l.lane and p.seq >= (b ->> 1)::bigint and p.seq < (b ->> 2)::bigint
            --+ asked_for(k, k)
          order by p.seq desc limit :limit)) o
     order by o.seq desc limit :limit) top
 order by min(top.created_at) over (partition by top.lane order by top.seq desc) desc, top.lane, top.seq desc
 limit :limit

-- name: messages_claimed(bounds, limit literal, destination?, event_type?, since?, until?)
-- In the open batch, and parked ones.
select top.lane, top.seq
  from json_array_elements(:bounds) b
  join outlog.lanes l on l.lane = (b ->> 0)::smallint
 cross join lateral (
    select o.lane, o.seq, o.created_at from (
        (select g.* from outlog.open_claims c
           join outlog.outbox g on g.lane = c.lane and g.seq = c.seq where c.lane = l.lane)
        union all
        (select k.* from outlog.parked p
          cross join lateral (select * from outlog.outbox where lane = p.lane and seq = p.seq offset 0) k
          where p.state = 'CLAIMED' and p.lane = l.lane)) o
     where o.seq >= (b ->> 1)::bigint and o.seq < (b ->> 2)::bigint
       --+ asked_for(o, o)
     order by o.seq desc limit :limit) top
 order by min(top.created_at) over (partition by top.lane order by top.seq desc) desc, top.lane, top.seq desc
 limit :limit

-- name: messages_published(bounds, limit literal, destination?, event_type?, since?, until?)
-- Below the head, but for gaps, the open batch and what is parked otherwise.
select top.lane, top.seq
  from json_array_elements(:bounds) b
  join outlog.lanes l on l.lane = (b ->> 0)::smallint
 cross join lateral (
    select o.lane, o.seq, o.created_at from outlog.outbox o
     where o.lane = l.lane and o.seq <= l.head and o.seq >= (b ->> 1)::bigint and o.seq < (b ->> 2)::bigint
       --+ is_published(o, l)
       --+ asked_for(o, o)
     order by o.seq desc limit :limit) top
 order by min(top.created_at) over (partition by top.lane order by top.seq desc) desc, top.lane, top.seq desc
 limit :limit

-- name: messages_all(bounds, limit literal, destination?, event_type?, since?, until?)
select top.lane, top.seq
  from json_array_elements(:bounds) b
 cross join lateral (
    select o.lane, o.seq, o.created_at from outlog.outbox o
     where o.lane = (b ->> 0)::smallint and o.seq >= (b ->> 1)::bigint and o.seq < (b ->> 2)::bigint
       --+ asked_for(o, o)
     order by o.seq desc limit :limit) top
 order by min(top.created_at) over (partition by top.lane order by top.seq desc) desc, top.lane, top.seq desc
 limit :limit

-- name: published_after(lane, after, upto, limit literal, destination?, event_type?, since?, until?)
-- Published messages in the order they were made.
select o.event_id, o.seq
  from outlog.lanes l
 cross join lateral (
    select * from outlog.outbox m
     where m.lane = l.lane and m.seq > :after and m.seq <= :upto and m.seq <= l.head
       --+ is_published(m, l)
       --+ asked_for(m, m)
     order by m.seq limit :limit) o
 where l.lane = :lane
 order by o.seq

-- name: pending_after(lane, after, upto, limit literal, destination?, event_type?, since?, until?, retrying?)
-- PENDING messages in the order of their seq: parked ones, those in a gap, those above the head.
select o.event_id, o.seq
  from outlog.lanes l
 cross join lateral (
    (select k.event_id, k.seq from outlog.parked p
      cross join lateral (select * from outlog.outbox where lane = p.lane and seq = p.seq offset 0) k
      where p.state = 'PENDING' and p.lane = l.lane and p.seq > :after and p.seq <= :upto
        and p.attempts > 0               --? retrying
        --+ asked_for(k, k)
      order by p.seq limit :limit)
    union all
    (select g.event_id, g.seq from unnest(l.gaps) r
      cross join lateral (select * from outlog.outbox
            where lane = l.lane and seq >= lower(r) and seq < upper(r) offset 0) g
      where g.seq > :after and g.seq <= :upto
        and not exists (select from outlog.parked p where p.lane = g.lane and p.seq = g.seq)
        and false                        --? retrying
        --+ asked_for(g, g)
      order by g.seq limit :limit)
    union all
    (select n.event_id, n.seq from outlog.side_cursors s
      cross join lateral (select * from outlog.outbox
            where lane = s.lane and seq > s.head and seq <= l.head and seq > :after and seq <= :upto
            order by seq offset 0) n
      where s.lane = l.lane and
        --+ left_to(n, s, l)
        and false                        --? retrying
        --+ asked_for(n, n)
      order by n.seq limit :limit)
    union all
    (select n.event_id, n.seq from outlog.outbox n
      where n.lane = l.lane and n.seq > l.head and n.seq > :after and n.seq <= :upto
        and not exists (select from outlog.parked p where p.lane = n.lane and p.seq = n.seq)
        and false                        --? retrying
        --+ asked_for(n, n)
      order by n.seq limit :limit)) o
 where l.lane = :lane
 order by o.seq limit :limit

-- name: count_parked(limit literal)
-- Parked messages by destination and state, with the oldest of each. At most `limit` of a state are
-- counted; the last column says whether there are more.
select g.destination, g.state, g.number, g.retrying,
       (select min(o.created_at) from unnest(g.lanes, g.oldest) w(lane, seq)
         join outlog.outbox o on o.lane = w.lane and o.seq = w.seq),
       g.held, (sum(g.number) over (partition by g.state) >= :limit)::integer
  from (select destination, state, sum(number)::bigint as number, sum(retrying)::bigint as retrying,
               sum(held)::bigint as held, array_agg(lane) as lanes, array_agg(oldest) as oldest
          from (select p.lane, p.destination, p.state, count(*) as number,
                       count(*) filter (where p.attempts > 0) as retrying,
                       count(*) filter (where p.held) as held, min(p.seq) as oldest
                  from unnest(array['PENDING', 'CLAIMED', 'DEAD']) s(state)
                 cross join lateral (select * from outlog.parked where parked.state = s.state
                                      order by parked.lane, parked.seq limit :limit) p
                 group by p.lane, p.destination, p.state) s
         group by destination, state) g
 order by 1, 2

-- name: count_lanes(sample literal)
-- What no relay has come to yet: how many numbers there are above the head, which destinations the
-- first and the last of them go to, and how many are in open claims.
select l.lane, l.ahead, d.destination, d.number, d.oldest,
       case when exists (select from outlog.side_cursors s where s.lane = l.lane)
            then (select count(*) from outlog.open_claims c where c.lane = l.lane)
            else (select coalesce(sum(upper(r) - lower(r)), 0)::bigint from unnest(l.claim) r) end
  from (select *, coalesce((select max(seq) from outlog.outbox o where o.lane = t.lane), 0) - t.head as ahead
          from outlog.lanes t) l
  left join lateral (
       select s.destination, count(*) as number, min(s.created_at) as oldest
         from ((select o.destination, o.created_at from outlog.outbox o
                 where o.lane = l.lane and o.seq > l.head
                   and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq)
                 order by o.seq limit :sample)
               union all
               (select o.destination, o.created_at from outlog.outbox o
                 where o.lane = l.lane and o.seq > l.head and l.ahead > 2 * :sample
                   and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq)
                 order by o.seq desc limit :sample)) s
        group by s.destination) d on true
 order by 1, 3

-- name: waiting_list(sample literal, parked_max literal)
-- What is due and not sent, by lane, destination and reason: how many, and since when. The reasons
-- are those of outbox/waiting.c. Reads a bounded part of the backlog and of the parked messages.
with due as (
    select p.lane, p.destination, p.available_at as since,
           case when p.ordering_key is null then null
                when exists (select from outlog.parked e where e.lane = p.lane and e.destination = p.destination
                                and e.ordering_key = p.ordering_key and e.seq < p.seq and e.held) then 'held_key'
                when exists (select from outlog.parked e where e.lane = p.lane and e.destination = p.destination
                                and e.ordering_key = p.ordering_key and e.seq < p.seq
                                and e.state in ('PENDING', 'CLAIMED')) then 'behind_key' end as by_key
      from (select * from outlog.parked where state = 'PENDING' and available_at <= now() limit :parked_max) p
    union all
    select l.lane, s.destination, s.since, null
      from outlog.lanes l cross join lateral (
           select o.destination, coalesce(o.available_at, o.created_at) as since from outlog.outbox o
            where o.lane = l.lane and o.seq > l.head
              and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq)
            order by o.seq limit :sample) s
     where s.since <= now()
    union all
    select l.lane, o.destination, coalesce(o.available_at, o.created_at), null
      from outlog.side_cursors c join outlog.lanes l on l.lane = c.lane      -- what was left to a side cursor
      join outlog.outbox o on o.lane = c.lane and o.seq > c.head and o.seq <= least(l.head, c.head + :sample)
           and o.destination = c.destination and c.org_key = ''
     where not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq)
       and coalesce(o.available_at, o.created_at) <= now()),
states as (
    select b.destination, max(b.state) as state, max(b.detail) as detail
      from outlog.breakers b join outlog.relays r on r.run = b.run group by b.destination),
reasons as (
    select d.lane, d.destination, d.since,
           case when t.name is null then 'unknown_destination'
                when t.paused then 'paused'
                when l.owner is null or l.lease_until < now() then 'no_relay'
                when l.trouble is not null then 'lane_stuck'
                when s.state = 'unusable' then 'unusable_destination'
                when s.state = 'open' then 'breaker_open'
                else coalesce(d.by_key, 'queued') end as reason,
           case when l.trouble is not null then l.trouble when s.state = 'unusable' then s.detail end as detail
      from due d join outlog.lanes l on l.lane = d.lane
      left join outlog.destinations t on t.name = d.destination
      left join states s on s.destination = d.destination)
select lane, destination, reason, count(*), min(since), max(detail) from reasons
 group by lane, destination, reason order by lane, destination, reason

-- name: count_sides(sample literal)
-- What waits for side cursors, from the first messages after each: the destination, how many of
-- them are its own, the oldest, how far they reach, and how far the lane is.
select s.destination, w.number, w.oldest, w.last - s.head, l.head - s.head
  from (select * from outlog.side_cursors order by opened_at limit 500) s join outlog.lanes l on l.lane = s.lane
 cross join lateral (
       select max(n.seq) as last, count(*) filter (where n.is_own) as number,
              min(n.created_at) filter (where n.is_own) as oldest
         from (select n.seq, n.created_at,
       --+ left_to(n, s, l)
                      as is_own
                 from outlog.outbox n where n.lane = s.lane and n.seq > s.head and n.seq <= l.head
                order by n.seq limit :sample) n) w
 where w.last is not null

-- name: last_errors()
-- The newest trouble of each destination.
select d.name, t.last_error from outlog.destinations d
 cross join lateral (select p.last_error from outlog.parked p
                      where p.destination = d.name and p.last_error is not null
                        and p.state in ('PENDING', 'CLAIMED', 'DEAD')
                      order by p.updated_at desc limit 1) t
 order by 1
