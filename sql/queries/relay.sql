-- What relays ask of any store: heartbeats, leases, destinations.

-- name: relay_heartbeat(run, name)
insert into outlog.relays (run, name, started_at, heartbeat_at)
values (:run, :name, outlog.after(0), outlog.after(0))
on conflict (run) do update set heartbeat_at = outlog.after(0)

-- name: relay_remove(run)
delete from outlog.relays where run = :run

-- name: relays_purge(dead_after_us)
-- A heartbeat far ahead was written before the clock was set back. Who lives writes it again.
delete from outlog.relays
 where heartbeat_at < outlog.after(-:dead_after_us::bigint) or heartbeat_at > outlog.after(:dead_after_us::bigint)

-- name: relay_count(dead_after_us)
-- The count of relays, the database's time, the count of lanes, and the first lane of the newest
-- generation.
select count(*), outlog.after(0), (select count(*) from outlog.lanes), (select max(first_lane) from outlog.lanes)
  from outlog.relays
 where heartbeat_at >= outlog.after(-:dead_after_us::bigint) and heartbeat_at <= outlog.after(:dead_after_us::bigint)

-- name: lanes_ownerless()
-- Those that somebody has to take: without an owner, or with a lease that ended.
select count(*) from outlog.lanes where owner is null or lease_until < outlog.after(0)

-- name: lane_renew(lane, epoch, lease_us)
update outlog.lanes set lease_until = outlog.after(:lease_us::bigint)
 where lane = :lane and epoch = :epoch and owner is not null

-- name: lane_row(lane)
-- After a commit whose answer was lost: did it happen?
select epoch, claim_no, parked_gen from outlog.lanes where lane = :lane

-- name: lane_trouble(lane, trouble)
-- Why the turns of a lane cannot be stored; null: they can.
update outlog.lanes set trouble = :trouble where lane = :lane

-- name: lane_touch(lane)
-- Locks the lane for somebody who is not its owner, and tells the owner that parked rows changed.
update outlog.lanes set parked_gen = parked_gen + 1 where lane = :lane

-- name: parked_keys(lane)
-- The keys that must wait: one of their messages is parked and open, or dead and held (rule 9).
select destination, ordering_key, count(*) from outlog.parked
 where lane = :lane and ordering_key is not null and (state in ('PENDING', 'CLAIMED') or held)
 group by destination, ordering_key

-- name: older_keys(lane)
-- The same of older generations of lanes: younger messages of these keys wait too.
select destination, ordering_key, count(*) from outlog.parked
 where lane < (select l.first_lane from outlog.lanes l where l.lane = :lane)
   and ordering_key is not null and (state in ('PENDING', 'CLAIMED') or held)
 group by destination, ordering_key

-- name: older_sides(lane)
-- Destinations with a side cursor in an older generation of lanes: their younger messages wait.
select destination, count(*) from outlog.side_cursors
 where lane < (select l.first_lane from outlog.lanes l where l.lane = :lane) group by destination

-- name: side_row(lane, destination, org_key)
-- After a commit whose answer was lost: did it happen?
select l.epoch, s.claim_no, l.parked_gen from outlog.lanes l
  left join outlog.side_cursors s on s.lane = l.lane and s.destination = :destination and s.org_key = :org_key
 where l.lane = :lane

-- name: parked_counts(lane)
-- How many open messages of each destination have left the plain path.
select destination, count(*) from outlog.parked where lane = :lane and state in ('PENDING', 'CLAIMED')
 group by destination

-- name: parked_ours(lane, run)
-- The claims of a run in a lane that it has lost.
select seq::text from outlog.parked where lane = :lane and state = 'CLAIMED' and claimed_by = :run

-- name: destination_list()
select name, settings, guarantee, paused, on_dead, is_alert, updated_at,
       (select s.last_ok_at from outlog.successes s where s.destination = d.name)
  from outlog.destinations d order by name

-- name: destination_get(name)
select name, settings, guarantee, paused, on_dead, is_alert from outlog.destinations where name = :name

-- name: destination_put(name, settings, guarantee, on_dead, is_alert)
insert into outlog.destinations (name, settings, guarantee, on_dead, is_alert)
values (:name, :settings, :guarantee, :on_dead, :is_alert::boolean)
on conflict (name) do update set settings = excluded.settings, guarantee = excluded.guarantee,
       on_dead = excluded.on_dead, is_alert = excluded.is_alert, updated_at = outlog.after(0)

-- name: destination_delete(name)
delete from outlog.destinations where name = :name

-- name: destination_pause(name, paused)
update outlog.destinations set paused = :paused::boolean, updated_at = outlog.after(0) where name = :name

-- name: destination_stamp()
-- Changes when any destination does.
select count(*), max(updated_at) from outlog.destinations

-- name: route_list()
select name, pattern, is_audit, org_id, aggregate_type, condition, destination, ordering_key, source
  from outlog.routes order by name

-- name: route_put(name, pattern, is_audit, org_id, aggregate_type, condition, destination, ordering_key, source)
insert into outlog.routes (name, pattern, is_audit, org_id, aggregate_type, condition, destination, ordering_key,
       source)
values (:name, :pattern, :is_audit::boolean, :org_id, :aggregate_type, :condition, :destination, :ordering_key, :source)
on conflict (name) do nothing

-- name: route_delete(name)
delete from outlog.routes where name = :name

-- name: outbox_window(lane, after, limit literal)
-- A stretch of a lane: where it ends, how old its newest message is, how many there are.
select max(seq), max(created_at), count(*) from (
    select seq, created_at from outlog.outbox where lane = :lane and seq > :after order by seq limit :limit) w
