-- name: config_lock()
-- Two applies wait for each other; readers and appends do not wait.
lock table outlog.destinations, outlog.routes, outlog.settings in share row exclusive mode

-- name: success_put(successes)
-- [[destination, time], …]. Several relays write the same destinations: sorted, so that they lock
-- the rows in the same order. A destination may be in the list twice when its settings just
-- changed.
insert into outlog.successes (destination, last_ok_at)
select s ->> 0, max((s ->> 1)::timestamptz) from json_array_elements(:successes) s group by 1 order by 1
on conflict (destination) do update set last_ok_at = greatest(successes.last_ok_at, excluded.last_ok_at)
