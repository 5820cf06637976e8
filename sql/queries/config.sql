-- What outlog.yaml says, where no relay is asked: settings, alerts, breakers.

-- name: setting_list()
select key, value from outlog.settings order by key

-- name: setting_get(key)
select value from outlog.settings where key = :key

-- name: setting_put(key, value)
insert into outlog.settings (key, value, updated_at) values (:key, :value, outlog.after(0))
on conflict (key) do update set value = excluded.value, updated_at = excluded.updated_at

-- name: setting_delete(key)
delete from outlog.settings where key = :key

-- name: setting_stamp()
-- Changes when any setting does.
select count(*), max(updated_at) from outlog.settings

-- name: destination_alert(name)
-- At most one destination gets messages about dead letters; '' for none.
update outlog.destinations set is_alert = (name = :name), updated_at = outlog.after(0)
 where is_alert <> (name = :name)

-- name: breaker_put_unusable(run, destination, detail)
-- A relay cannot send to a destination with its settings and its environment.
insert into outlog.breakers (run, destination, state, updated_at, detail)
values (:run, :destination, 'unusable', outlog.after(0), :detail)
on conflict (run, destination) do update set state = excluded.state, detail = excluded.detail, retry_at = null

-- name: breaker_put(run, destination, state, wait_us)
-- The row exists until the breaker closes. updated_at is the time since which nothing got through,
-- also when attempts were made meanwhile. An open breaker allows an attempt after wait_us.
insert into outlog.breakers (run, destination, state, updated_at, retry_at)
values (:run, :destination, :state, outlog.after(0),
        case when :state = 'open' then outlog.after(:wait_us::bigint) end)
on conflict (run, destination) do update
   set state = excluded.state, retry_at = excluded.retry_at, detail = null

-- name: breaker_close(run, destination)
delete from outlog.breakers where run = :run and destination = :destination

-- name: successes_purge()
-- Of destinations that are gone.
delete from outlog.successes where destination not in (select name from outlog.destinations)

-- name: breakers_purge(dead_after_us)
-- Of relays that are gone.
delete from outlog.breakers where run not in (
    select run from outlog.relays where heartbeat_at >= outlog.after(-:dead_after_us::bigint))
