-- name: config_lock()
-- BEGIN IMMEDIATE is the lock.
select 1

-- name: success_put(successes)
insert into outlog_successes (destination, last_ok_at)
select value ->> 0, max(value ->> 1) from json_each(:successes) where true group by 1
on conflict (destination) do update set last_ok_at = max(last_ok_at, excluded.last_ok_at)
