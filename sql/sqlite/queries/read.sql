-- Reading the log, where SQLite needs its own SQL.

-- name: events_settled()
-- SQLite has one writer: what is committed is in order, and nothing can appear below it (E6).
select coalesce(max(event_id), 0) from outlog_events
