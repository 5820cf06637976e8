-- The checks of `outlog doctor`.

-- name: doctor_checks()
-- (name; 1 well, 0 wrong, 2 a remark; what to know or do). Reads no large table.
select name, ok::integer as ok, detail from (
select 'encoding' as name, pg_encoding_to_char(encoding) = 'UTF8' as ok,
       pg_encoding_to_char(encoding) || case when pg_encoding_to_char(encoding) = 'UTF8' then ''
       else ': the database must be UTF8; make a new one and move' end as detail
  from pg_database where datname = current_database()
union all
select 'server', current_setting('server_version_num')::int >= 150000,
       'PostgreSQL ' || current_setting('server_version') || case
       when current_setting('server_version_num')::int >= 150000 then '' else ': 15 or newer is needed' end
union all
select 'durability', current_setting('fsync') = 'on' and current_setting('full_page_writes') = 'on'
       and current_setting('synchronous_commit') not in ('off', 'local'),
       format('fsync=%s full_page_writes=%s synchronous_commit=%s', current_setting('fsync'),
              current_setting('full_page_writes'), current_setting('synchronous_commit'))
union all
select 'primary', not pg_is_in_recovery(), case when pg_is_in_recovery()
       then 'this is a standby: connect to the primary' else 'accepts writes' end
union all
select 'immutability', count(*) = 2, case when count(*) = 2 then 'triggers on events are enabled always'
       else 'a trigger on outlog.events is missing or switched off: events can be changed or missed' end
  from pg_trigger where tgrelid = 'outlog.events'::regclass and tgenabled = 'A'
   and tgname in ('events_are_immutable', 'events_hold_settled')
union all
select 'sequence', not has_sequence_privilege('outlog.events_event_id_seq', 'select,usage')
       or s.cache_size = 1 and s.increment_by = 1 and not s.cycle
       and coalesce(s.last_value, 0) >= coalesce((select max(event_id) from outlog.events), 0),
       case when not has_sequence_privilege('outlog.events_event_id_seq', 'select,usage')
       then 'only the owner can see it'
       when s.cache_size <> 1 then 'events_event_id_seq must have CACHE 1'
       when coalesce(s.last_value, 0) < coalesce((select max(event_id) from outlog.events), 0)
       then 'the sequence is behind the log (a careless restore?): setval it to max(event_id)'
       else 'ids are ahead of the log' end
  from pg_sequences s where s.schemaname = 'outlog' and s.sequencename = 'events_event_id_seq'
union all
select 'lanes', cardinality(behind) = 0, case when cardinality(behind) = 0 then 'numbers are ahead of the outbox'
       else format('the sequences of lanes %s are behind their messages (a careless restore?): setval '
                   'outlog.lane_N_seq to the highest of head in outlog.lanes and seq in outlog.outbox',
                   array_to_string(behind, ', ')) end
  from (select outlog.lanes_behind() as behind) b
union all
select 'roles', count(*) = 4, case when count(*) = 4 then 'outlog_append, outlog_read, outlog_relay, outlog_admin'
       else 'have an administrator create the roles outlog_append, outlog_read, outlog_relay and '
            'outlog_admin, then run `outlog init`' end
  from pg_roles where rolname in ('outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin')
union all
select 'prepared', count(*) = 0, case when count(*) = 0 then 'no forgotten two-phase transactions'
       else count(*) || ' prepared transactions wait; readers may stand still until they end' end
  from pg_prepared_xacts where database = current_database()
union all
select 'cursors', beyond is null, coalesce(beyond, 'all are of this log') from outlog.cursors_beyond() beyond
) checks
union all
-- Every login can take any advisory lock. Those of strangers are ignored, but a person should know.
select 'advisory locks', case when count(*) = 0 then 1 else 2 end, case when count(*) = 0
       then 'no stranger holds one of outlog''s'
       else format('%s held by sessions that write no event: pid %s; they are ignored', count(*),
                   string_agg(distinct coalesce(format('%s (%s)', l.pid, a.usename), 'prepared'), ', ')) end
  from pg_locks l left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'advisory' and l.objsubid = 1 and l.classid::bigint >> 16 = 28492
   and l.database = (select oid from pg_database where datname = current_database())
   and not exists (select from pg_locks w where w.virtualtransaction = l.virtualtransaction
                      and w.relation = 'outlog.events'::regclass and w.mode = 'RowExclusiveLock')
