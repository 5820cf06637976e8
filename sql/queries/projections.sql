-- Projections: the declared definitions, the position and the owner of each.

-- name: projection_declared()
select name, definition from outlog.projections order by name

-- name: projection_put(name, version, definition)
insert into outlog.projections (name, version, definition, updated_at)
values (:name, :version, :definition, outlog.after(0))
on conflict (name) do update set version = excluded.version, definition = excluded.definition,
       updated_at = excluded.updated_at

-- name: projection_delete(name)
delete from outlog.projections where name = :name

-- name: checkpoint_add(name, rebuild_id)
-- A new projection fills its tables from the beginning; a repeat changes nothing.
insert into outlog.projection_checkpoints (name, rebuild, rebuild_id, updated_at)
values (:name, 'in_place', :rebuild_id, outlog.after(0))
on conflict (name) do nothing

-- name: checkpoint_delete(name)
delete from outlog.projection_checkpoints where name = :name

-- name: checkpoint_request_rebuild(name, rebuild, rebuild_id)
-- Requests a rebuild. In place it starts again, so its error is cleared; aside leaves the live
-- tables and their error as they are.
update outlog.projection_checkpoints
   set rebuild = :rebuild, rebuild_id = :rebuild_id, rebuild_event_id = 0, rebuild_upto = 0,
       rebuild_started_at = null, rebuild_error = null, updated_at = outlog.after(0),
       error = case when :rebuild = 'aside' then error end
 where name = :name

-- name: checkpoint_cancel_rebuild(name)
update outlog.projection_checkpoints
   set rebuild = null, rebuild_error = null, updated_at = outlog.after(0)
 where name = :name and rebuild = 'aside'

-- name: checkpoint_list()
-- All but the definitions, which are long: checkpoint_definitions reads those.
select c.name, c.version, c.last_applied_event_id, c.status, c.error, c.rebuild, c.rebuild_id,
       c.rebuild_event_id, c.rebuild_upto, c.rebuild_started_at, c.rebuild_error, c.epoch, c.owner,
       c.owner_name, (c.owner is null or c.lease_until < outlog.after(0)
           or c.owner in (select d.run from outlog.owners d where d.died_at is not null))::integer, c.updated_at,
       coalesce(p.version, 0), p.updated_at, (c.definition is null and p.name is null)::integer
  from outlog.projection_checkpoints c left join outlog.projections p on p.name = c.name
 order by c.name

-- name: checkpoint_definitions(name)
select c.definition, p.definition
  from outlog.projection_checkpoints c left join outlog.projections p on p.name = c.name
 where c.name = :name

-- name: checkpoint_position(name)
select last_applied_event_id from outlog.projection_checkpoints where name = :name

-- name: checkpoint_acquire(name, run, owner_name, lease_us)
-- Takes ownership when it is free, already ours, or its owner died. The epoch rises, so the
-- previous owner can move nothing any more; and it did nothing but in transactions that name the
-- epoch, so there is nothing to wait for.
update outlog.projection_checkpoints
   set owner = :run, owner_name = :owner_name, epoch = epoch + 1, lease_until = outlog.after(:lease_us::bigint)
 where name = :name and (owner is null or owner = :run or lease_until < outlog.after(0)
       or owner in (select d.run from outlog.owners d where d.died_at is not null))

-- name: checkpoint_renew(name, epoch, lease_us)
update outlog.projection_checkpoints set lease_until = outlog.after(:lease_us::bigint)
 where name = :name and epoch = :epoch

-- name: checkpoint_release(name, epoch)
update outlog.projection_checkpoints set owner = null, lease_until = null where name = :name and epoch = :epoch

-- name: checkpoint_move(name, epoch, from, to, lease_us)
-- In one transaction with the change of the tables (P1). 0 rows: we do not own it any more, or an
-- operator moved it. The row is locked: of two that try the second waits and then changes 0 rows.
update outlog.projection_checkpoints
   set last_applied_event_id = :to, lease_until = outlog.after(:lease_us::bigint), updated_at = outlog.after(0),
       rebuild = case when rebuild = 'in_place' and rebuild_upto <= :to then null else rebuild end
 where name = :name and epoch = :epoch and last_applied_event_id = :from and error is null
   and (coalesce(rebuild, '') <> 'in_place' or rebuild_started_at is not null)

-- name: checkpoint_begin(name, epoch, rebuild_id, version, definition, upto)
-- Starts a rebuild in place: the tables exist and are empty.
update outlog.projection_checkpoints
   set version = :version, definition = :definition, last_applied_event_id = 0, error = null,
       rebuild_upto = :upto::bigint, rebuild_started_at = outlog.after(0), updated_at = outlog.after(0),
       rebuild = case when :upto::bigint = 0 then null else rebuild end
 where name = :name and epoch = :epoch and rebuild = 'in_place' and rebuild_id = :rebuild_id

-- name: checkpoint_progress(name, epoch, rebuild_id, event_id, upto, lease_us)
-- Stores the position of the shadow tables.
update outlog.projection_checkpoints
   set rebuild_event_id = :event_id, rebuild_upto = :upto, lease_until = outlog.after(:lease_us::bigint),
       rebuild_started_at = coalesce(rebuild_started_at, outlog.after(0))
 where name = :name and epoch = :epoch and rebuild = 'aside' and rebuild_id = :rebuild_id

-- name: checkpoint_swap(name, epoch, rebuild_id, version, definition, event_id)
-- Never backwards: the new tables are at least as far as the old ones.
update outlog.projection_checkpoints
   set version = :version, definition = :definition, last_applied_event_id = :event_id, error = null,
       rebuild = null, rebuild_error = null, rebuild_event_id = :event_id, updated_at = outlog.after(0)
 where name = :name and epoch = :epoch and rebuild = 'aside' and rebuild_id = :rebuild_id
   and last_applied_event_id <= :event_id

-- name: checkpoint_stop(name, epoch, error)
update outlog.projection_checkpoints set error = :error, updated_at = outlog.after(0)
 where name = :name and epoch = :epoch

-- name: checkpoint_stop_rebuild(name, epoch, rebuild_id, error)
update outlog.projection_checkpoints set rebuild_error = :error, updated_at = outlog.after(0)
 where name = :name and epoch = :epoch and rebuild_id = :rebuild_id

-- name: checkpoint_retry(name)
update outlog.projection_checkpoints set error = null, rebuild_error = null, updated_at = outlog.after(0)
 where name = :name

-- name: checkpoint_skip(name, event_id)
-- Moves past an event that cannot be applied; those before it are applied.
update outlog.projection_checkpoints set last_applied_event_id = :event_id, error = null, updated_at = outlog.after(0)
 where name = :name and last_applied_event_id < :event_id and error is not null

-- name: checkpoint_own(name, version)
-- A projection in C: 0 rows when it exists already.
insert into outlog.projection_checkpoints (name, version, updated_at) values (:name, :version, outlog.after(0))
on conflict (name) do nothing

-- name: checkpoint_restart(name, version)
-- A projection in C starts again: it has emptied its tables in this transaction.
update outlog.projection_checkpoints
   set version = :version, last_applied_event_id = 0, rebuild = null, error = null, updated_at = outlog.after(0)
 where name = :name and definition is null

-- name: checkpoint_advance(name, from, to)
-- checkpoint_move for a projection in C, which needs no owner: of two that apply the same events
-- the second waits, and then changes 0 rows.
update outlog.projection_checkpoints
   set last_applied_event_id = :to, error = null, updated_at = outlog.after(0)
 where name = :name and last_applied_event_id = :from and definition is null and rebuild is null

-- name: checkpoint_fail(name, error)
update outlog.projection_checkpoints set error = :error, updated_at = outlog.after(0) where name = :name

-- name: skip_add(name, version, event_id)
insert into outlog.projection_skips (name, version, event_id, skipped_at)
values (:name, :version, :event_id, outlog.after(0)) on conflict do nothing

-- name: skip_list(name, version)
select event_id from outlog.projection_skips where name = :name and version = :version order by event_id

-- name: skip_delete(name)
delete from outlog.projection_skips where name = :name

-- name: shadow_create()
-- Stored beside the shadow tables: the request they serve, and their position.
create table outlog_build (rebuild_id text not null, event_id bigint not null)

-- name: shadow_begin(rebuild_id)
insert into outlog_build (rebuild_id, event_id) values (:rebuild_id, 0)

-- name: shadow_get()
select rebuild_id, event_id from outlog_build

-- name: shadow_move(from, to)
-- In one transaction with the change of the tables. 0 rows: another worker moved it.
update outlog_build set event_id = :to where event_id = :from
