-- Side cursors on SQLite (rules 33 to 40). A trigger records the batch.

-- name: side_take(lane)
update outlog_side_cursors
   set claim_from = null, claim_to = null, claimed_at = null, claim_no = claim_no + 1,
       epoch = (select l.epoch from outlog_lanes l where l.lane = :lane)
 where lane = :lane
returning destination, org_key, since, head, claim_no

-- name: side_open(lane, destination, org_key, since)
insert into outlog_side_cursors (lane, destination, org_key, since, head, opened_at, epoch)
select :lane, :destination, :org_key, :since, :since, outlog_after(0), epoch from outlog_lanes where lane = :lane

-- name: side_close(lane, epoch, parked_gen, destination, org_key)
delete from outlog_side_cursors
 where lane = (select lane from outlog_lanes where lane = :lane and epoch = :epoch and parked_gen = :parked_gen)
   and destination = :destination and org_key = :org_key and claim_from is null
   and not exists (select 1 from outlog_outbox o
        where o.seq > outlog_side_cursors.head
          and o.seq <= coalesce((select d.head from outlog_side_cursors d
                  where d.lane = :lane and d.destination = :destination and d.org_key < :org_key),
                  (select head from outlog_lanes where lane = :lane))
          and o.destination = :destination and :org_key in ('', ':' || coalesce(o.org_id, ''))
          and not exists (select 1 from outlog_parked p where p.seq = o.seq))
   and not exists (select 1 from outlog_side_cursors i
        where i.lane = :lane and i.destination = :destination and i.org_key > :org_key)

-- name: side_advance(lane, epoch, parked_gen, destination, org_key, claim_no, head, claim)
update outlog_side_cursors
   set head = :head, claim_no = claim_no + 1,
       claim_from = case when :claim = '{}' then null else cast(substr(:claim, 3) as integer) end,
       claim_to = case when :claim = '{}' then null
                       else cast(substr(:claim, instr(:claim, ',') + 1) as integer) - 1 end,
       claimed_at = case when :claim = '{}' then null else outlog_after(0) end
 where lane = (select lane from outlog_lanes where lane = :lane and epoch = :epoch and parked_gen = :parked_gen)
   and destination = :destination and org_key = :org_key and claim_no = :claim_no
returning 1

-- name: side_read(lane, destination, after, upto, limit literal, org_key?, passed?)
select o.seq
       --= message columns: , o.{name}
  from outlog_outbox o
 where o.lane = :lane and o.seq > :after and o.seq <= :upto and o.destination = :destination
   and ':' || coalesce(o.org_id, '') = :org_key     --? org_key
   and ':' || coalesce(o.org_id, '') not in (select value from json_each(:passed))   --? passed
   and not exists (select 1 from outlog_parked p where p.seq = o.seq)
 order by o.seq limit :limit

-- name: lane_stretch(lane, after, limit literal)
select coalesce(max(seq), :after), count(*) from (
    select seq from outlog_outbox where lane = :lane and seq > :after order by seq limit :limit)

-- name: outbox_read_passing(lane, after, upto, limit literal, gaps)
select o.seq
       --= message columns: , o.{name}
  from outlog_outbox o
 where o.lane = :lane and o.seq > :after and o.seq <= :upto and :gaps = '{}'
   and o.destination not in (select s.destination from outlog_side_cursors s where s.lane = :lane)
 order by o.seq limit :limit

-- name: lane_find_other(lane, after, limit literal, stuck)
select max(seq), min(seq) filter (
           where destination not in (select value from json_each(:stuck))
             and destination not in (select s.destination from outlog_side_cursors s where s.lane = :lane))
  from (select seq, destination from outlog_outbox where lane = :lane and seq > :after order by seq limit :limit)

-- name: side_find_other(lane, destination, after, upto, org_key)
select min(o.seq) from outlog_outbox o
 where o.seq > :after and o.seq <= :upto and o.destination = :destination
   and ':' || coalesce(o.org_id, '') <> :org_key
   and ':' || coalesce(o.org_id, '') not in (select s.org_key from outlog_side_cursors s
        where s.lane = :lane and s.destination = :destination)
