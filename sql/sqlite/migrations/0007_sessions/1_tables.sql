-- Live sessions; PostgreSQL's migration of the same name explains the tables.
create table outlog_sessions (
    org_id      text    not null,
    session_key text    not null,
    last_seq    integer not null,
    done_seq    integer not null default 0,
    checkpoint  text,
    tries       integer not null default 0,
    retry_at    text,
    last_error  text,
    failed_seq  integer,
    failed_at   text,
    owner       text,
    epoch       integer not null default 0,
    lease_until text,
    created_at  text    not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    updated_at  text    not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    primary key (org_id, session_key)) without rowid;
create index outlog_sessions_waiting on outlog_sessions (updated_at) where last_seq > done_seq;
create index outlog_sessions_newest on outlog_sessions (updated_at, session_key);
create index outlog_sessions_failed on outlog_sessions (failed_at) where failed_at is not null;

create table outlog_sessions_noted (
    is_only  integer primary key check (is_only = 1),
    event_id integer not null);
insert into outlog_sessions_noted values (1, 0);

create unique index outlog_effects_answer on outlog_effects (org_id, checkpoint_id)
    where session_key is not null and effect_type = 'send_message';
-- For listing pending answers of all sessions. It indexes a sum so that SQLite does not use it for
-- the order of one session, which has the index outlog_effects_session.
create index outlog_effects_owed on outlog_effects (event_id + 0)
    where session_key is not null and status in ('PENDING', 'EXECUTING');
create index outlog_effects_hurried on outlog_effects (hurried_at)
    where hurried_at is not null and session_key is not null and status in ('PENDING', 'EXECUTING');

create table outlog_tickets (
    hash        text primary key,
    org_id      text not null,
    session_key text not null,
    expires_at  text not null) without rowid;
