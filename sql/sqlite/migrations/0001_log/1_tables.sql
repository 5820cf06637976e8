-- The event log and the tables beside it, in the user's own database file.
-- Times are RFC 3339 text in UTC with microseconds, so they sort and read well.

create table outlog_events (
    --= event columns: {name} {column},{note}
    constraint events_aggregate_seq_starts_at_1 check (aggregate_seq >= 1),
    constraint events_event_version_starts_at_1 check (event_version >= 1),
    constraint events_actor_type_is_known      -- IN would build a b-tree for every row
        check (actor_type = 'user' or actor_type = 'service_principal' or actor_type = 'system'),
    constraint events_id_is_a_uuid check (length(cast(id as blob)) = 36),
    constraint events_lengths check (                   -- a null passes
        true
        --= event texts: and length(cast({name} as blob)) between 1 and {max}
    ),
    constraint events_payload_is_an_object check (
        (payload >= '{' and payload < '|') or substr(ltrim(payload, char(32, 9, 10, 13)), 1, 1) = '{')
);

-- One index for every filter of E7, E8 and T3 (E15). coalesce: no org is as unique as any org. The
-- index of aggregates begins with the column that differs most: an append compares it a dozen
-- times. event_id is the rowid, with which every index ends.
create unique index outlog_events_id on outlog_events (id);
create unique index outlog_events_aggregate
    on outlog_events (aggregate_id, aggregate_type, coalesce(org_id, ''), aggregate_seq);
create index outlog_events_org on outlog_events (org_id);
create index outlog_events_time on outlog_events (occurred_at);
create index outlog_events_type on outlog_events (event_type);
create index outlog_events_correlation on outlog_events (correlation_id);
create index outlog_events_causation on outlog_events (causation_id) where causation_id is not null;
create index outlog_events_app on outlog_events (app_id) where app_id is not null;
create index outlog_events_env on outlog_events (env_id) where env_id is not null;
create index outlog_events_visibility on outlog_events (visibility) where visibility is not null;

-- E1: nobody changes the past.
create trigger outlog_events_no_update before update on outlog_events begin
    select raise(abort, 'read_only: UPDATE of outlog_events: events are never changed or removed; append a correction that names the wrong one as its cause');
end;
create trigger outlog_events_no_delete before delete on outlog_events begin
    select raise(abort, 'read_only: DELETE of outlog_events: events are never changed or removed; append a correction that names the wrong one as its cause');
end;
-- INSERT OR REPLACE would delete without firing the trigger above unless recursive_triggers is on.
-- A trigger's own INSERT follows the conflict rule of the statement that fired it. So the row below
-- is inserted a second time under OR REPLACE alone, also where there was nothing to replace, and
-- then the whole statement is undone. An explicit OR ABORT, FAIL or ROLLBACK fails here by its own
-- rule: FAIL keeps the row, and a trigger AFTER INSERT cannot tell it from the others in another
-- way. A trigger BEFORE INSERT could, but it makes every row twice, which costs a tenth of an
-- append. To look for a conflict would be three searches per event.
create table outlog_replaced (say_insert_without_or integer primary key);
insert into outlog_replaced values (1);
create trigger outlog_replaced_is_refused after insert on outlog_replaced
begin
    select raise(abort, 'id_conflict: INSERT OR REPLACE: what is stored here is never replaced');
end;
create trigger outlog_replaced_stays before delete on outlog_replaced
begin
    select raise(abort, 'read_only: DELETE of outlog_replaced: without its row nothing can be inserted');
end;
create trigger outlog_events_no_replace after insert on outlog_events
begin
    insert or ignore into outlog_replaced values (1);
end;

-- The last number of each aggregate. SQLite has one writer at a time, so the events themselves show
-- it; in PostgreSQL it is a table whose rows are the locks.
create view outlog_heads as
select coalesce(org_id, '') as org_key, aggregate_type, aggregate_id, max(aggregate_seq) as aggregate_seq
  from outlog_events group by aggregate_id, aggregate_type, coalesce(org_id, '');

-- How far an unfinished import came: events above it did not come from the import.
create table outlog_import (only integer primary key check (only = 1), event_id integer not null);

create table outlog_consumers (
    name            text    primary key,
    cursor_event_id integer not null default 0 check (cursor_event_id >= 0),
    filters         text    not null default '{}',
    created_at      text    not null,
    updated_at      text    not null,
    constraint consumers_name_length check (length(cast(name as blob)) between 1 and 100)
) without rowid;

create table outlog_idempotency_records (
    org_key         text not null,
    actor_id        text not null,
    endpoint        text not null,
    idempotency_key text not null,
    request_hash    text not null,
    response        text,                                  -- null only inside the transaction that does the work
    created_at      text not null,
    primary key (org_key, actor_id, endpoint, idempotency_key)
) without rowid;
create index outlog_idempotency_records_age on outlog_idempotency_records (created_at);

-- What the log knows about event types (E10, E11), and which orgs refuse unknown ones.
create table outlog_event_types (
    event_type     text    primary key,
    version        integer not null default 1,
    aggregate_type text,
    shape          text,
    upcast         text,
    about          text,
    is_builtin     integer not null default 0
) without rowid;
create table outlog_strict_orgs (org_id text primary key) without rowid;

-- Rules that keep secrets out (E13). `init` fills them; an operator may change the mode.
create table outlog_secret_rules (
    rule          text primary key,
    mode          text not null check (mode in ('off', 'warn', 'reject')),
    is_key_name   integer not null,
    pattern       text not null,
    entropy_min   real not null default 0,
    bytes_min     integer not null default 0,
    except_suffix text,
    mode_default  text not null default 'reject'
) without rowid;
