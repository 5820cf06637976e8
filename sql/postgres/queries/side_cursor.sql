-- Side cursors (rules 33 to 40): rows of side_cursors change only in a transaction that holds the
-- row of their lane, by its owner.

-- name: side_take(lane)
-- For a new owner, after lane_park_claim in the same transaction.
update outlog.side_cursors set claim = '{}', claimed_at = null, claim_no = claim_no + 1
 where lane = :lane::smallint
returning destination, org_key, since, head, claim_no

-- name: side_open(lane, destination, org_key, since)
insert into outlog.side_cursors (lane, destination, org_key, since, head)
values (:lane::smallint, :destination, :org_key, :since, :since)

-- name: side_close(lane, epoch, parked_gen, destination, org_key)
-- Only when nothing that it owns is left up to where its parent is; after that the parent owns what
-- comes. Before the parent moves, in the same transaction.
with l as (
    select * from outlog.lanes
     where lane = :lane::smallint and epoch = :epoch and parked_gen = :parked_gen for update)
delete from outlog.side_cursors s using l
 where s.lane = l.lane and s.destination = :destination and s.org_key = :org_key and s.claim = '{}'
   and not exists (select from outlog.outbox o
        where o.lane = s.lane and o.seq > s.head and o.seq <= coalesce((select d.head from outlog.side_cursors d
                  where d.lane = s.lane and d.destination = s.destination and d.org_key < s.org_key), l.head)
          and o.destination = s.destination and s.org_key in ('', ':' || coalesce(o.org_id, ''))
          and not l.gaps @> o.seq
          and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq))
   and not exists (select from outlog.side_cursors i
        where i.lane = s.lane and i.destination = s.destination and i.org_key > s.org_key)

-- name: side_advance(lane, epoch, parked_gen, destination, org_key, claim_no, head, claim)
-- Records the open batch of a side cursor and claims its next one, as lane_advance does for a lane.
with l as (
    select lane, owner from outlog.lanes
     where lane = :lane::smallint and epoch = :epoch and parked_gen = :parked_gen for update),
u as (
    update outlog.side_cursors s
       set head = :head, claim = :claim::int8multirange, claim_no = s.claim_no + 1,
           claimed_at = case when :claim = '{}' then null else now() end
      from l where s.lane = l.lane and s.destination = :destination and s.org_key = :org_key
       and s.claim_no = :claim_no
    returning s.lane, s.destination, s.org_key),
old as (select s.*, l.owner from outlog.side_cursors s join u using (lane, destination, org_key) cross join l),
b as (
    insert into outlog.batches (lane, destination, org_key, from_seq, to_seq, claimed_by, claimed_at, published_at)
    select lane, destination, org_key, lower(r), upper(r) - 1, owner, claimed_at, now()
      from old cross join lateral unnest(claim) r)
select 1 from u

-- name: side_read(lane, destination, after, upto, limit literal, org_key?, passed?)
-- What it owns of a stretch of its lane, but for what is parked already.
select o.seq
       --= message columns: , o.{name}
  from outlog.outbox o
 where o.lane = :lane::smallint and o.seq > :after and o.seq <= :upto and o.destination = :destination
   and ':' || coalesce(o.org_id, '') = :org_key     --? org_key
   and ':' || coalesce(o.org_id, '') not in (select value from json_array_elements_text(:passed))   --? passed
   and not exists (select from outlog.parked p where p.lane = o.lane and p.seq = o.seq)
 order by o.seq limit :limit

-- name: lane_stretch(lane, after, limit literal)
-- A stretch of messages that no read has seen: where it ends, and how many there are.
select coalesce(max(seq), :after), count(*) from (
    select seq from outlog.outbox where lane = :lane::smallint and seq > :after order by seq limit :limit) w

-- name: lane_holes(lane, after, upto, limit literal) @postgres
-- The numbers of a stretch that are not there.
select before + 1, seq - 1
  from (select seq, lag(seq, 1, :after::bigint) over (order by seq) as before from outlog.outbox
         where lane = :lane::smallint and seq > :after and seq <= :upto) n
 where seq > before + 1 order by seq limit :limit

-- name: outbox_read_passing(lane, after, upto, limit literal, gaps)
-- New messages of a stretch but for those of destinations with a side cursor, together with all
-- that has appeared in open gaps, from one snapshot (rules 7, 10).
select o.seq
       --= message columns: , o.{name}
  from (select f.seq from unnest(:gaps::int8multirange) r
         cross join lateral (select seq from outlog.outbox where lane = :lane::smallint and seq >= lower(r)
                                and seq < upper(r) offset 0) f
        union all
        (select seq from outlog.outbox n
          where n.lane = :lane::smallint and n.seq > :after and n.seq <= :upto
            and n.destination not in (select s.destination from outlog.side_cursors s where s.lane = :lane::smallint)
          order by n.seq limit :limit)) found
  join outlog.outbox o on o.lane = :lane::smallint and o.seq = found.seq
 order by o.seq

-- name: lane_find_other(lane, after, limit literal, stuck)
-- Beyond what was read: where a stretch ends, and its first message for a destination that is none
-- of these (a JSON array) and has no side cursor.
select max(w.seq), min(w.seq) filter (
           where w.destination not in (select value from json_array_elements_text(:stuck))
             and w.destination not in (select s.destination from outlog.side_cursors s where s.lane = :lane::smallint))
  from (select seq, destination from outlog.outbox where lane = :lane::smallint and seq > :after
         order by seq limit :limit) w

-- name: side_find_other(lane, destination, after, upto, org_key)
-- Beyond what a side cursor has read: its first message that is for another org than this one and
-- those with a cursor of their own.
select min(o.seq) from outlog.outbox o
 where o.lane = :lane::smallint and o.seq > :after and o.seq <= :upto and o.destination = :destination
   and ':' || coalesce(o.org_id, '') <> :org_key
   and ':' || coalesce(o.org_id, '') not in (select s.org_key from outlog.side_cursors s
        where s.lane = :lane::smallint and s.destination = :destination)
