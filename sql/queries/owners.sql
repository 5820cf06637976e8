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

-- name: owner_died(run)
-- A run id never comes back, so this stays true.
update outlog.owners set died_at = outlog.after(0) where run = :run and died_at is null

-- name: owner_remove(run)
delete from outlog.owners where run = :run

-- name: owners_purge(died_us, seen_us)
-- What is not needed any more. A run that lives and lost its row is taken from by its lease only.
delete from outlog.owners
 where died_at < outlog.after(-:died_us::bigint) or seen_at < outlog.after(-:seen_us::bigint)
