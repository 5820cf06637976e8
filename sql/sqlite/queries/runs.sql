-- The moves of runs, which PostgreSQL's own functions make there (migration 0003). One writer at a
-- time: being inside a write transaction is the lock.

-- name: run_causes(run_id) @sqlite
select started_event_id, last_event_id from outlog_runs where run_id = :run_id

-- name: run_of_step(step_id) @sqlite
select run_id, last_event_id from outlog_steps where step_id = :step_id

-- name: run_of_tool(id) @sqlite
-- A tool call is the event that says so; its run only if it is of the same org.
select r.run_id, e.aggregate_id, json_extract(e.payload, '$.tool_name')
  from outlog_events e join outlog_runs r on r.run_id = json_extract(e.payload, '$.run_id')
 where e.id = :id and e.event_type = 'TOOL_CALLED' and e.org_id is r.org_id

-- name: run_tool_end(id) @sqlite
select event_type from outlog_events
 where causation_id = :id and event_type in ('TOOL_COMPLETED', 'TOOL_FAILED') limit 1

-- name: run_open_step(run_id) @sqlite
select step_id, status from outlog_steps
 where run_id = :run_id and status in ('RUNNING', 'FAILED') order by step_index limit 1

-- name: run_next_step(run_id) @sqlite
select coalesce(max(step_index), 0) + 1 from outlog_steps where run_id = :run_id

-- name: run_next_checkpoint(run_id) @sqlite
select coalesce(max(checkpoint_index), 0) + 1 from outlog_run_checkpoints where run_id = :run_id

-- name: signal_event(signal_id) @sqlite
select last_event_id from outlog_signals where signal_id = :signal_id

-- name: signal_insert(signal_id, org_id, signal_type, payload, status, correlation_id, received_at, last_event_id) @sqlite
insert into outlog_signals (signal_id, org_id, signal_type, payload, status, correlation_id, received_at, last_event_id)
values (:signal_id, :org_id, :signal_type, :payload, :status, :correlation_id, :received_at, :last_event_id)

-- name: signal_move(signal_id, status, last_event_id) @sqlite
update outlog_signals set status = :status, last_event_id = :last_event_id where signal_id = :signal_id

-- name: run_insert(run_id, org_id, signal_id, run_type, orchestrator_version, correlation_id, started_at, event_id) @sqlite
insert into outlog_runs (run_id, org_id, signal_id, run_type, orchestrator_version, status, correlation_id,
       started_at, started_event_id, last_event_id)
values (:run_id, :org_id, :signal_id, :run_type, :orchestrator_version, 'RUNNING', :correlation_id,
       :started_at, :event_id, :event_id)

-- name: run_count(run_id, completed, failed, last_event_id) @sqlite
-- A correction after the run's end does not become the cause of anything in it.
update outlog_runs
   set total_steps = total_steps + :completed, failed_steps = failed_steps + :failed,
       last_event_id = case status when 'RUNNING' then :last_event_id else last_event_id end
 where run_id = :run_id

-- name: run_end(run_id, status, completed_at, last_event_id) @sqlite
update outlog_runs set status = :status, completed_at = :completed_at, last_event_id = :last_event_id
 where run_id = :run_id

-- name: checkpoint_insert(run_id, checkpoint_index, checkpoint_data, event_id, created_at) @sqlite
insert into outlog_run_checkpoints (run_id, checkpoint_index, checkpoint_data, event_id, created_at)
values (:run_id, :checkpoint_index, :checkpoint_data, :event_id, :created_at)

-- name: step_put(step_id, run_id, step_index, step_type, status, output_result, error_code, error_message, duration_ms, retry_count, started_at, completed_at, last_event_id) @sqlite
insert or replace into outlog_steps (step_id, run_id, step_index, step_type, status, output_result, error_code,
       error_message, duration_ms, retry_count, started_at, completed_at, last_event_id)
values (:step_id, :run_id, :step_index, :step_type, :status, :output_result, :error_code,
       :error_message, :duration_ms, :retry_count, :started_at, :completed_at, :last_event_id)

-- name: run_of_effect(run_id, step_id)
-- What an effect takes from its run. No row: the run is not one of ours.
select r.org_id, r.status, r.correlation_id, coalesce(s.last_event_id, r.started_event_id),
       :step_id is null or s.step_id is not null
  from outlog_runs r left join outlog_steps s on s.step_id = :step_id and s.run_id = r.run_id
 where r.run_id = :run_id

-- name: run_events(run_id, org_key, after, limit literal)
-- All events of its org that name the run, in order (U3). The OR must be exactly that of the index.
select
       --=, event columns: {name}
  from outlog_events
 where json_extract(payload, '$.run_id') = :run_id and event_id > :after
   and (aggregate_type = 'RUN' or aggregate_type = 'STEP' or aggregate_type = 'EFFECT')
   and coalesce(org_id, '') = :org_key
 order by event_id limit :limit
