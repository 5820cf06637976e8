-- Appending, and the heads that number each aggregate's events.

-- name: event_append(event.given, expected_seq) @postgres
-- One checked event in one statement, so that it can be a transaction by itself. Its three results
-- are one record: as a row source the function would cost an eighth more.
select outlog.append_one(
       --= event given: :{name}{cast},
       :expected_seq::bigint)

-- name: events_append(head_org_key, head_aggregate_type, head_aggregate_id, head_count, head, nth, event.given, expected_seq, wait_ms) @postgres
-- Many checked events in one statement; every parameter except the last is an array.
select event_id, aggregate_seq, occurred_at
  from outlog.append_batch(:head_org_key, :head_aggregate_type, :head_aggregate_id, :head_count,
       :head, :nth,
       --= event given: :{name},
       :expected_seq, :wait_ms)

-- name: events_append_checked(head_org_key, head_aggregate_type, head_aggregate_id, head_count, head, nth, event.given, expected_seq, wait_ms) @postgres
-- The same for a role that is not trusted to have checked them.
select event_id, aggregate_seq, occurred_at
  from outlog.append_checked(:head_org_key, :head_aggregate_type, :head_aggregate_id, :head_count,
       :head, :nth,
       --= event given: :{name},
       :expected_seq, :wait_ms)

-- name: append_is_trusted() @postgres
-- Whether our role may store events without having them checked again.
select has_function_privilege(p.oid, 'execute')::integer from pg_proc p
 where p.pronamespace = 'outlog'::regnamespace and p.proname = 'append_one'

-- name: head_lock(org_key, aggregate_type, aggregate_id)
-- Makes repeats of one event id come one after another.
select outlog.lock_head(:org_key, :aggregate_type, :aggregate_id)

-- name: idempotency_purge(before, limit literal)
-- A bounded chunk, so that no lock is held for long; a row for each record that went.
select * from outlog.purge_idempotency(:before, :limit)
