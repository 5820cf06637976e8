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

do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant select, insert, update on outlog.sinks to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant select, insert, update on outlog.sinks to outlog_admin;
    end if;
end $$;
