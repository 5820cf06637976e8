-- Reading the log, where PostgreSQL needs its own SQL.

-- name: events_settled()
-- The highest event_id a reader may pass (E6), which log it is (R3), and which server said so (P5).
-- Ask for it before the read, never in it.
select outlog.settled(), (select log_id::text from outlog.log_epochs order by epoch desc limit 1),
       (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint

-- name: log_limits(log_id)
-- How far this is the log that a reader knows: a position, -1 where it is another one, null where
-- it does not say (log_id null). And the highest event_id that was ever given out (R3).
select common, last from outlog.log_limits(:log_id::uuid)

-- name: log_note() @postgres
-- Begins a new epoch if the log may have lost its end.
select outlog.note_log()

-- name: log_begin(above) @postgres
-- A new epoch, with ids above this one.
select outlog.begin_log(:above::bigint)

-- name: events_read_short(after, upto, limit literal, server? steady, infrastructure?, event.filters?, since?, until?, org_key?, max_bytes) @postgres @replan
-- As events_read; the event that makes the page max_bytes long is its last, so there is always one.
-- Most pages are far below it: all rows are summed first, and the last one is searched only where
-- the sum is too large.
select * from (
select
       --=, event columns: {name}
  from outlog.events
 where event_id > :after and event_id <= :upto
   --+ wanted()
 order by event_id limit :limit) page
 where event_id <= case when (
       select sum(octet_length(payload::text) + coalesce(octet_length(metadata::text), 0))
         from (select payload, metadata from outlog.events
                where event_id > :after and event_id <= :upto
                  --+ wanted()
                order by event_id limit :limit) page) < :max_bytes::bigint
   then :upto else (
       select event_id from (
           select event_id, sum(octet_length(payload::text) + coalesce(octet_length(metadata::text), 0))
                  over (order by event_id rows unbounded preceding) as bytes
             from (select event_id, payload, metadata from outlog.events
                    where event_id > :after and event_id <= :upto
                      --+ wanted()
                    order by event_id limit :limit) page) counted
        where bytes >= :max_bytes::bigint order by event_id limit 1) end
 order by event_id

-- name: events_read_back_short(before, from, limit literal, server? steady, infrastructure?, event.filters?, since?, until?, org_key?, max_bytes) @postgres @replan
select * from (
select
       --=, event columns: {name}
  from outlog.events
 where event_id < :before and event_id > :from
   --+ wanted()
 order by event_id desc limit :limit) page
 where event_id >= case when (
       select sum(octet_length(payload::text) + coalesce(octet_length(metadata::text), 0))
         from (select payload, metadata from outlog.events
                where event_id < :before and event_id > :from
                  --+ wanted()
                order by event_id desc limit :limit) page) < :max_bytes::bigint
   then :from else (
       select event_id from (
           select event_id, sum(octet_length(payload::text) + coalesce(octet_length(metadata::text), 0))
                  over (order by event_id desc rows unbounded preceding) as bytes
             from (select event_id, payload, metadata from outlog.events
                    where event_id < :before and event_id > :from
                      --+ wanted()
                    order by event_id desc limit :limit) page) counted
        where bytes >= :max_bytes::bigint order by event_id desc limit 1) end
 order by event_id desc
