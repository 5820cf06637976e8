-- Reading the log, where SQLite needs its own SQL.

-- name: events_settled()
-- SQLite has one writer: what is committed is in order, and nothing can appear below it (E6).
select coalesce(max(event_id), 0),
       (select log_id from outlog_log_epochs where epoch = (select max(epoch) from outlog_log_epochs)), 0
  from outlog_events

-- name: log_limits(log_id)
-- How far this is the log that a reader knows: a position, -1 where it is another one, null where
-- it does not say (log_id null). And the highest event_id that was ever given out (R3).
select case when :log_id is not null then coalesce((
           select coalesce(min(later.began_after), 9223372036854775807)
             from outlog_log_epochs mine left join outlog_log_epochs later on later.epoch > mine.epoch
            where mine.log_id = :log_id group by mine.epoch), -1) end,
       max(coalesce((select max(event_id) from outlog_events), 0),
           coalesce((select max(seq) from sqlite_sequence where name = 'outlog_events'), 0))

-- name: log_file() @sqlite
-- The file that the newest epoch began in.
select server from outlog_log_epochs order by epoch desc limit 1

-- name: log_adopt_file(file) @sqlite
-- The first file of a new store.
update outlog_log_epochs set server = :file where server = ''

-- name: log_begin_file(log_id, now, reason, file) @sqlite
-- A new epoch.
insert into outlog_log_epochs
select max(epoch) + 1, :log_id, coalesce((select max(event_id) from outlog_events), 0), :now, :reason, :file
  from outlog_log_epochs

-- name: log_raise_ids(above) @sqlite
-- The next event gets an id above this one. SQLite made the row with the table's first event.
update sqlite_sequence set seq = max(seq, :above) where name = 'outlog_events'

-- name: log_make_ids(above) @sqlite
-- The same where there never was an event.
insert into sqlite_sequence (name, seq)
select 'outlog_events', :above where not exists (select 1 from sqlite_sequence where name = 'outlog_events')
