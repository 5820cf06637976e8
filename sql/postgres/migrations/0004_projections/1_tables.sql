-- Views that are derived from the log (P1-P6). The views themselves are the user's own tables.

-- What outlog.yaml declares.
create table outlog.projections (
    name       text        primary key,
    version    integer     not null,
    definition json        not null,                 -- as written
    updated_at timestamptz not null default now(),
    constraint projections_name_length check (octet_length(name) between 1 and 48),
    constraint projections_version_starts_at_1 check (version >= 1));

-- How far each view is. The row moves in the transaction that changes the view (P1), and is its lock:
-- whoever moves it names the epoch it was given and the position it knows.
create table outlog.projection_checkpoints (
    name                  text        primary key,
    version               integer     not null default 0,   -- of what is live; 0: nothing yet
    definition            json,                             -- what the live tables are made by; null: in C
    last_applied_event_id bigint      not null default 0,
    error                 json,                             -- why it stopped
    rebuild               text,                             -- asked for and not yet done
    rebuild_id            text,                             -- which request: what an older one left is thrown away
    rebuild_event_id      bigint      not null default 0,   -- how far, as last told
    rebuild_upto          bigint      not null default 0,   -- what was settled when it began
    rebuild_started_at    timestamptz,
    rebuild_error         json,
    status                text        generated always as (
        case when error is not null then 'stopped' when rebuild is not null then 'rebuilding' else 'running' end) stored,
    epoch                 bigint      not null default 0,
    owner                 text,                             -- a random id of the process run, never a name
    owner_name            text,
    lease_until           timestamptz,
    updated_at            timestamptz not null default now(),
    constraint projection_checkpoints_cursor_is_a_position check (last_applied_event_id >= 0),
    constraint projection_checkpoints_rebuild_is_known check (rebuild in ('in_place', 'aside')),
    constraint projection_checkpoints_rebuild_has_an_id check ((rebuild is null) or (rebuild_id is not null))
) with (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

-- Events that a person let a projection leave out. A rebuild of the same version leaves them out too.
create table outlog.projection_skips (
    name       text        not null,
    version    integer     not null,
    event_id   bigint      not null,
    skipped_at timestamptz not null default now(),
    constraint projection_skips_pkey primary key (name, version, event_id));
