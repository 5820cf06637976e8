-- Appending, and the numbers of each aggregate's events.

-- name: write_begin() @sqlite
-- Changes nothing, but waits for another writer; a transaction that has read could only fail.
update outlog_schema_migrations set name = name where false

-- name: head_get(org_key, aggregate_type, aggregate_id) @sqlite
-- The last number of an aggregate: the end of its part of the index.
select coalesce(max(aggregate_seq), 0) from outlog_events
 where aggregate_type = :aggregate_type and aggregate_id = :aggregate_id and coalesce(org_id, '') = :org_key

-- name: heads_get(nth, org_key, aggregate_type, aggregate_id) @sqlite
-- The same of many aggregates. store/sqlite/query.c repeats its values for many rows, as it does
-- for event_insert.
select h.column1, coalesce((select max(e.aggregate_seq) from outlog_events e
        where e.aggregate_type = h.column3 and e.aggregate_id = h.column4 and coalesce(e.org_id, '') = h.column2), 0)
  from (values (:nth, :org_key, :aggregate_type, :aggregate_id)) h

-- name: event_last() @sqlite
-- The highest event_id that was ever given out.
select max(coalesce((select max(event_id) from outlog_events), 0),
           coalesce((select max(seq) from sqlite_sequence where name = 'outlog_events'), 0))

-- name: event_insert(event.columns) @sqlite
insert into outlog_events (
       --=, event columns: {name}
       )
values (
       --=, event columns: :{name}
       )

-- name: head_lock(org_key, aggregate_type, aggregate_id)
-- One writer at a time: being inside a write transaction is the lock.
select 1 where :org_key is not null and :aggregate_type is not null and :aggregate_id is not null

-- name: idempotency_purge(before, limit literal)
-- A bounded chunk, so that no lock is held for long.
delete from outlog_idempotency_records where (org_key, actor_id, endpoint, idempotency_key) in (
    select org_key, actor_id, endpoint, idempotency_key from outlog_idempotency_records
     where created_at < :before limit :limit)

-- name: lock_wait(ms)
-- How long this transaction waits for a lock: never, as it has the only one.
select :ms
