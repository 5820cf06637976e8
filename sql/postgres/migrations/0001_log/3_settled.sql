-- E6: a reader must never pass an event that can still appear. Ids are taken before commit, so a
-- lower id may become visible after a higher one.
--
-- Before a transaction inserts its first event it takes a shared advisory lock. The key is the last
-- value of the sequence at that moment, so all ids of the transaction will be above it. The lock
-- ends with the transaction. So nobody can still insert an event at or below the lowest such key.
--
-- The order of the reads is the proof. settled() reads last_value first and the locks second. A
-- writer that took an id at or below last_value before that either still holds its lock, and
-- settled() sees it, or has ended, and a later snapshot contains its rows. A writer that locks
-- after settled() read the locks takes its ids above last_value.
--
-- Key: 16 bits 0x6f4c, 48 bits position. A statement trigger fires before the identity default is
-- evaluated, for INSERT … SELECT and COPY as well.
--
-- Every login can take any advisory lock, so a key alone proves nothing (R5). A writer also holds
-- ROW EXCLUSIVE on outlog.events, which needs the right to write that table: it takes this lock
-- before its trigger runs, and both end with the transaction, or with the savepoint. settled()
-- counts a key only where the same transaction holds both. The proof needs no atomic view of the
-- two: a writer that took an id at or below last_value held both locks when settled() began to read
-- the locks, and holds both until it ends. The transactions of PREPARE TRANSACTION keep both.
--
-- A stranger's exclusive lock on the key would stop a writer. The writer then takes a key with a
-- lower position, which holds readers back a little further and is as safe.

-- This runs with every INSERT. It consists of plain calls, for which plpgsql needs no query.
create function outlog.hold_settled() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    mine text   := pg_current_xact_id()::text || ' ';
    held text   := current_setting('outlog.holds', true);   -- 'xid position' of an earlier statement
    at   bigint := coalesce(pg_sequence_last_value('outlog.events_event_id_seq'), 0);
    done text;
    tries integer := 0;
begin
    -- A later statement takes the lock of the first again, so a transaction has one lock and not
    -- thousands. Rolling back to a savepoint undoes the setting, and the lock that was taken
    -- inside. Every client can write the setting, so it may only lower the position.
    if starts_with(held, mine) then
        at := least(at, greatest(0, substr(held, length(mine) + 1)::bigint));
    else
        done := set_config('outlog.holds', mine || at, true);
        -- As outlog.log_mark(), without a call: before ids of a lost end are given out again (R3).
        if pg_sequence_last_value('outlog.log_marker') is distinct from
           ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint << 32 | tg_relid::bigint then
            perform outlog.note_log();
        end if;
    end if;
    while not pg_try_advisory_xact_lock_shared(28492::bigint << 48 | at) loop
        tries := tries + 1;
        at := greatest(0, at - (random() * tries * 1000)::bigint);
        if tries = 100 then
            perform outlog.fail('unavailable', 'another session holds the advisory locks of outlog.events; '
                                '`outlog doctor` names it');
        end if;
    end loop;
    return null;
end $$;

create trigger events_hold_settled before insert on outlog.events
    for each statement execute function outlog.hold_settled();
alter table outlog.events enable always trigger events_hold_settled;

-- settled: the highest event_id that a reader may pass: below it no event can still appear.
-- Returns:    the event_id of the last settled event, 0 when there is none. Call it before the
--             read: in one statement with the read, or in a transaction that keeps its first
--             snapshot, the rows would be older than the answer.
-- Errors:     read_only (on a standby, which cannot see the writers); misuse (not READ COMMITTED).
-- Locks:      none.
--
-- The result is the id of an event, never that of a gap. An id that a rolled-back transaction took
-- at the end of the sequence is given out a second time when the server crashes before it logged
-- the sequence's value. A committed event is logged, and with it every number below its own.
create function outlog.settled() returns bigint language plpgsql volatile
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    last bigint;
    held bigint;
begin
    if pg_is_in_recovery() then
        perform outlog.fail('read_only', 'a standby does not know which events are settled; ask the primary');
    end if;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform outlog.fail('misuse',
                            'reading the log needs READ COMMITTED: an older snapshot would miss events');
    end if;
    select case when is_called then last_value else 0 end into last from outlog.events_event_id_seq;
    with locks as materialized (        -- read once
        select locktype, virtualtransaction as holder, (classid::bigint & 65535) << 32 | objid::bigint as at
          from pg_locks
         where (locktype = 'advisory' and objsubid = 1 and classid::bigint >> 16 = 28492
                or locktype = 'relation' and relation = 'outlog.events'::regclass and mode = 'RowExclusiveLock')
           and granted and database = (select oid from pg_database where datname = current_database()))
    select min(l.at) into held from locks l
     where l.locktype = 'advisory' and l.holder in (select w.holder from locks w where w.locktype = 'relation');
    return coalesce((select max(e.event_id) from outlog.events e where e.event_id <= least(last, held)), 0);
end $$;

-- read: reads settled events in order: the safe read for plain SQL, in one call.
-- Parameters: after     the event_id to continue after; 0: from the beginning
--             max_rows  how many rows at most
-- Returns:    all columns of outlog.events.
-- Errors:     invalid_field (an argument is null, or max_rows negative), beyond_log (after was
--             never given out), and those of outlog.settled.
-- Locks:      none.
create function outlog.read(after bigint default 0, max_rows integer default 100)
    returns setof outlog.events language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_bitmapscan = off set enable_seqscan = off as $$   -- walk the index, never sort
declare
    upto bigint := outlog.settled();
begin
    -- A reader whose cursor was not found passes null. It must fail, and not read nothing or
    -- everything.
    if read.after is null or coalesce(read.max_rows < 0, true) then
        perform outlog.fail('invalid_field', 'after and max_rows are whole numbers: the event_id to go on after '
            '(0: from the beginning), and how many rows at most', json_build_object('pointer',
            case when read.after is null then '/after' else '/max_rows' end));
    end if;
    if read.after > upto then
        perform outlog.check_cursor(read.after);
    end if;
    return query select e.* from outlog.events e
                  where e.event_id > read.after and e.event_id <= upto
                  order by e.event_id limit read.max_rows;
end $$;

-- consumer_create: creates a named consumer, whose cursor is stored.
-- Parameters: name             1 to 100 bytes
--             filters          which events it wants, as in the HTTP API
--             cursor_event_id  where it begins, at most outlog.settled(); 0: with the first event
-- Returns:    false when it exists: nothing was changed.
-- Errors:     beyond_settled (it would miss the events in between), and those of outlog.settled.
-- Locks:      the row of the consumer, until the transaction ends.
create function outlog.consumer_create(name text, filters json default '{}', cursor_event_id bigint default 0,
        at timestamptz default now()) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    settled bigint := outlog.settled();
begin
    if cursor_event_id > settled then
        perform outlog.fail('beyond_settled',
                            format('a cursor must be between 0 and the settled position %s', settled));
    end if;
    insert into outlog.consumers values (name, cursor_event_id, filters, at, at) on conflict do nothing;
    return found;
end $$;

-- consumer_cursor: the position of a consumer, for a transaction that will move it.
-- Errors:     not_found.
-- Locks:      the row of the consumer until the transaction ends: a second one waits.
create function outlog.consumer_cursor(name text) returns bigint language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    cursor_event_id bigint;
begin
    select c.cursor_event_id into cursor_event_id from outlog.consumers c
     where c.name = consumer_cursor.name for update;
    if not found then
        perform outlog.fail('not_found', format('no consumer %s; outlog.consumer_create makes it', name));
    end if;
    return cursor_event_id;
end $$;

-- consumer_commit: moves the cursor of a consumer forward.
-- Parameters: event_id  up to where events were processed, at most outlog.settled()
-- Returns:    false when there is no such consumer, or its cursor is there or further already.
-- Errors:     beyond_settled, and those of outlog.settled.
-- Locks:      the row of the consumer, until the transaction ends.
create function outlog.consumer_commit(name text, event_id bigint, at timestamptz default now()) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    settled bigint := outlog.settled();
begin
    if event_id > settled then
        perform outlog.fail('beyond_settled', format('event %s is beyond the settled position %s; commit what was read',
                                                     event_id, settled));
    end if;
    update outlog.consumers c set cursor_event_id = event_id, updated_at = at
     where c.name = consumer_commit.name and c.cursor_event_id < event_id;
    return found;
end $$;
