-- Projections: tables that are derived from the log (P1-P6). They are the user's own tables; here
-- is what outlog knows about them.

-- The definitions of outlog.yaml.
create table outlog_projections (
    name       text    primary key,
    version    integer not null check (version >= 1),
    definition text    not null,                          -- as written
    updated_at text    not null,
    constraint projections_name_length check (length(cast(name as blob)) between 1 and 48)
) without rowid;

-- The position of each projection. The row changes in the transaction that changes the tables (P1):
-- a worker that updates it names its epoch and the position it knows.
create table outlog_projection_checkpoints (
    name                  text    primary key,
    version               integer not null default 0,     -- of the live tables; 0: none yet
    definition            text,                           -- of the live tables; null: in C
    last_applied_event_id integer not null default 0 check (last_applied_event_id >= 0),
    error                 text,                           -- why it stopped
    rebuild               text,                           -- requested and not yet done
    rebuild_id            text,                           -- of the request; tables of older ones are dropped
    rebuild_event_id      integer not null default 0,     -- its last reported position
    rebuild_upto          integer not null default 0,     -- the settled position when it began
    rebuild_started_at    text,
    rebuild_error         text,
    status                text    generated always as (
        case when error is not null then 'stopped' when rebuild is not null then 'rebuilding'
             else 'running' end) stored,
    epoch                 integer not null default 0,
    owner                 text,                           -- a random id of the process run, never a name
    owner_name            text,
    lease_until           text,
    updated_at            text    not null,
    constraint projection_checkpoints_rebuild_is_known check (rebuild in ('in_place', 'aside')),
    constraint projection_checkpoints_rebuild_has_an_id check ((rebuild is null) or (rebuild_id is not null))
) without rowid;

-- Events that a person told a projection to skip. A rebuild of the same version skips them too.
create table outlog_projection_skips (
    name       text    not null,
    version    integer not null,
    event_id   integer not null,
    skipped_at text    not null,
    primary key (name, version, event_id)
) without rowid;
