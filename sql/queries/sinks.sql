-- Sinks: cursors on the log that a relay moves. Each has one owner at a time, by lease and epoch,
-- as lanes do.

-- name: sink_make(name, cursor_event_id)
-- Creates the row of a new sink; an existing one keeps its cursor.
insert into outlog.sinks (name, cursor_event_id, updated_at) values (:name, :cursor_event_id, outlog.after(0))
on conflict do nothing

-- name: sink_dead(name, destination)
-- The owner of a sink, if it died before its lease ended: its lease and margin, and whether sink
-- and destination were the same for as long as a lease.
select s.owner, d.lease_us, d.margin_us,
       (coalesce(v.updated_at < outlog.after(-d.lease_us), false)
        and coalesce(t.updated_at < outlog.after(-d.lease_us), false))::integer
  from outlog.sinks s join outlog.owners d on d.run = s.owner
  left join outlog.settings v on v.key = 'sinks.' || s.name
  left join outlog.destinations t on t.name = :destination
 where s.name = :name and d.died_at is not null and s.lease_until >= outlog.after(0)

-- name: sink_take(name, run, owner_name, lease_us, former)
-- Takes a sink that has no owner, whose lease ended, or that belongs to `former`, and raises its
-- epoch, which fences the former owner.
update outlog.sinks
   set epoch = epoch + 1, owner = :run, owner_name = :owner_name, lease_until = outlog.after(:lease_us)
 where name = :name and (owner is null or lease_until < outlog.after(0) or owner = :former)
returning epoch, cursor_event_id

-- name: sink_hold(name, epoch, cursor_event_id, last_error, lease_us)
-- Moves the cursor and renews the lease. 0 rows: another owner took the sink, and nothing changes.
update outlog.sinks
   set cursor_event_id = :cursor_event_id, last_error = :last_error, lease_until = outlog.after(:lease_us),
       updated_at = outlog.after(0)
 where name = :name and epoch = :epoch

-- name: sink_release(name, epoch)
update outlog.sinks set owner = null, owner_name = null, lease_until = null
 where name = :name and epoch = :epoch

-- name: sink_reset(name, cursor_event_id)
-- An operator's command: it may move the cursor back, and takes the sink from its owner.
update outlog.sinks
   set cursor_event_id = :cursor_event_id, epoch = epoch + 1, owner = null, owner_name = null,
       lease_until = null, last_error = null, updated_at = outlog.after(0)
 where name = :name

-- name: sink_list()
-- The declared sinks. One that was removed from outlog.yaml keeps its row.
select s.name, d.value, s.cursor_event_id, case when s.lease_until > outlog.after(0) then s.owner_name end,
       s.last_error, s.updated_at
  from outlog.sinks s join outlog.settings d on d.key = 'sinks.' || s.name order by s.name
