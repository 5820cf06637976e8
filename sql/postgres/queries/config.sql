-- name: config_lock()
-- Two applies come one after another; readers and appends go on.
lock table outlog.destinations, outlog.routes, outlog.settings in share row exclusive mode

-- name: success_put(successes)
-- [[destination, time], …]. Several relays tell of the same destinations: sorted, so that they wait for each
-- other in one order. A destination may be told twice, where its settings have just changed.
insert into outlog.successes (destination, last_ok_at)
select s ->> 0, max((s ->> 1)::timestamptz) from json_array_elements(:successes) s group by 1 order by 1
on conflict (destination) do update set last_ok_at = greatest(successes.last_ok_at, excluded.last_ok_at)
