-- The event log and the tables beside it. Everything is in the schema `outlog`.

-- Limits (E16) as types. PostgreSQL plans the check of a domain once per session. It parses a CHECK
-- of a table again in every INSERT, which for these limits cost more than the insert itself. "1 to
-- n bytes" is one comparison without sign, in which 0 - 1 is large: oid is the type without a sign.
-- Collation C compares names as bytes: it is fast, and an index survives a change of libc.
--= event sizes: create domain outlog.text_{max} as text collate "C"
--=+     constraint has_1_to_{max}_bytes check ((octet_length(value) - 1)::oid < {max}::oid);
create domain outlog.actor_type as text collate "C"
    constraint actor_type_is_known check (value in ('user', 'service_principal', 'system'));
create domain outlog.event_version as integer
    constraint event_version_starts_at_1 check (value >= 1);
create domain outlog.aggregate_seq as bigint
    constraint aggregate_seq_starts_at_1 check (value >= 1);
create domain outlog.object as json                               -- json, not jsonb: its bytes stay
    constraint is_an_object check (json_typeof(value) = 'object');

create table outlog.events (
    --= event columns: {name} {column},{note}
    constraint events_pkey primary key (event_id)
);

-- One index for every filter of E7, E8 and T3 (E15); each ends in event_id so that order is free.
-- A time window is first turned into a range of event_ids, by events_time alone.
create unique index events_id on outlog.events (id);
create unique index events_aggregate on outlog.events (aggregate_id, aggregate_type, org_id, aggregate_seq)
    nulls not distinct;         -- what differs first; it also serves a reader without an org
create index events_org on outlog.events (org_id, event_id);
create index events_infra on outlog.events (event_id) where org_id is null; -- events_org gives no order for null
create index events_time on outlog.events (occurred_at, event_id);
create index events_type on outlog.events (event_type, event_id);
create index events_correlation on outlog.events (correlation_id, event_id);
create index events_causation on outlog.events (causation_id, event_id) where causation_id is not null;
create index events_app on outlog.events (app_id, event_id) where app_id is not null;
create index events_env on outlog.events (env_id, event_id) where env_id is not null;
create index events_visibility on outlog.events (visibility, event_id) where visibility is not null;

-- The last sequence of every aggregate. Its row lock is what makes aggregate_seq gap-free: the
-- next appender of the same aggregate waits for this one to commit. '' means no org, so that
-- infrastructure aggregates are as unique as any org's.
create table outlog.heads (
    org_key        text collate "C" not null,
    aggregate_type text collate "C" not null,
    aggregate_id   text collate "C" not null,
    aggregate_seq  bigint           not null,
    constraint heads_pkey primary key (aggregate_id, aggregate_type, org_key)   -- what differs first
) with (fillfactor = 70);

create table outlog.consumers (
    name            text        primary key,
    cursor_event_id bigint      not null default 0,
    filters         json        not null default '{}',
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    constraint consumers_name_length check (octet_length(name) between 1 and 100),
    constraint consumers_cursor_is_a_position check (cursor_event_id >= 0)
) with (fillfactor = 50);

create table outlog.idempotency_records (
    org_key         text        not null,
    actor_id        text        not null,
    endpoint        text        not null,
    idempotency_key text        not null,
    request_hash    text        not null,
    response        text,                    -- null only inside the transaction that does the work
    created_at      timestamptz not null default now(),
    constraint idempotency_records_pkey primary key (org_key, actor_id, endpoint, idempotency_key)
);
create index idempotency_records_age on outlog.idempotency_records (created_at);

-- What the log knows about event types (E10, E11), and which orgs refuse unknown ones.
create table outlog.event_types (
    event_type     text    primary key,
    version        integer not null default 1,
    aggregate_type text,
    shape          json,
    upcast         json,
    about          text,
    is_builtin     boolean not null default false
);
create table outlog.strict_orgs (org_id text primary key);

-- Rules that keep secrets out (E13). `init` fills them; an operator may change the mode.
create table outlog.secret_rules (
    rule          text primary key,
    mode          text not null,
    is_key_name   boolean not null,     -- the pattern is about a member's name, the secret its string
    pattern       text not null,        -- its group is the secret
    entropy_min   double precision not null default 0,   -- bits a byte
    bytes_min     integer not null default 0,
    except_suffix text,                 -- how manuals end their examples
    mode_default  text not null default 'reject',   -- while no setting secrets.<rule> says another
    constraint secret_rules_mode_is_known check (mode in ('off', 'warn', 'reject'))
);

create type outlog.append_result as (
    event_id bigint, id uuid, aggregate_seq bigint, occurred_at timestamptz,
    correlation_id text, duplicate boolean);
