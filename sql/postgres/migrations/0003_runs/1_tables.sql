-- Orchestration: signals, runs, steps and checkpoints (U2). Each row is the result of its events;
-- it can be rebuilt from the log and compared with it (U3). Effects are in 0002.

create table outlog.signals (
    signal_id       text collate "C" primary key,
    org_id          text collate "C",
    signal_type     text        not null,
    payload         json,
    status          text        not null,
    correlation_id  text        not null,
    received_at     timestamptz not null,
    last_event_id   uuid        not null,          -- id of its newest event, the cause of the next
    constraint signals_status_is_known check (status in ('RECEIVED', 'PROCESSING', 'PROCESSED', 'FAILED'))
) with (fillfactor = 80);

create table outlog.runs (
    run_id               text collate "C" primary key,
    org_id               text collate "C",
    signal_id            text collate "C",
    run_type             text        not null,
    orchestrator_version text        not null,
    status               text        not null,
    total_steps          integer     not null default 0,     -- completed steps
    failed_steps         integer     not null default 0,     -- failures, also of steps that succeeded later
    correlation_id       text        not null,
    started_at           timestamptz not null,
    completed_at         timestamptz,
    started_event_id     uuid        not null,     -- the cause of its steps
    last_event_id        uuid        not null,     -- the newest outcome in it, the cause of its end
    constraint runs_status_is_known check (status in ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED'))
) with (fillfactor = 70);
create index runs_org on outlog.runs (org_id, run_id);
create index runs_status on outlog.runs (status, run_id);

create table outlog.steps (
    step_id         text collate "C" primary key,
    run_id          text collate "C" not null,
    step_index      integer     not null,
    step_type       text        not null,
    status          text        not null,
    output_result   json,
    error_code      text,
    error_message   text,
    duration_ms     bigint,
    retry_count     integer     not null default 0,
    started_at      timestamptz not null,
    completed_at    timestamptz,
    last_event_id   uuid        not null,          -- id of its newest event, the cause of a correction
    constraint steps_status_is_known check (status in ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED'))
) with (fillfactor = 70);
create index steps_run on outlog.steps (run_id, step_index);

create table outlog.run_checkpoints (
    run_id           text collate "C" not null,
    checkpoint_index integer     not null,
    checkpoint_data  json,
    event_id         bigint      not null,         -- of RUN_CHECKPOINT_CREATED; resume reads after it
    created_at       timestamptz not null,
    constraint run_checkpoints_pkey primary key (run_id, checkpoint_index)
);

-- The events of a run are those whose payload contains its run_id (U3). Events of other aggregates
-- are not in this index.
create index events_run on outlog.events ((payload ->> 'run_id'), event_id)
    where aggregate_type in ('RUN', 'STEP', 'EFFECT');
