-- Reading the log, where PostgreSQL needs its own SQL.

-- name: events_settled()
-- The highest event_id a reader may pass (E6). Ask for it before the read, never in it.
select outlog.settled()

-- name: events_read_short(after, upto, limit literal, infrastructure?, event.filters?, since?, until?, org_key?, max_bytes) @postgres @replan
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

-- name: events_read_back_short(before, from, limit literal, infrastructure?, event.filters?, since?, until?, org_key?, max_bytes) @postgres @replan
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
