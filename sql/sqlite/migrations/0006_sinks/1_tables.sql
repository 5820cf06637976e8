-- The cursors of sinks; PostgreSQL's migration of the same name explains the columns.
create table outlog_sinks (
    name            text    primary key not null,
    cursor_event_id integer not null default 0,
    epoch           integer not null default 0,
    owner           text,
    owner_name      text,
    lease_until     text,
    last_error      text,
    updated_at      text    not null,
    constraint sinks_name_length check (length(cast(name as blob)) between 1 and 100),
    constraint sinks_cursor_is_a_position check (cursor_event_id >= 0),
    constraint sinks_owner_has_a_lease check ((owner is null) = (lease_until is null)));
