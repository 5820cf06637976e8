-- Owners: runs that own lanes, sinks, projections or sessions (docs/lanes.md, rules 23 to 30).

-- name: owner_put(run, kind, name, lease_us, margin_us, boot_id, device, inode)
-- Only after its run file was locked (rule 23). A repeat keeps the row from being purged.
insert into outlog.owners (run, kind, name, lease_us, margin_us, boot_id, device, inode, seen_at)
values (:run, :kind, :name, :lease_us::bigint, :margin_us::bigint, :boot_id, :device::bigint, :inode::bigint,
       outlog.after(0))
on conflict (run) do update set seen_at = outlog.after(0)

-- name: owner_list(boot_id, run)
-- The others on this machine whose death nobody has noted.
select run, device, inode from outlog.owners where boot_id = :boot_id and died_at is null and run <> :run

-- name: owner_relay()
-- Whether a relay works on this store, or has ended without a word.
select 1 where exists (select 1 from outlog.relays) or exists (select 1 from outlog.owners where kind = 'relay')

-- name: owner_died(run)
-- A run id never comes back, so this stays true.
update outlog.owners set died_at = outlog.after(0) where run = :run and died_at is null

-- name: owner_key(run, lock_key, confidence_us)
-- Only after its session has locked the key: each session has another one (rule 27).
update outlog.owners set lock_key = :lock_key::bigint, confidence_us = :confidence_us::bigint where run = :run

-- name: owner_lost(run, lock_key)
-- Its session has ended, and it cannot send any more: it has had no proof since (rule 26). A new
-- session brings another key, which ends this note.
update outlog.owners set lost_key = :lock_key::bigint where run = :run and lock_key = :lock_key::bigint

-- name: lane_is_gone(lane)
-- Has the lane's owner died or lost its session? To be asked under the lane's lock, by a statement
-- of its own: that alone sees a key that was written before the lock was got (rule 29).
select 1 from outlog.lanes l join outlog.owners d on d.run = l.owner
 where l.lane = :lane and (d.died_at is not null or d.lost_key = d.lock_key)

-- name: owner_remove(run)
delete from outlog.owners where run = :run

-- name: owners_purge(died_us, seen_us)
-- What is not needed any more. A run that lives and lost its row is taken from by its lease only.
delete from outlog.owners
 where died_at < outlog.after(-:died_us::bigint) or seen_at < outlog.after(-:seen_us::bigint)
