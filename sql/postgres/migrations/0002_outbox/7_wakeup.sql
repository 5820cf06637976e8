-- `wakeup: notify`: an idle relay sleeps until a writer sends NOTIFY. Commits with NOTIFY wait for
-- each other, so a writer sends it only while a relay sleeps. A sleeping relay holds a shared
-- advisory lock. A writer tries that lock, which costs about a microsecond per statement, and
-- releases it within the same expression: nothing can interrupt that, so no session keeps the lock.
create function outlog.wake_relays() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not (pg_try_advisory_lock(28492, 2) and pg_advisory_unlock(28492, 2)) then
        perform pg_notify('outlog', '');
    end if;
    return null;
end $$;
create trigger outbox_wakes_relays after insert on outlog.outbox
    for each statement execute function outlog.wake_relays();
alter table outlog.outbox enable always trigger outbox_wakes_relays;
revoke all on function outlog.wake_relays from public;
