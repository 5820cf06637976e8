-- Live sessions (S-1 … S-6): what was said is on the log, aggregate session/<session_key>; here stands how
-- far it has been answered. An answer is an effect with the session's key and no message of the outbox:
-- sockets deliver it.
create table outlog.sessions (
    org_id      text        not null,
    session_key text        not null,             -- userId:agentId:threadId
    last_seq    bigint      not null,             -- the newest event of the session that was noted
    done_seq    bigint      not null default 0,   -- answered up to here
    checkpoint  json,                             -- what the agent wants to see next time
    tries       integer     not null default 0,   -- of the message after done_seq
    retry_at    timestamptz,                      -- not before
    last_error  text,
    failed_seq  bigint,                           -- the newest message that got no answer
    failed_at   timestamptz,
    owner       uuid,                             -- the daemon that answers it now
    epoch       bigint      not null default 0,   -- grows with each owner: an older one cannot record
    lease_until timestamptz,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),
    primary key (org_id, session_key));
create index sessions_waiting on outlog.sessions (updated_at) where last_seq > done_seq;
create index sessions_newest on outlog.sessions (updated_at, session_key);
create index sessions_failed on outlog.sessions (failed_at) where failed_at is not null;

-- Sessions are a cursor on the log: what was said is noted from there, up to here, whoever appended it. An append
-- pays nothing for it, and a session's own row changes once for many messages.
create table outlog.sessions_noted (
    is_only  boolean primary key default true constraint sessions_noted_is_one_row check (is_only),
    event_id bigint  not null default 0);
insert into outlog.sessions_noted default values;

-- One answer to each message, whatever a second run of the agent says (S-4).
create unique index effects_answer on outlog.effects (org_id, checkpoint_id)
    where session_key is not null and effect_type = 'send_message';
-- For who looks around. Of a sum, that it is no order for who reads one session, which has an index of its own.
create index effects_owed on outlog.effects ((event_id + 0))
    where session_key is not null and status = 'PENDING';
create index effects_hurried on outlog.effects (hurried_at)
    where hurried_at is not null and session_key is not null and status = 'PENDING';

-- A ticket opens one session, once, for a short time.
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
