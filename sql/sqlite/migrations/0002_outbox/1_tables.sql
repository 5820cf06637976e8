-- The outbox: immutable messages in one lane, and what the relay knows about them. See the
-- PostgreSQL migration of the same name for why; SQLite has one writer, so there are no gaps.

create table outlog_destinations (
    name       text    primary key,
    settings   text    not null,
    guarantee  text    not null default 'at_least_once' check (guarantee in ('at_least_once', 'at_most_once')),
    paused     integer not null default 0,
    on_dead    text    not null default 'skip' check (on_dead in ('skip', 'hold')),
    is_alert   integer not null default 0,
    updated_at text    not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    constraint destinations_name_length check (length(cast(name as blob)) between 1 and 100)
) without rowid;

create table outlog_routes (
    name           text primary key,
    pattern        text not null,              -- `on`, as GLOB
    is_audit       integer not null,
    org_id         text,
    aggregate_type text,
    condition      text,                       -- {"$.path": value}
    destination    text not null,
    ordering_key   text,
    source         text not null
) without rowid;

create table outlog_settings (
    key        text primary key,
    value      text not null,
    updated_at text not null) without rowid;

create table outlog_outbox (
    lane integer not null default 0,
    seq integer primary key autoincrement,       -- never used twice, also not after pruning
    --= message columns: {name} {column},{note}
    constraint outbox_has_one_payload check ((payload is null) <> (payload_bytes is null)),
    constraint outbox_event_id_is_a_uuid check (length(cast(event_id as blob)) = 36 and event_id not glob '*[^0-9a-f-]*'
        and event_id glob '????????-????-????-????-????????????'),
    constraint outbox_place_is_given_out check (lane = 0 and seq > 0),
    constraint outbox_max_attempts_is_positive check (max_attempts is null or
        typeof(max_attempts) = 'integer' and max_attempts between 1 and 2147483647),
    -- julianday() also takes a time of day, a number of days, and 'now'; it rounds up the last year
    constraint outbox_available_at_is_a_time check (available_at is null or case when typeof(available_at) = 'text'
        and available_at glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' and available_at >= '0001'
        then julianday(available_at) is not null or
             available_at glob '9999-12-31T23:59:59.999[0-9][0-9][0-9]Z' else 0 end),
    constraint outbox_causation_id_is_a_uuid check (causation_id is null or length(cast(causation_id as blob)) = 36
        and causation_id not glob '*[^0-9a-f-]*' and causation_id glob '????????-????-????-????-????????????'),
    constraint outbox_headers_are_an_object check (headers is null or json_type(headers) = 'object'),
    constraint outbox_metadata_is_an_object check (metadata is null or json_type(metadata) = 'object'),
    constraint outbox_lengths check (                   -- a null passes
        length(cast(coalesce(payload, payload_bytes) as blob)) <= 262144
        --= message texts: and length(cast({name} as blob)) between 1 and {max}
        --=| correlation_id:
    ),
    -- A blob equals no text, and a C string ends at a NUL: two names would look like one.
    constraint outbox_names_are_text check (
        typeof(max(''
        --= message texts: , coalesce({name}, '')
        --=| correlation_id:
        )) = 'text' and
        instr(''
        --= message texts: || coalesce({name}, '')
        --=| correlation_id:
        , char(0)) = 0),
    -- by itself: it may be filled in later, and then SQLite checks only what names it again
    constraint outbox_correlation_id_is_text check (correlation_id is null or typeof(correlation_id) = 'text' and
        length(cast(correlation_id as blob)) between 1 and 255 and instr(correlation_id, char(0)) = 0)
);
-- Headers are flat: a receiver cannot tell a nested value from a text that looks like JSON. SQLite
-- takes no names in such an error; outlog_enqueue() names the header. An import brings the rows of
-- another store as they are, at_most_once among them.
create trigger outlog_outbox_headers_are_flat before insert on outlog_outbox
when new.at_most_once is null and new.headers glob '*[{[]*[{[]*' and json_valid(new.headers)
begin
    select raise(abort, 'invalid_field: a header must be a string, a number or a boolean')
      from json_each(new.headers) where type in ('object', 'array');
end;

create unique index outlog_outbox_event_id on outlog_outbox (event_id);
create unique index outlog_outbox_key on outlog_outbox (coalesce(org_id, ''), destination, idempotency_key)
    where idempotency_key is not null;
create index outlog_outbox_trace on outlog_outbox (correlation_id);

create table outlog_outbox_keys (
    org_key         text not null,
    destination     text not null,
    idempotency_key text not null,
    event_id        text not null,
    kept_at         text not null,
    primary key (org_key, destination, idempotency_key)) without rowid;

create table outlog_lanes (
    lane        integer primary key,
    first_lane  integer not null default 0,    -- PostgreSQL has generations of lanes
    epoch       integer not null default 0,
    owner       text,
    owner_name  text,
    lease_until text,
    head        integer not null default 0,
    claim_from  integer,                       -- the open batch; null: none
    claim_to    integer,
    claim_no    integer not null default 0,
    claimed_at  text,
    parked_gen  integer not null default 0,
    trouble     text);
insert into outlog_lanes (lane) values (0);

-- A second cursor over the lane, for a destination that cannot take its messages as fast as the
-- lane comes to them. It owns the messages of its destination (and org) above `since`; the lane
-- passes them (rules 33 to 40).
create table outlog_side_cursors (
    lane        integer not null,
    destination text    not null,
    org_key     text    not null default '',   -- '': all orgs; ':' and an org_id: one of them
    since       integer not null,              -- where its parent was when it was opened
    head        integer not null,              -- what it owns up to here was taken into account
    claim_from  integer,                       -- the open batch: what it owns of these numbers
    claim_to    integer,
    claim_no    integer not null default 0,
    claimed_at  text,
    opened_at   text    not null,
    epoch       integer not null,              -- of the lane, when its owner took it
    constraint side_cursors_begin_at_since check (since <= head),
    primary key (lane, destination, org_key)) without rowid;

create table outlog_parked (
    lane         integer not null default 0,
    seq          integer primary key,
    attempts     integer not null,
    unsent       integer not null default 0,
    budget_from  integer not null default 0,
    state        text    not null check (state in ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD')),
    held         integer not null default 0,
    is_replay    integer not null default 0,
    available_at text    not null,
    claimed_at   text,
    lease_until  text,
    published_at text,
    updated_at   text    not null,
    destination  text    not null,
    ordering_key text,
    claimed_by   text,
    last_error   text,
    constraint parked_claimed_fields_iff_claimed check (
        (state = 'CLAIMED') = (claimed_at is not null) and (state = 'CLAIMED') = (claimed_by is not null)
        and (state = 'CLAIMED') = (lease_until is not null)),
    constraint parked_published_at_iff_published check ((state = 'PUBLISHED') = (published_at is not null)),
    constraint parked_held_only_dead check (not held or state = 'DEAD'),
    constraint parked_counts check (
        attempts >= 0 and unsent between 0 and attempts and budget_from between 0 and attempts));
create index outlog_parked_due on outlog_parked (destination, available_at)
    where state = 'PENDING' and ordering_key is null;
create index outlog_parked_open_keys on outlog_parked (destination, ordering_key, seq)
    where ordering_key is not null and (state in ('PENDING', 'CLAIMED') or held);
create index outlog_parked_claims on outlog_parked (lease_until) where state = 'CLAIMED';
create index outlog_parked_pending on outlog_parked (available_at) where state = 'PENDING';
create index outlog_parked_by_state on outlog_parked (state, seq, destination);
create index outlog_parked_lately on outlog_parked (published_at) where published_at is not null;
create index outlog_parked_troubles on outlog_parked (destination, updated_at)
    where last_error is not null and state in ('PENDING', 'CLAIMED', 'DEAD');

create table outlog_batches (
    lane         integer not null default 0,
    destination  text    not null default '',  -- of a side cursor; '': of the lane itself
    org_key      text    not null default '',
    from_seq     integer not null,
    to_seq       integer not null,
    claimed_by   text    not null,
    claimed_at   text    not null,
    published_at text    not null,
    primary key (destination, org_key, to_seq, from_seq)) without rowid;
create index outlog_batches_lately on outlog_batches (published_at);

create table outlog_attempts (
    lane        integer not null default 0,
    seq         integer not null,
    attempt     integer not null,
    started_at  text    not null,
    duration_ms integer not null,
    outcome     text    not null check (outcome in ('ok', 'failed', 'unknown', 'released')),
    status      integer,
    permanent   integer not null default 0,
    response    text,
    error       text,
    claimed_by  text    not null,
    recorded_at text,
    primary key (seq, attempt)) without rowid;
create index outlog_attempts_lately on outlog_attempts (recorded_at) where outcome in ('failed', 'unknown');

create table outlog_relays (
    run          text primary key,
    name         text not null,
    started_at   text not null,
    heartbeat_at text not null) without rowid;

create table outlog_owners (
    run       text    primary key,
    kind      text    not null check (kind in ('relay', 'sinks', 'projector', 'agents')),
    name      text    not null,
    lease_us  integer not null,
    margin_us integer not null,
    boot_id   text,
    device    integer,
    inode     integer,
    lock_key  integer,                         -- PostgreSQL has sessions that end
    confidence_us integer,
    lost_key  integer,
    died_at   text,
    seen_at   text    not null,
    constraint owners_run_file_is_whole check (
        (boot_id is null) = (device is null) and (boot_id is null) = (inode is null))) without rowid;

create table outlog_breakers (
    run         text not null,
    destination text not null,
    state       text not null check (state in ('open', 'half_open', 'unusable')),
    updated_at  text not null,
    retry_at    text,
    detail      text,
    primary key (run, destination)) without rowid;

create table outlog_successes (
    destination text primary key,
    last_ok_at  text not null) without rowid;

create table outlog_effects (
    effect_id        text primary key,
    org_id           text,
    run_id           text,
    step_id          text,
    session_key      text,
    checkpoint_id    text,
    effect_type      text not null,
    effect_spec      text not null,
    destination      text not null,
    status           text not null default 'PENDING' check (status in ('PENDING', 'EXECUTING', 'COMPLETED', 'FAILED')),
    idempotency_key  text not null,
    message_id       text unique,
    execution_result text,
    executed_at      text,
    attempts         integer not null default 0,
    last_attempt_at  text,
    hurried_at       text,
    event_id         integer not null,
    last_event_id    text not null,
    correlation_id   text not null,
    created_at       text not null,
    updated_at       text not null) without rowid;
create index outlog_effects_run on outlog_effects (run_id) where run_id is not null;
create index outlog_effects_session on outlog_effects (session_key, event_id) where session_key is not null;
