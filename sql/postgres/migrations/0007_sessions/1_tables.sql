-- Live sessions (S-1 … S-6). Messages of a session are events of the aggregate
-- session/<session_key>; a row here holds up to where they were answered. An answer is an effect
-- with the session's key; it has no message in the outbox, because sockets deliver it.
create table outlog.sessions (
    org_id      text        not null,
    session_key text        not null,             -- userId:agentId:threadId
    last_seq    bigint      not null,             -- aggregate_seq of its newest known event
    done_seq    bigint      not null default 0,   -- answered up to here
    checkpoint  json,                             -- what the agent gets back with its next call
    tries       integer     not null default 0,   -- of the message after done_seq
    retry_at    timestamptz,                      -- no attempt before this time
    last_error  text,
    failed_seq  bigint,                           -- the newest message that was given up
    failed_at   timestamptz,
    owner       uuid,                             -- the daemon that runs the agent now
    epoch       bigint      not null default 0,   -- grows with each owner; fences the former one
    lease_until timestamptz,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),
    primary key (org_id, session_key));
create index sessions_waiting on outlog.sessions (updated_at) where last_seq > done_seq;
create index sessions_newest on outlog.sessions (updated_at, session_key);
create index sessions_failed on outlog.sessions (failed_at) where failed_at is not null;

-- Daemons find new messages of sessions by reading the log; this is their cursor. So it does not
-- matter who appended a message, an append costs nothing extra, and a session's row changes once
-- for many messages.
create table outlog.sessions_noted (
    is_only  boolean primary key default true constraint sessions_noted_is_one_row check (is_only),
    event_id bigint  not null default 0);
insert into outlog.sessions_noted default values;

-- One answer per message, also when the agent runs twice (S-4).
create unique index effects_answer on outlog.effects (org_id, checkpoint_id)
    where session_key is not null and effect_type = 'send_message';
-- For listing pending answers of all sessions. It indexes a sum so that the planner does not use it
-- for the order of one session, which has the index effects_session.
create index effects_owed on outlog.effects ((event_id + 0))
    where session_key is not null and status in ('PENDING', 'EXECUTING');
create index effects_hurried on outlog.effects (hurried_at)
    where hurried_at is not null and session_key is not null and status in ('PENDING', 'EXECUTING');

-- A ticket lets one socket into one session, once, for a short time.
create table outlog.tickets (
    hash        text        primary key,
    org_id      text        not null,
    session_key text        not null,
    expires_at  timestamptz not null);

select outlog.confine('outlog.sessions');
do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant select, insert, update on outlog.sessions, outlog.effects to outlog_relay;
        grant select, update on outlog.sessions_noted to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant select, insert, update, delete on outlog.sessions, outlog.tickets, outlog.effects to outlog_admin;
        grant select, update on outlog.sessions_noted to outlog_admin;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_read') then
        grant select on outlog.sessions, outlog.sessions_noted to outlog_read;
    end if;
end $$;
