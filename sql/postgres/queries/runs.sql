-- Runs, where PostgreSQL needs its own words. The moves themselves are functions (migration 0003).

-- name: run_command(verb, id, org_id, actor_type, actor_id, request_id, idempotency_key, body) @postgres
select answer, replayed::integer::bigint
  from outlog.run_command(:verb, :id, :org_id, :actor_type, :actor_id, :request_id, :idempotency_key, :body::json)

-- name: trace_set(traceparent) @postgres
-- For what the rest of the transaction stores (T4).
select set_config('outlog.traceparent', :traceparent, true)

-- name: run_of_effect(run_id, step_id)
-- What an effect takes from its run, which is locked. No row: the run is not one of ours.
select org_id, status, correlation_id, cause, has_step::integer::bigint
  from outlog.run_of_effect(:run_id, :step_id)

-- name: run_events(run_id, org_key, after, limit literal)
-- All that names the run, in order (U3); of its own org only.
select
       --=, event columns: {name}
  from outlog.events
 where payload ->> 'run_id' = :run_id and event_id > :after
   and aggregate_type in ('RUN', 'STEP', 'EFFECT')
   and coalesce(org_id, '') = :org_key
 order by event_id limit :limit
