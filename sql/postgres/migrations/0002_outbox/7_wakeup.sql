-- `wakeup: notify`: a relay with nothing to do sleeps until a writer says something. NOTIFY makes commits
-- wait for each other, so it is said only while a relay sleeps, which it shows by holding an advisory lock
-- for sharing. Trying that lock costs a writer about a microsecond a statement; it is given back within the
-- same expression, where nothing can interrupt, so that no session is left with it.
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
