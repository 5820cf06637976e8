-- Views that are derived from the log (P1-P6). The views themselves are the user's own tables.

-- What outlog.yaml declares.
create table outlog_projections (
    name       text    primary key,
    version    integer not null check (version >= 1),
    definition text    not null,                          -- as written
    updated_at text    not null,
    constraint projections_name_length check (length(cast(name as blob)) between 1 and 48)
) without rowid;

-- How far each view is. The row moves in the transaction that changes the view (P1): whoever moves it
-- names the epoch it was given and the position it knows.
create table outlog_projection_checkpoints (
    name                  text    primary key,
    version               integer not null default 0,     -- of what is live; 0: nothing yet
    definition            text,                           -- what the live tables are made by; null: in C
    last_applied_event_id integer not null default 0 check (last_applied_event_id >= 0),
    error                 text,                           -- why it stopped
    rebuild               text,                           -- asked for and not yet done
    rebuild_id            text,                           -- which request: what an older one left is thrown away
    rebuild_event_id      integer not null default 0,     -- how far, as last told
    rebuild_upto          integer not null default 0,     -- what was settled when it began
    rebuild_started_at    text,
    rebuild_error         text,
    status                text    generated always as (
        case when error is not null then 'stopped' when rebuild is not null then 'rebuilding' else 'running' end) stored,
    epoch                 integer not null default 0,
    owner                 text,                           -- a random id of the process run, never a name
    owner_name            text,
    lease_until           text,
    updated_at            text    not null,
    constraint projection_checkpoints_rebuild_is_known check (rebuild in ('in_place', 'aside')),
    constraint projection_checkpoints_rebuild_has_an_id check ((rebuild is null) or (rebuild_id is not null))
) without rowid;

-- Events that a person let a projection leave out. A rebuild of the same version leaves them out too.
create table outlog_projection_skips (
    name       text    not null,
    version    integer not null,
    event_id   integer not null,
    skipped_at text    not null,
    primary key (name, version, event_id)
) without rowid;
