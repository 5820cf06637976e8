-- The checks of `outlog doctor`.

-- name: doctor_checks()
-- (name; 1 well, 0 wrong, 2 a remark; what to know or do). Reads no large table.
select 'encoding' as name, (select encoding from pragma_encoding) = 'UTF-8' as ok,
       (select encoding from pragma_encoding) as detail
union all
select 'engine', true, 'SQLite ' || sqlite_version()
union all
select 'wal race', case when sqlite_version() glob '3.5[1-9].*'
                         and sqlite_version() not in ('3.51.0', '3.51.1', '3.51.2') then 1 else 2 end,
       'before 3.51.3 SQLite can, very rarely, damage a WAL when two processes commit and checkpoint at '
       || 'the same instant; keep one process writing, or use a newer SQLite'
union all
select 'durability', (select journal_mode from pragma_journal_mode) = 'wal'
       and (select synchronous from pragma_synchronous) >= 2,
       'journal_mode=' || (select journal_mode from pragma_journal_mode) || ' synchronous='
       || (select synchronous from pragma_synchronous)
union all
select 'immutability', count(*) = 3, case when count(*) = 3 then 'triggers on events are in place'
       else 'a trigger on outlog_events is missing: events can be changed; restore the file' end
  from sqlite_master where type = 'trigger' and tbl_name = 'outlog_events'
   and name in ('outlog_events_no_update', 'outlog_events_no_delete', 'outlog_events_no_replace')
union all
select 'lanes', n >= head, case when n >= head then 'numbers are ahead of the outbox'
       else 'the numbers of outlog_outbox are behind (a careless restore?): set seq in sqlite_sequence to '
            || 'head of outlog_lanes' end
  from (select head, max(coalesce((select seq from sqlite_sequence where name = 'outlog_outbox'), 0),
                         coalesce((select max(seq) from outlog_outbox), 0)) as n from outlog_lanes)
union all
select 'cursors', count(*) = 0, case when count(*) = 0 then 'all are of this log'
       else 'beyond the end of the log (a careless restore?), so they read nothing: ' || group_concat(name, ', ')
            || '; reset them (`outlog consumers reset`, `outlog sinks reset`, `outlog projections rebuild`)' end
  from (select 'consumer ' || name as name, cursor_event_id as at from outlog_consumers
        union all select 'sink ' || name, cursor_event_id from outlog_sinks
        union all select 'projection ' || name, last_applied_event_id from outlog_projection_checkpoints) c
 where at > (select max(coalesce((select max(event_id) from outlog_events), 0),
                          coalesce((select max(seq) from sqlite_sequence where name = 'outlog_events'), 0)))
