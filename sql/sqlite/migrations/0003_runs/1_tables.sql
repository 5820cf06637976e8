-- Orchestration: signals, runs, steps and checkpoints (U2). Each row is the result of its events;
-- it can be rebuilt from the log and compared with it (U3). Effects are in 0002.

create table outlog_signals (
    signal_id       text primary key,
    org_id          text,
    signal_type     text not null,
    payload         text,
    status          text not null check (status in ('RECEIVED', 'PROCESSING', 'PROCESSED', 'FAILED')),
    correlation_id  text not null,
    received_at     text not null,
    last_event_id   text not null) without rowid;          -- id of its newest event, the cause of the next

create table outlog_runs (
    run_id               text primary key,
    org_id               text,
    signal_id            text,
    run_type             text not null,
    orchestrator_version text not null,
    status               text not null check (status in ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    total_steps          integer not null default 0,       -- completed steps
    failed_steps         integer not null default 0,       -- failures, also of steps that succeeded later
    correlation_id       text not null,
    started_at           text not null,
    completed_at         text,
    started_event_id     text not null,                    -- the cause of its steps
    last_event_id        text not null) without rowid;     -- the newest outcome in it, the cause of its end
create index outlog_runs_org on outlog_runs (org_id, run_id);
create index outlog_runs_status on outlog_runs (status, run_id);

create table outlog_steps (
    step_id         text primary key,
    run_id          text not null,
    step_index      integer not null,
    step_type       text not null,
    status          text not null check (status in ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED')),
    output_result   text,
    error_code      text,
    error_message   text,
    duration_ms     integer,
    retry_count     integer not null default 0,
    started_at      text not null,
    completed_at    text,
    last_event_id   text not null) without rowid;          -- id of its newest event, the cause of a correction
create index outlog_steps_run on outlog_steps (run_id, step_index);

create table outlog_run_checkpoints (
    run_id           text not null,
    checkpoint_index integer not null,
    checkpoint_data  text,
    event_id         integer not null,                     -- of RUN_CHECKPOINT_CREATED; resume reads after it
    created_at       text not null,
    primary key (run_id, checkpoint_index)) without rowid;

-- The events of a run are those whose payload contains its run_id (U3). Events of other aggregates
-- are not in this index.
create index outlog_events_run on outlog_events (json_extract(payload, '$.run_id'), event_id)
    where aggregate_type = 'RUN' or aggregate_type = 'STEP' or aggregate_type = 'EFFECT';
