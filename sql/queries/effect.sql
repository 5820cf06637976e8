-- Effects: requests to the outside world, and their results (U5).

-- name: effect_insert(effect_id, org_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec, destination, idempotency_key, message_id, event_id, last_event_id, correlation_id, at)
insert into outlog.effects (effect_id, org_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec,
       destination, idempotency_key, message_id, event_id, last_event_id, correlation_id, created_at, updated_at)
values (:effect_id::uuid, :org_id, :run_id, :step_id, :session_key, :checkpoint_id, :effect_type, :effect_spec::json,
       :destination, :idempotency_key, :message_id::uuid, :event_id::bigint, :last_event_id::uuid, :correlation_id,
       :at::timestamptz, :at::timestamptz)

-- name: effect_of_message(message_id)
-- With the time from which the message's next attempt is counted.
select effect_id, org_id, run_id, effect_type, last_event_id, correlation_id, attempts, outlog.after(0)
  from outlog.effects where message_id = :message_id::uuid

-- name: effect_move(effect_id, status, attempts, last_event_id, execution_result, at)
-- Sets the newest event, its state and its time. A stored result is never removed.
update outlog.effects
   set status = :status, attempts = :attempts, last_event_id = :last_event_id::uuid, updated_at = :at::timestamptz,
       execution_result = coalesce(:execution_result::json, execution_result),
       executed_at = case when :status = 'COMPLETED' then :at::timestamptz else executed_at end,
       last_attempt_at = case when :status = 'EXECUTING' then :at::timestamptz else last_attempt_at end
 where effect_id = :effect_id::uuid

-- name: alert_add(payload, correlation_id, causation_id, key, except)
-- Stores a message about a dead letter for every alert destination; a dead alert raises none (R3).
insert into outlog.outbox (destination, event_type, payload, idempotency_key, correlation_id, causation_id)
select name, 'outlog.dead_letter', :payload, :key, :correlation_id, :causation_id::uuid
  from outlog.destinations where is_alert and name <> :except
on conflict do nothing
