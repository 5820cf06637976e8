-- The event log and what stands beside it. Everything lives in the schema `outlog`.

create table outlog.events (
    event_id        bigint generated always as identity,          -- the global order (E3)
    occurred_at     timestamptz not null default clock_timestamp(),
    aggregate_seq   bigint      not null,                         -- 1, 2, 3 … per aggregate (E4)
    event_version   integer     not null default 1,
    id              uuid        not null,
    causation_id    uuid,
    org_id          text,                                         -- null: infrastructure
    aggregate_type  text        not null,
    aggregate_id    text        not null,
    event_type      text        not null,
    actor_type      text        not null,
    actor_id        text        not null,
    request_id      text        not null,
    correlation_id  text        not null,
    idempotency_key text,
    app_id          text,
    env_id          text,
    visibility      text,
    metadata        json,
    payload         json        not null,                         -- json, not jsonb: bytes as they came
    constraint events_pkey primary key (event_id),
    constraint events_aggregate_seq_starts_at_1 check (aggregate_seq >= 1),
    constraint events_event_version_starts_at_1 check (event_version >= 1),
    constraint events_actor_type_is_known check (actor_type in ('user', 'service_principal', 'system')),
    constraint events_lengths check (
        octet_length(event_type)     between 1 and 100 and
        octet_length(aggregate_type) between 1 and 50  and
        octet_length(aggregate_id)   between 1 and 255 and
        octet_length(actor_id)       between 1 and 100 and
        octet_length(request_id)     between 1 and 255 and
        octet_length(correlation_id) between 1 and 255 and
        (org_id          is null or octet_length(org_id)          between 1 and 100) and
        (idempotency_key is null or octet_length(idempotency_key) between 1 and 512) and
        (app_id          is null or octet_length(app_id)          between 1 and 100) and
        (env_id          is null or octet_length(env_id)          between 1 and 100) and
        (visibility      is null or octet_length(visibility)      between 1 and 100)),
    constraint events_payload_is_an_object check (json_typeof(payload) = 'object'),
    constraint events_metadata_is_an_object check (metadata is null or json_typeof(metadata) = 'object')
);

-- One index for every filter of E7, E8 and T3 (E15); each ends in event_id so that order is free.
-- A time window is first turned into a range of event_ids, by events_time alone.
create unique index events_id on outlog.events (id);
create unique index events_aggregate on outlog.events (aggregate_type, aggregate_id, org_id, aggregate_seq)
    nulls not distinct;         -- in this order it also serves whoever does not name the org
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
-- next appender of the same aggregate waits for this one to commit. '' stands for no org, so that
-- infrastructure aggregates are as unique as any org's.
create table outlog.heads (
    org_key        text   not null,
    aggregate_type text   not null,
    aggregate_id   text   not null,
    aggregate_seq  bigint not null,
    constraint heads_pkey primary key (org_key, aggregate_type, aggregate_id)
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
    constraint secret_rules_mode_is_known check (mode in ('off', 'warn', 'reject'))
);

create type outlog.append_result as (
    event_id bigint, id uuid, aggregate_seq bigint, occurred_at timestamptz,
    correlation_id text, duplicate boolean);
