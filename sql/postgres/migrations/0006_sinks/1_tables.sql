-- Sinks stream the log itself to a destination, with a cursor instead of one message per event. The
-- definition is in settings as sinks.<name>; a row here is its cursor and its owner.
create table outlog.sinks (
    name            text        primary key,
    cursor_event_id bigint      not null default 0,   -- all events up to here were acknowledged
    epoch           bigint      not null default 0,   -- grows with each owner; fences the former one
    owner           text,                             -- a random id of the process run, never a name
    owner_name      text,
    lease_until     timestamptz,
    last_error      text,
    updated_at      timestamptz not null default now(),
    constraint sinks_name_length check (octet_length(name) between 1 and 100),
    constraint sinks_cursor_is_a_position check (cursor_event_id >= 0),
    constraint sinks_owner_has_a_lease check ((owner is null) = (lease_until is null)));

-- cursors_beyond: what `outlog doctor` says of readers whose cursor is beyond the last event_id
-- that was ever given out (R3); null when there is none.
create function outlog.cursors_beyond() returns text language sql stable
    security definer set search_path = pg_catalog, pg_temp as $$
    select 'beyond the end of the log (a careless restore?), so they read nothing: '
           || string_agg(c.name, ', ' order by c.name)
           || '; reset them (`outlog consumers reset`, `outlog sinks reset`, `outlog projections rebuild`)'
      from (select 'consumer ' || name as name, cursor_event_id as at from outlog.consumers
            union all select 'sink ' || name, cursor_event_id from outlog.sinks
            union all select 'projection ' || name, last_applied_event_id from outlog.projection_checkpoints) c
     where c.at > (select last from outlog.log_limits(null))
$$;
revoke all on function outlog.cursors_beyond from public;

do $$
declare
    reader text;
begin
    foreach reader in array array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin'] loop
        if exists (select from pg_roles where rolname = reader) then
            execute format('grant execute on function outlog.cursors_beyond() to %I', reader);
        end if;
    end loop;
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant select, insert, update on outlog.sinks to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant select, insert, update on outlog.sinks to outlog_admin;
    end if;
end $$;
