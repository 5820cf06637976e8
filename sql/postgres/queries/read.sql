-- Reading the log, where PostgreSQL needs its own words.

-- name: events_settled()
-- The highest event_id a reader may pass (E6). To be asked before the read, never in it.
select outlog.settled()
