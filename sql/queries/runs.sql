-- Looking at runs. The columns of each are the fields of its object, in order (src/runs/row.c).

-- name: signal_get(signal_id)
select signal_id, org_id, signal_type, payload, status, correlation_id, received_at, last_event_id
  from outlog.signals where signal_id = :signal_id

-- name: run_get(run_id)
select run_id, org_id, signal_id, run_type, orchestrator_version, status, total_steps, failed_steps,
       correlation_id, started_at, completed_at, started_event_id, last_event_id
  from outlog.runs where run_id = :run_id

-- name: step_get(step_id)
select step_id, run_id, step_index, step_type, status, output_result, error_code, error_message, duration_ms,
       retry_count, started_at, completed_at, last_event_id
  from outlog.steps where step_id = :step_id

-- name: run_list(limit literal, before?, status?, org_id?)
-- The newest first: ids begin with the time.
select run_id, org_id, signal_id, run_type, orchestrator_version, status, total_steps, failed_steps,
       correlation_id, started_at, completed_at, started_event_id, last_event_id
  from outlog.runs
 where true
   and run_id < :before      --? before
   and status = :status      --? status
   and org_id = :org_id      --? org_id
 order by run_id desc limit :limit

-- name: run_steps(run_id)
select step_id, run_id, step_index, step_type, status, output_result, error_code, error_message, duration_ms,
       retry_count, started_at, completed_at, last_event_id
  from outlog.steps where run_id = :run_id order by step_index, step_id

-- name: run_effects(run_id)
select effect_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec, destination, status,
       idempotency_key, message_id, execution_result, executed_at, attempts, last_attempt_at, created_at, updated_at,
       org_id, correlation_id, event_id, last_event_id
  from outlog.effects where run_id = :run_id order by event_id

-- name: effect_get(effect_id)
select effect_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec, destination, status,
       idempotency_key, message_id, execution_result, executed_at, attempts, last_attempt_at, created_at, updated_at,
       org_id, correlation_id, event_id, last_event_id
  from outlog.effects where effect_id = :effect_id::uuid

-- name: effect_events(effect_id, org_key)
-- An effect's own events, in order.
select
       --=, event columns: {name}
  from outlog.events
 where aggregate_type = 'EFFECT' and aggregate_id = :effect_id and coalesce(org_id, '') = :org_key
 order by aggregate_seq

-- name: run_checkpoints(run_id)
select run_id, checkpoint_index, checkpoint_data, event_id, created_at
  from outlog.run_checkpoints where run_id = :run_id order by checkpoint_index

-- name: signal_events(signal_id, org_key)
-- A signal's own events, in order.
select
       --=, event columns: {name}
  from outlog.events
 where aggregate_type = 'SIGNAL' and aggregate_id = :signal_id and coalesce(org_id, '') = :org_key
 order by aggregate_seq

-- name: verify_starts(after, upto, limit literal)
-- The first event of each signal, run and effect that is of no run, in order: verify works through
-- these.
select event_id, event_type, aggregate_id, org_id
  from (select * from (select event_id, event_type, aggregate_id, org_id from outlog.events
                        where event_type = 'RUN_STARTED' and event_id > :after and event_id <= :upto
                        order by event_id limit :limit) r
        union all
        select * from (select event_id, event_type, aggregate_id, org_id from outlog.events
                        where event_type = 'SIGNAL_RECEIVED' and event_id > :after and event_id <= :upto
                        order by event_id limit :limit) s
        union all
        select * from (select event_id, event_type, aggregate_id, org_id from outlog.events
                        where event_type = 'EFFECT_REQUESTED' and payload ->> 'run_id' is null
                          and event_id > :after and event_id <= :upto
                        order by event_id limit :limit) f) e
 order by event_id limit :limit

-- name: verify_orphans(limit literal)
-- Rows whose run, signal or effect has no event: somebody inserted them by hand.
select kind, id from (
    select 'runs' as kind, run_id as id from outlog.runs r where not exists (
        select 1 from outlog.events e where e.aggregate_type = 'RUN' and e.aggregate_id = r.run_id)
    union all
    select 'signals', signal_id from outlog.signals s where not exists (
        select 1 from outlog.events e where e.aggregate_type = 'SIGNAL' and e.aggregate_id = s.signal_id)
    union all
    select 'steps', step_id from outlog.steps t where not exists (
        select 1 from outlog.events e where e.aggregate_type = 'RUN' and e.aggregate_id = t.run_id)
    union all
    select 'run_checkpoints', run_id from outlog.run_checkpoints c where not exists (
        select 1 from outlog.events e where e.aggregate_type = 'RUN' and e.aggregate_id = c.run_id)
    union all
    select 'effects', effect_id::text from outlog.effects f where not exists (
        select 1 from outlog.events e where e.aggregate_type = 'EFFECT' and e.aggregate_id = f.effect_id::text
           and (f.run_id is null or e.payload ->> 'run_id' = f.run_id))) strays
 order by kind, id limit :limit

-- name: run_org(run_id)
-- Whose run it is, by its first event; by the row where the log knows nothing of it.
select org_id from (
    select org_id, 1 as place, event_id from outlog.events
     where aggregate_type = 'RUN' and aggregate_id = :run_id and aggregate_seq = 1
    union all
    select org_id, 2, 0 from outlog.runs where run_id = :run_id) r
 order by place, event_id limit 1
