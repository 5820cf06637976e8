-- Looking at messages on SQLite: one lane, whose numbers are the outbox's own.

-- part: left_to(o, s)
-- What a side cursor owns and has not come to.
       o.seq > s.head and o.seq <= (select head from outlog_lanes where lane = 0) and o.destination = s.destination
       and s.org_key in ('', ':' || coalesce(o.org_id, ''))
       and not exists (select 1 from outlog_side_cursors i where i.lane = 0 and i.destination = o.destination
              and i.org_key > s.org_key and i.org_key = ':' || coalesce(o.org_id, '') and i.since < o.seq)
       and not exists (select 1 from outlog_parked p where p.seq = o.seq)

-- name: message_locations(ids)
select o.event_id, o.lane, o.seq from json_each(:ids) i cross join outlog_outbox o on o.event_id = i.value

-- name: message_rows(places, payload?)
-- The settings of the destination and of the type come along where they decide on max_attempts.
select
       --= message shown: v.{name},
       v.lane, v.seq, v.held, v.is_replay,
       (select at_most_once from outlog_outbox o where o.seq = v.seq),
       exists (select 1 from outlog_parked p where p.seq = v.seq),
       (select d.settings from outlog_destinations d where d.name = v.destination and v.max_attempts is null),
       (select s.value from outlog_settings s where s.key = 'types.' || v.event_type and v.max_attempts is null)
     , v.payload, v.payload_bytes   --? payload
  from json_each(:places) p cross join outlog_outbox_state v on v.seq = p.value ->> 1
 order by p.key

-- name: messages_parked(bounds, state, limit literal, destination?, retrying?, event_type?, since?, until?)
select p.lane, p.seq from outlog_parked p cross join outlog_outbox o on o.seq = p.seq
 where p.state = :state
   and p.seq >= (select value ->> 1 from json_each(:bounds)) and p.seq < (select value ->> 2 from json_each(:bounds))
   and p.attempts > 0               --? retrying
   --+ asked_for(o, p)
 order by p.seq desc limit :limit

-- name: messages_pending(bounds, limit literal, destination?, event_type?, since?, until?)
select w.lane, w.seq from (
    select * from (
        select o.lane, o.seq from outlog_outbox o
         where o.seq > (select head from outlog_lanes where lane = 0)
           and o.seq >= (select value ->> 1 from json_each(:bounds))
           and o.seq < (select value ->> 2 from json_each(:bounds))
           and not exists (select 1 from outlog_parked p where p.seq = o.seq)
           --+ asked_for(o, o)
         order by o.seq desc limit :limit)
    union all
    select * from (
        select o.lane, o.seq from outlog_outbox o cross join outlog_side_cursors s on s.lane = 0
         where o.seq > (select min(head) from outlog_side_cursors)
           and o.seq <= (select head from outlog_lanes where lane = 0)
           and o.seq >= (select value ->> 1 from json_each(:bounds))
           and o.seq < (select value ->> 2 from json_each(:bounds)) and
           --+ left_to(o, s)
           --+ asked_for(o, o)
         order by o.seq desc limit :limit)
    union all
    select * from (
        select p.lane, p.seq from outlog_parked p cross join outlog_outbox o on o.seq = p.seq
         where p.state = 'PENDING'
           and p.seq >= (select value ->> 1 from json_each(:bounds))
           and p.seq < (select value ->> 2 from json_each(:bounds))
           --+ asked_for(o, p)
         order by p.seq desc limit :limit)) w
 order by w.seq desc limit :limit

-- name: messages_claimed(bounds, limit literal, destination?, event_type?, since?, until?)
select o.lane, o.seq from (
    select g.* from outlog_open_claims c cross join outlog_outbox g on g.seq = c.seq
    union all
    select k.* from outlog_parked p cross join outlog_outbox k on k.seq = p.seq where p.state = 'CLAIMED') o
 where o.seq >= (select value ->> 1 from json_each(:bounds)) and o.seq < (select value ->> 2 from json_each(:bounds))
   --+ asked_for(o, o)
 order by o.seq desc limit :limit

-- name: messages_published(bounds, limit literal, destination?, event_type?, since?, until?)
select o.lane, o.seq from outlog_outbox o
 where o.seq <= (select head from outlog_lanes where lane = 0)
   and o.seq >= (select value ->> 1 from json_each(:bounds)) and o.seq < (select value ->> 2 from json_each(:bounds))
   and coalesce((select p.state from outlog_parked p where p.seq = o.seq),
                (select s.plain_state from outlog_plain_state s where s.seq = o.seq)) = 'PUBLISHED'
   --+ asked_for(o, o)
 order by o.seq desc limit :limit

-- name: messages_all(bounds, limit literal, destination?, event_type?, since?, until?)
select o.lane, o.seq from outlog_outbox o
 where o.seq >= (select value ->> 1 from json_each(:bounds)) and o.seq < (select value ->> 2 from json_each(:bounds))
   --+ asked_for(o, o)
 order by o.seq desc limit :limit

-- name: published_after(lane, after, upto, limit literal, destination?, event_type?, since?, until?)
select o.event_id, o.seq from outlog_outbox o
 where o.lane = :lane and o.seq > :after and o.seq <= :upto
   and o.seq <= (select head from outlog_lanes where lane = :lane)
   and coalesce((select p.state from outlog_parked p where p.seq = o.seq),
                (select s.plain_state from outlog_plain_state s where s.seq = o.seq)) = 'PUBLISHED'
   --+ asked_for(o, o)
 order by o.seq limit :limit

-- name: pending_after(lane, after, upto, limit literal, destination?, event_type?, since?, until?, retrying?)
select w.event_id, w.seq from (
    select * from (
        select o.event_id, o.seq from outlog_parked p cross join outlog_outbox o on o.seq = p.seq
         where p.state = 'PENDING' and p.lane = :lane and p.seq > :after and p.seq <= :upto
           and p.attempts > 0               --? retrying
           --+ asked_for(o, p)
         order by p.seq limit :limit)
    union all
    select * from (
        select o.event_id, o.seq from outlog_outbox o cross join outlog_side_cursors s on s.lane = 0
         where o.seq > (select min(head) from outlog_side_cursors) and o.seq > :after and o.seq <= :upto and
           --+ left_to(o, s)
           and false                        --? retrying
           --+ asked_for(o, o)
         order by o.seq limit :limit)
    union all
    select * from (
        select o.event_id, o.seq from outlog_outbox o
         where o.seq > (select head from outlog_lanes where lane = 0) and o.seq > :after and o.seq <= :upto
           and not exists (select 1 from outlog_parked p where p.seq = o.seq)
           and false                        --? retrying
           --+ asked_for(o, o)
         order by o.seq limit :limit)) w
 order by w.seq limit :limit

-- name: count_parked(limit literal)
select g.destination, g.state, g.number, g.retrying,
       (select created_at from outlog_outbox where seq = g.oldest), g.held,
       sum(g.number) over (partition by g.state) >= :limit
  from (select destination, state, count(*) as number, sum(attempts > 0) as retrying,
               min(seq) as oldest, sum(held) as held
          from (select * from (select * from outlog_parked where state = 'PENDING' order by seq limit :limit)
                union all
                select * from (select * from outlog_parked where state = 'CLAIMED' order by seq limit :limit)
                union all
                select * from (select * from outlog_parked where state = 'DEAD' order by seq limit :limit))
         group by destination, state) g
 order by 1, 2

-- name: count_lanes(sample literal)
select l.lane, coalesce((select max(seq) from outlog_outbox), 0) - l.head, d.destination, d.number, d.oldest,
       iif(exists (select 1 from outlog_side_cursors), (select count(*) from outlog_open_claims),
           coalesce(l.claim_to - l.claim_from + 1, 0))
  from outlog_lanes l
  left join (select s.destination, count(*) as number, min(s.created_at) as oldest
               from (select * from (select o.destination, o.created_at from outlog_outbox o
                      where o.seq > (select head from outlog_lanes where lane = 0)
                        and not exists (select 1 from outlog_parked p where p.seq = o.seq)
                      order by o.seq limit :sample)
                     union all
                     select * from (select o.destination, o.created_at from outlog_outbox o
                      where o.seq > (select head from outlog_lanes where lane = 0)
                        and (select max(seq) from outlog_outbox)
                            > (select head from outlog_lanes where lane = 0) + 2 * :sample
                        and not exists (select 1 from outlog_parked p where p.seq = o.seq)
                      order by o.seq desc limit :sample)) s
              group by s.destination) d on true
 order by 1, 3

-- name: waiting_list(sample literal, parked_max literal)
-- What is due and not sent, by lane, destination and reason: how many, and since when. The reasons
-- are those of outbox/waiting.c. Reads a bounded part of the backlog and of the parked messages.
with due as (
    select p.lane, p.destination, p.available_at as since,
           case when p.ordering_key is null then null
                when exists (select 1 from outlog_parked e where e.lane = p.lane and e.destination = p.destination
                                and e.ordering_key = p.ordering_key and e.seq < p.seq and e.held) then 'held_key'
                when exists (select 1 from outlog_parked e where e.lane = p.lane and e.destination = p.destination
                                and e.ordering_key = p.ordering_key and e.seq < p.seq
                                and e.state in ('PENDING', 'CLAIMED')) then 'behind_key' end as by_key
      from (select * from outlog_parked where state = 'PENDING' and available_at <= outlog_after(0) limit :parked_max) p
    union all
    select 0, s.destination, s.since, null
      from (select o.destination, coalesce(o.available_at, o.created_at) as since from outlog_outbox o
             where o.seq > (select head from outlog_lanes where lane = 0)
               and not exists (select 1 from outlog_parked p where p.seq = o.seq)
             order by o.seq limit :sample) s
     where s.since <= outlog_after(0)
    union all
    select 0, o.destination, coalesce(o.available_at, o.created_at), null
      from outlog_side_cursors c cross join outlog_lanes l cross join outlog_outbox o
     where o.seq > c.head and o.seq <= min(l.head, c.head + :sample)
       and +o.destination = c.destination and c.org_key = ''
       and not exists (select 1 from outlog_parked p where p.seq = o.seq)
       and coalesce(o.available_at, o.created_at) <= outlog_after(0)),
states as (
    select b.destination, max(b.state) as state, max(b.detail) as detail
      from outlog_breakers b join outlog_relays r on r.run = b.run group by b.destination),
reasons as (
    select d.lane, d.destination, d.since,
           case when t.name is null then 'unknown_destination'
                when t.paused then 'paused'
                when l.owner is null or l.lease_until < outlog_after(0) then 'no_relay'
                when l.trouble is not null then 'lane_stuck'
                when s.state = 'unusable' then 'unusable_destination'
                when s.state = 'open' then 'breaker_open'
                else coalesce(d.by_key, 'queued') end as reason,
           case when l.trouble is not null then l.trouble when s.state = 'unusable' then s.detail end as detail
      from due d join outlog_lanes l on l.lane = d.lane
      left join outlog_destinations t on t.name = d.destination
      left join states s on s.destination = d.destination)
select lane, destination, reason, count(*), min(since), max(detail) from reasons
 group by lane, destination, reason order by lane, destination, reason

-- name: count_sides(sample literal)
select destination, sum(is_own), min(iif(is_own, created_at, null)), max(seq) - head, lane_head - head
  from (select s.destination, s.org_key, s.head, l.head as lane_head, o.seq, o.created_at,
       --+ left_to(o, s)
               as is_own, row_number() over (partition by s.destination, s.org_key order by o.seq) as nth
          from (select * from outlog_side_cursors order by opened_at limit 500) s cross join outlog_lanes l
         cross join outlog_outbox o on o.seq > s.head and o.seq <= min(l.head, s.head + :sample))
 group by destination, org_key, head, lane_head

-- name: last_errors()
select name, last_error
  from (select d.name, (select p.last_error from outlog_parked p
                         where p.destination = d.name and p.last_error is not null
                           and p.state in ('PENDING', 'CLAIMED', 'DEAD')
                         order by p.updated_at desc limit 1) as last_error
          from outlog_destinations d)
 where last_error is not null
 order by 1
