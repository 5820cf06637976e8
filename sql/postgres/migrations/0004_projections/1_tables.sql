-- Projections: tables that are derived from the log (P1-P6). They are the user's own tables; here
-- is what outlog knows about them.

-- The definitions of outlog.yaml.
create table outlog.projections (
    name       text        primary key,
    version    integer     not null,
    definition json        not null,                 -- as written
    updated_at timestamptz not null default now(),
    constraint projections_name_length check (octet_length(name) between 1 and 48),
    constraint projections_version_starts_at_1 check (version >= 1));

-- The position of each projection. The row changes in the transaction that changes the tables (P1),
-- and is their lock: a worker that updates it names its epoch and the position it knows.
create table outlog.projection_checkpoints (
    name                  text        primary key,
    version               integer     not null default 0,   -- of the live tables; 0: none yet
    definition            json,                             -- of the live tables; null: in C
    last_applied_event_id bigint      not null default 0,
    error                 json,                             -- why it stopped
    rebuild               text,                             -- requested and not yet done
    rebuild_id            text,                             -- of the request; tables of older ones are dropped
    rebuild_event_id      bigint      not null default 0,   -- its last reported position
    rebuild_upto          bigint      not null default 0,   -- the settled position when it began
    rebuild_started_at    timestamptz,
    rebuild_error         json,
    status                text        generated always as (
        case when error is not null then 'stopped' when rebuild is not null then 'rebuilding'
             else 'running' end) stored,
    epoch                 bigint      not null default 0,
    owner                 text,                             -- a random id of the process run, never a name
    owner_name            text,
    lease_until           timestamptz,
    updated_at            timestamptz not null default now(),
    constraint projection_checkpoints_cursor_is_a_position check (last_applied_event_id >= 0),
    constraint projection_checkpoints_rebuild_is_known check (rebuild in ('in_place', 'aside')),
    constraint projection_checkpoints_rebuild_has_an_id check ((rebuild is null) or (rebuild_id is not null))
) with (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

-- Events that a person told a projection to skip. A rebuild of the same version skips them too.
create table outlog.projection_skips (
    name       text        not null,
    version    integer     not null,
    event_id   bigint      not null,
    skipped_at timestamptz not null default now(),
    constraint projection_skips_pkey primary key (name, version, event_id));
