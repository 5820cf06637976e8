-- R3: which log this is. A restored backup gives out ids again that readers have seen already with
-- other events behind them. So the log has an identity, log_id, and a new epoch with a new one
-- begins where the log may have lost its end: after a crash, a failover, a restore, a copy.
--
-- An epoch shares its events up to began_after with the epoch before. So a cursor of an older epoch
-- stays valid up to there: a crash or a failover that lost nothing costs no reader anything.
create table outlog.log_epochs (
    epoch       integer     primary key,
    log_id      uuid        not null unique default gen_random_uuid(),
    began_after bigint      not null,
    began_at    timestamptz not null default now(),
    reason      text        not null,       -- created, server, crash or restored
    server      text        not null,       -- outlog.log_server() when it began
    started_at  timestamptz not null        -- when that server was started
);

-- The timeline and the table's oid of the newest epoch. Another timeline means that a standby was
-- promoted or a backup recovered, another oid that the table was made by pg_restore. Every INSERT
-- compares it, which takes a microsecond; to read a row of a table would take four.
create sequence outlog.log_marker minvalue 0;

-- PostgreSQL empties what is unlogged where it cannot know that it is whole: after a crash, and in
-- a copy of the files of a running server. So this has a row as long as nothing of that happened.
-- Only connections of outlog look at it. (An unlogged sequence breaks on a promoted standby.)
create unlogged table outlog.log_alive (is_alive boolean primary key);

-- log_mark: what outlog.log_marker should be now.
create function outlog.log_mark(events oid) returns bigint language sql volatile
    return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint << 32 | events::bigint;

-- log_server: where the log is: system identifier, timeline, database and table.
create function outlog.log_server() returns text language sql volatile
    security definer set search_path = pg_catalog, pg_temp as $$
    select concat_ws('/', (select system_identifier from pg_control_system()),
                     left(pg_walfile_name(pg_current_wal_lsn()), 8),
                     (select oid from pg_database where datname = current_database()),
                     'outlog.events'::regclass::oid)
$$;

-- note_log: begins a new epoch if this is another server or table, or if it has crashed.
-- Errors:     none; on a standby, and in a transaction that may not write, it does nothing.
-- Locks:      an advisory lock that is only tried: who does not get it leaves it to the other.
create function outlog.note_log() returns void language plpgsql volatile
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    here    text;
    mark    bigint;
    newest  outlog.log_epochs;
    crashed boolean;
begin
    if pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' then
        return;
    end if;
    here := outlog.log_server();
    mark := outlog.log_mark('outlog.events'::regclass);
    select * into newest from outlog.log_epochs order by epoch desc limit 1;
    crashed := not exists (select from outlog.log_alive);
    if newest.server = here and not (crashed and newest.started_at <> pg_postmaster_start_time()) then
        -- The epoch is committed, so the sequence, whose value no rollback undoes, can say so.
        if crashed then
            insert into outlog.log_alive values (true) on conflict do nothing;
        end if;
        if pg_sequence_last_value('outlog.log_marker') is distinct from mark then
            perform setval('outlog.log_marker', mark);
        end if;
        return;
    end if;
    if pg_try_advisory_xact_lock(7308332183) then
        insert into outlog.log_epochs (epoch, began_after, reason, server, started_at)
        select coalesce(newest.epoch, 0) + 1, coalesce((select max(event_id) from outlog.events), 0),
               case when newest.epoch is null then 'created' when newest.server <> here then 'server' else 'crash' end,
               here, pg_postmaster_start_time()
        on conflict do nothing;
    end if;
end $$;

-- is_server: the page that a statement returns comes from the server that gave the settled
-- position (P5). It belongs into the statement that reads: a pooler may send the next statement
-- elsewhere, and a standby that lags would return nothing.
-- Parameters: server  its start, as events_settled returned it
-- Returns:    true.
-- Errors:     read_only (on a standby); unavailable (another server).
create function outlog.is_server(server bigint) returns boolean language plpgsql volatile
    set search_path = pg_catalog, pg_temp as $$
begin
    if pg_is_in_recovery() then
        perform outlog.fail('read_only', 'a pooler sent this read to a standby, which may lag; let it send outlog''s '
            'statements to the primary');
    end if;
    if server <> (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint then
        perform outlog.fail('unavailable', 'the server changed between two statements; read again');
    end if;
    return true;
end $$;

-- log_limits: how far a cursor may be.
-- Parameters: log_id  the log_id that a reader kept with its cursor; null: unknown
-- Returns:    common: the position up to which this is the same log; -1: it is another one; null:
--             unknown. last: the highest event_id that was ever given out.
create function outlog.log_limits(log_id uuid, out common bigint, out last bigint) language plpgsql volatile
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    select case when is_called then last_value else 0 end into last from outlog.events_event_id_seq;
    if log_limits.log_id is not null then
        select coalesce(min(later.began_after), 9223372036854775807) into common
          from outlog.log_epochs mine left join outlog.log_epochs later on later.epoch > mine.epoch
         where mine.log_id = log_limits.log_id group by mine.epoch;
        common := coalesce(common, -1);
    end if;
end $$;

-- check_cursor: refuses a cursor that is not of this log. A reader that keeps its cursor outside
-- of the database calls it before it goes on.
-- Parameters: after   the event_id to continue after
--             log_id  the log_id that the reader kept with it; null: unknown
-- Errors:     beyond_log: expected is the cursor, actual is the position to go on after, or -1
--             where nothing of that log is here.
create function outlog.check_cursor(after bigint, log_id uuid default null) returns void language plpgsql volatile
    set search_path = pg_catalog, pg_temp as $$
declare
    known record := outlog.log_limits(log_id);
    upto  bigint := least(known.common, known.last);
begin
    if after > upto then
        perform outlog.fail('beyond_log', case when upto < 0
            then format('log %s is not this one, nor an earlier state of it; begin at 0', log_id)
            when log_id is null
            then format('event %s was never given out, the last is %s: the cursor is of another log, or this one was '
                        'restored; go on after an event that is in it', after, upto)
            else format('the log was restored, or lost its end: what you read up to %s is in it up to %s only; go on '
                        'from there', after, upto) end,
            json_build_object('expected', after, 'actual', upto));
    end if;
end $$;

-- begin_log: the operator knows that the store was restored: a new epoch, and ids go on above every
-- id that is known.
-- Parameters: above  the highest event_id that a reader outside of the store has; 0: unknown
-- Returns:    the new epoch.
-- Locks:      the table of events against writers, until the transaction ends.
create function outlog.begin_log(above bigint default 0) returns outlog.log_epochs language plpgsql volatile
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    made outlog.log_epochs;
begin
    lock table outlog.events in share row exclusive mode;
    insert into outlog.log_epochs (epoch, began_after, reason, server, started_at)
    select coalesce(max(epoch), 0) + 1, coalesce((select max(event_id) from outlog.events), 0), 'restored',
           outlog.log_server(), pg_postmaster_start_time() from outlog.log_epochs
    returning * into made;
    perform setval('outlog.events_event_id_seq', greatest(above, made.began_after, last_value), true)
       from outlog.events_event_id_seq where greatest(above, made.began_after) > 0;
    return made;
end $$;

select outlog.note_log();       -- the first epoch
select outlog.note_log();       -- and that it is known

revoke all on function outlog.log_mark(oid), outlog.log_server(), outlog.note_log(), outlog.is_server(bigint),
    outlog.log_limits(uuid), outlog.check_cursor(bigint, uuid), outlog.begin_log(bigint) from public;
do $$
declare
    reader text;
begin
    foreach reader in array array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin'] loop
        continue when not exists (select from pg_roles where rolname = reader);
        execute format('grant execute on function outlog.note_log(), outlog.is_server(bigint), '
            'outlog.log_limits(uuid), outlog.check_cursor(bigint, uuid) to %I', reader);
        execute format('grant select on outlog.log_epochs to %I', reader);
    end loop;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant execute on function outlog.begin_log(bigint) to outlog_admin;
    end if;
end $$;
