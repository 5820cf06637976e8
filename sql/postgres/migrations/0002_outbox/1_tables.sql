-- The outbox: immutable messages in lanes, and what the relay knows about them.
--
-- A message on the plain path has no state of its own: it is above the lane's head (PENDING), in
-- its claim (CLAIMED), or below (PUBLISHED). Only a message that failed gets a row in `parked`.

create table outlog.destinations (
    name       text        primary key,
    settings   json        not null,               -- as written; ${NAME} is read where the delivery runs
    guarantee  text        not null default 'at_least_once',
    paused     boolean     not null default false,
    on_dead    text        not null default 'skip',
    is_alert   boolean     not null default false, -- dead letters are reported here
    updated_at timestamptz not null default now(),
    constraint destinations_name_length check (octet_length(name) between 1 and 100),
    constraint destinations_guarantee_is_known check (guarantee in ('at_least_once', 'at_most_once')),
    constraint destinations_on_dead_is_known check (on_dead in ('skip', 'hold'))
);

create table outlog.routes (
    name           text    primary key,            -- made from its content: the same route is the same row
    pattern        text    not null,               -- `on`, as LIKE
    is_audit       boolean not null,               -- begins with outlog.: only such routes see audit events
    org_id         text,
    aggregate_type text,
    condition      json,                           -- {"/path": value}: all must be equal
    destination    text    not null,
    ordering_key   text,                           -- null: the aggregate
    source         json    not null                -- as written in outlog.yaml
);

-- What outlog.yaml holds beside destinations and routes, one value per row: `types.SEND_EMAIL`,
-- `relay.lease`, `alerts.to`, `retention.messages`.
create table outlog.settings (
    key        text        primary key,
    value      json        not null,
    updated_at timestamptz not null default now());

-- Which lanes new messages go to. A new generation takes over when the number changes.
create table outlog.lane_plan (
    generation integer    primary key,
    first_lane smallint   not null,
    lane_count smallint   not null,
    sequences  regclass[] not null,          -- one per lane; CACHE must stay 1
    is_current boolean    not null);
create unique index lane_plan_has_one_current on outlog.lane_plan (is_current) where is_current;
do $$ begin
    for i in 0 .. 7 loop
        execute format('create sequence outlog.lane_%s_seq cache 1', i);
    end loop;
end $$;
insert into outlog.lane_plan
select 1, 0, 8, array_agg(format('outlog.lane_%s_seq', i)::regclass order by i), true from generate_series(0, 7) i;

-- Limits are domains: PostgreSQL parses the CHECK of a table again in every statement, that of a
-- domain once per session, and most statements insert one message. What other tables are looked up
-- by has their collation: an index of another collation would not serve.
--= message sizes: create domain outlog.message_{max} as text
--=+     constraint has_1_to_{max}_bytes check (octet_length(value) between 1 and {max});
create domain outlog.message_text as text
    constraint has_at_most_262144_bytes check (octet_length(value) <= 262144);
create domain outlog.message_bytes as bytea
    constraint has_at_most_262144_bytes check (octet_length(value) <= 262144);
create domain outlog.message_attempts as integer
    constraint is_positive check (value > 0);
create domain outlog.message_time as timestamptz          -- one that every interface can write: no infinity
    constraint has_a_year_of_four_digits check (value >= '0001-01-01Z' and value < '10000-01-01Z');

create table outlog.outbox (
    lane smallint not null,
    seq bigint not null,
    --= message columns: {name} {column},{note}
    constraint outbox_pkey primary key (lane, seq),
    constraint outbox_has_one_payload check ((payload is null) <> (payload_bytes is null))
) with (fillfactor = 100);
create unique index outbox_event_id on outlog.outbox (event_id);
create unique index outbox_key on outlog.outbox (org_id, destination, idempotency_key)
    nulls not distinct where idempotency_key is not null;
create index outbox_trace on outlog.outbox (correlation_id);

-- Keys of messages that retention has removed: a repeat is still a repeat (I5).
create table outlog.outbox_keys (
    org_key         text not null,
    destination     text not null,
    idempotency_key text not null,
    event_id        uuid not null,
    kept_at         timestamptz not null default now(),
    constraint outbox_keys_pkey primary key (org_key, destination, idempotency_key));

-- One row per lane, and the lane's only lock.
create table outlog.lanes (
    lane        smallint       primary key,
    first_lane  smallint       not null default 0,  -- of its generation: lanes below it are older
    epoch       bigint         not null default 0,
    owner       text,                               -- a random id of the process run, never a name
    owner_name  text,
    lease_until timestamptz,
    head        bigint         not null default 0,  -- the highest seq ever taken into account
    gaps        int8multirange not null default '{}',  -- numbers <= head not seen and not known dead
    claim       int8multirange not null default '{}',  -- the open batch
    claim_no    bigint         not null default 0,
    claimed_at  timestamptz,
    parked_gen  bigint         not null default 0,  -- raised by every writer of parked rows but the owner
    trouble     text                                -- why the owner cannot write its turns; null: it can
) with (fillfactor = 10, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);
insert into outlog.lanes (lane) select generate_series(0, 7);

-- A second cursor over a lane, for a destination that cannot take its messages as fast as the lane
-- comes to them. It owns the messages of its destination (and org) above `since`; the lane passes
-- them. Written under the lane's lock (rules 33 to 40).
create table outlog.side_cursors (
    lane        smallint       not null,
    destination text           not null,
    org_key     text           not null default '',    -- '': all orgs; ':' and an org_id: one of them
    since       bigint         not null,               -- where its parent was when it was opened
    head        bigint         not null,               -- what it owns up to here was taken into account
    claim       int8multirange not null default '{}',  -- the open batch: what it owns of these numbers
    claim_no    bigint         not null default 0,
    claimed_at  timestamptz,
    opened_at   timestamptz    not null default now(),
    constraint side_cursors_pkey primary key (lane, destination, org_key),
    constraint side_cursors_begin_at_since check (since <= head)
) with (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);

-- A message that left the plain path. Its row stays, as PUBLISHED or DEAD, until retention.
create table outlog.parked (
    lane         smallint    not null,
    seq          bigint      not null,
    attempts     integer     not null,
    unsent       integer     not null default 0,    -- claims that were never sent: not counted against the budget
    budget_from  integer     not null default 0,    -- attempts at the last requeue: the budget counts from here
    state        text        not null,
    held         boolean     not null default false, -- DEAD, and its key waits for a person
    is_replay    boolean     not null default false,
    available_at timestamptz not null,
    claimed_at   timestamptz,
    lease_until  timestamptz,
    published_at timestamptz,
    updated_at   timestamptz not null default now(),
    destination  text        not null,
    ordering_key text,
    claimed_by   text,
    last_error   text,
    constraint parked_pkey primary key (lane, seq),
    constraint parked_state_is_known check (state in ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD')),
    constraint parked_claimed_fields_iff_claimed check (
        (state = 'CLAIMED') = (claimed_at is not null) and (state = 'CLAIMED') = (claimed_by is not null)
        and (state = 'CLAIMED') = (lease_until is not null)),
    constraint parked_published_at_iff_published check ((state = 'PUBLISHED') = (published_at is not null)),
    constraint parked_held_only_dead check (not held or state = 'DEAD'),
    constraint parked_counts check (
        attempts >= 0 and unsent between 0 and attempts and budget_from between 0 and attempts)
) with (fillfactor = 70, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
create index parked_due on outlog.parked (lane, destination, available_at)
    where state = 'PENDING' and ordering_key is null;
create index parked_open_keys on outlog.parked (lane, destination, ordering_key, seq)
    where ordering_key is not null and (state in ('PENDING', 'CLAIMED') or held);
create index parked_claims on outlog.parked (lane, lease_until) where state = 'CLAIMED';
create index parked_by_state on outlog.parked (state, lane, seq) include (destination);
create index parked_lately on outlog.parked (published_at) where published_at is not null;
create index parked_troubles on outlog.parked (destination, updated_at)
    where last_error is not null and state in ('PENDING', 'CLAIMED', 'DEAD');

-- What was recorded as published, range by range; insert only. The batch of a side cursor counts
-- for the messages that it owned in its range.
create table outlog.batches (
    lane         smallint    not null,
    destination  text        not null default '',    -- '': of the lane itself
    org_key      text        not null default '',
    from_seq     bigint      not null,
    to_seq       bigint      not null,
    claimed_by   text        not null,
    claimed_at   timestamptz not null,
    published_at timestamptz not null,
    constraint batches_pkey primary key (lane, destination, org_key, to_seq, from_seq));
create index batches_lately on outlog.batches (published_at);

-- Every attempt, where R4 asks for a row of its own.
create table outlog.attempts (
    lane        smallint    not null,
    seq         bigint      not null,
    attempt     integer     not null,
    started_at  timestamptz not null,
    duration_ms integer     not null,
    outcome     text        not null,
    status      integer,
    permanent   boolean     not null default false,
    response    text,
    error       text,
    claimed_by  text        not null,
    recorded_at timestamptz not null default now(),
    constraint attempts_pkey primary key (lane, seq, attempt),
    constraint attempts_outcome_is_known check (outcome in ('ok', 'failed', 'unknown', 'released')));
create index attempts_lately on outlog.attempts (recorded_at) where outcome in ('failed', 'unknown');

-- Relays that are alive; lanes are shared among them.
create table outlog.relays (
    run          text        primary key,
    name         text        not null,
    started_at   timestamptz not null default now(),
    heartbeat_at timestamptz not null default now()) with (fillfactor = 50);

-- Runs that own lanes, sinks, projections or sessions, with what lets others find out that one has
-- ended. A run id is random and never comes back, so died_at stays true.
create table outlog.owners (
    run       text        primary key,
    kind      text        not null,                -- relay, sinks, projector, agents
    name      text        not null,                -- for people
    lease_us  bigint      not null,
    margin_us bigint      not null,
    boot_id   text,                                -- where its run file is; null: it has none
    device    bigint,
    inode     bigint,
    lock_key  bigint,                              -- its session holds this advisory lock; null: none
    confidence_us bigint,                          -- how long it sends without an answer of that session
    lost_key  bigint,                              -- somebody has seen this key free for longer than that
    died_at   timestamptz,
    seen_at   timestamptz not null default now(),
    constraint owners_kind_is_known check (kind in ('relay', 'sinks', 'projector', 'agents')),
    constraint owners_run_file_is_whole check (
        (boot_id is null) = (device is null) and (boot_id is null) = (inode is null)));

-- Breakers that are not closed, as each relay sees them.
create table outlog.breakers (
    run         text        not null,
    destination text        not null,
    state       text        not null,
    updated_at  timestamptz not null default now(),
    retry_at    timestamptz,                      -- open: when it is tried again
    detail      text,                             -- unusable: why
    constraint breakers_pkey primary key (run, destination),
    constraint breakers_state_is_known check (state in ('open', 'half_open', 'unusable'))) with (fillfactor = 50);

-- When a destination last took a message; relays write it once per second.
create table outlog.successes (
    destination text        primary key,
    last_ok_at  timestamptz not null) with (fillfactor = 50);

create table outlog.effects (
    effect_id        uuid        primary key,
    org_id           text,
    run_id           text,
    step_id          text,
    session_key      text,
    checkpoint_id    text,
    effect_type      text        not null,
    effect_spec      json        not null,
    destination      text        not null,
    status           text        not null default 'PENDING',
    idempotency_key  text        not null,
    message_id       uuid,                          -- null: a session's, which no message brings
    execution_result json,
    executed_at      timestamptz,
    attempts         integer     not null default 0,
    last_attempt_at  timestamptz,
    hurried_at       timestamptz,                   -- a session's: an operator asked for it to be sent now
    event_id         bigint      not null,          -- of its EFFECT_REQUESTED: the order of effects
    last_event_id    uuid        not null,          -- of its newest event: the cause of the next
    correlation_id   text        not null,
    created_at       timestamptz not null default now(),
    updated_at       timestamptz not null default now(),
    constraint effects_status_is_known check (status in ('PENDING', 'EXECUTING', 'COMPLETED', 'FAILED')));
create unique index effects_message on outlog.effects (message_id);
create index effects_run on outlog.effects (run_id) where run_id is not null;
create index effects_session on outlog.effects (session_key, event_id) where session_key is not null;
create index parked_pending on outlog.parked (lane, available_at) where state = 'PENDING';
