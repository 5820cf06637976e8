-- Export and import: the rows beside the events that must move with them. Every list is read in
-- pages after its key; writing is for a store that is still empty.

-- name: export_last()
select coalesce(max(event_id), 0) from outlog.events

-- name: export_event_id(event_id)
select id::text from outlog.events where event_id = :event_id

-- name: export_claimed_messages()
-- What a relay has claimed: nobody knows yet how its attempts end.
select count(*) from outlog.outbox_state where state = 'CLAIMED'

-- name: export_lanes()
-- All messages are stored, those not delivered with a row of their own: the lanes go on after them.
update outlog.lanes set head = coalesce((select max(seq) from outlog.outbox o where o.lane = outlog.lanes.lane), head)

-- name: export_record_list(org_key, actor_id, endpoint, idempotency_key, limit literal)
select org_key, actor_id, endpoint, idempotency_key, request_hash, response, created_at
  from outlog.idempotency_records
 where (org_key, actor_id, endpoint, idempotency_key) > (:org_key, :actor_id, :endpoint, :idempotency_key)
   and response is not null
 order by org_key, actor_id, endpoint, idempotency_key limit :limit

-- name: export_record_put(org_key, actor_id, endpoint, idempotency_key, request_hash, response, created_at)
insert into outlog.idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash, response,
                                        created_at)
values (:org_key, :actor_id, :endpoint, :idempotency_key, :request_hash, :response, :created_at)

-- name: export_key_list(org_key, destination, idempotency_key, limit literal)
-- Keys of messages that retention has removed; the others have theirs.
select org_key, destination, idempotency_key, event_id::text, kept_at from outlog.outbox_keys
 where (org_key, destination, idempotency_key) > (:org_key, :destination, :idempotency_key)
 order by org_key, destination, idempotency_key limit :limit

-- name: export_key_put(org_key, destination, idempotency_key, event_id, kept_at)
insert into outlog.outbox_keys (org_key, destination, idempotency_key, event_id, kept_at)
values (:org_key, :destination, :idempotency_key, :event_id::uuid, :kept_at)

-- name: export_consumer_list(name, limit literal)
select name, cursor_event_id, filters::text, created_at, updated_at from outlog.consumers
 where name > :name order by name limit :limit

-- name: export_consumer_put(name, cursor_event_id, filters, created_at, updated_at)
insert into outlog.consumers (name, cursor_event_id, filters, created_at, updated_at)
values (:name, :cursor_event_id, :filters, :created_at, :updated_at)

-- name: export_type_list(event_type, limit literal)
select event_type, version, aggregate_type, shape::text, upcast::text, about from outlog.event_types
 where event_type > :event_type order by event_type limit :limit

-- name: export_type_put(event_type, version, aggregate_type, shape, upcast, about)
-- The built-in ones are stored already.
insert into outlog.event_types (event_type, version, aggregate_type, shape, upcast, about)
values (:event_type, :version, :aggregate_type, :shape, :upcast, :about)
on conflict (event_type) do update
   set version = excluded.version, aggregate_type = excluded.aggregate_type, shape = excluded.shape,
       upcast = excluded.upcast, about = excluded.about

-- name: export_strict_list(org_id, limit literal)
select org_id from outlog.strict_orgs where org_id > :org_id order by org_id limit :limit

-- name: export_strict_put(org_id)
insert into outlog.strict_orgs (org_id) values (:org_id) on conflict do nothing

-- name: export_destination_list(name, limit literal)
select name, settings::text, guarantee, on_dead, case when paused then 1 else 0 end,
       case when is_alert then 1 else 0 end
  from outlog.destinations where name > :name order by name limit :limit

-- name: export_destination_put(name, settings, guarantee, on_dead, paused, is_alert)
insert into outlog.destinations (name, settings, guarantee, on_dead, paused, is_alert, updated_at)
values (:name, :settings, :guarantee, :on_dead, :paused::bigint = 1, :is_alert::bigint = 1, outlog.after(0))

-- name: export_route_list(name, limit literal)
-- As written: each store has its own syntax for patterns.
select name, source::text from outlog.routes where name > :name order by name limit :limit

-- name: export_rule_list(name, limit literal)
select name, source::text from outlog.notification_rules where name > :name order by name limit :limit

-- name: export_secret_list(rule, limit literal)
select rule, mode from outlog.secret_rules where rule > :rule order by rule limit :limit

-- name: export_secret_put(rule, mode)
-- `init` has made them; an operator may have changed the mode.
update outlog.secret_rules set mode = :mode where rule = :rule

-- name: export_setting_list(key, limit literal)
select key, value::text from outlog.settings where key > :key order by key limit :limit

-- name: export_setting_put(key, value)
insert into outlog.settings (key, value, updated_at) values (:key, :value, outlog.after(0))

-- name: export_sink_list(name, limit literal)
select name, cursor_event_id from outlog.sinks where name > :name order by name limit :limit

-- name: export_sink_put(name, cursor_event_id)
insert into outlog.sinks (name, cursor_event_id, updated_at) values (:name, :cursor_event_id, outlog.after(0))

-- name: export_effect_list(effect_id, limit literal)
select effect_id::text, org_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec::text,
       destination, status, idempotency_key, message_id::text, execution_result::text, executed_at, attempts,
       last_attempt_at, event_id, last_event_id::text, correlation_id, created_at, updated_at
  from outlog.effects where effect_id::text > :effect_id
 order by effect_id::text limit :limit

-- name: export_effect_put(effect_id, org_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec, destination, status, idempotency_key, message_id, execution_result, executed_at, attempts, last_attempt_at, event_id, last_event_id, correlation_id, created_at, updated_at)
insert into outlog.effects (effect_id, org_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec,
                            destination, status, idempotency_key, message_id, execution_result, executed_at,
                            attempts, last_attempt_at, event_id, last_event_id, correlation_id, created_at, updated_at)
values (:effect_id::uuid, :org_id, :run_id, :step_id, :session_key, :checkpoint_id, :effect_type, :effect_spec,
        :destination, :status, :idempotency_key, :message_id::uuid, :execution_result, :executed_at, :attempts,
        :last_attempt_at, :event_id, :last_event_id::uuid, :correlation_id, :created_at, :updated_at)

-- name: export_signal_list(signal_id, limit literal)
select signal_id, org_id, signal_type, payload::text, status, correlation_id, received_at, last_event_id::text
  from outlog.signals where signal_id > :signal_id
 order by signal_id limit :limit

-- name: export_signal_put(signal_id, org_id, signal_type, payload, status, correlation_id, received_at, last_event_id)
insert into outlog.signals (signal_id, org_id, signal_type, payload, status, correlation_id, received_at,
                            last_event_id)
values (:signal_id, :org_id, :signal_type, :payload, :status, :correlation_id, :received_at, :last_event_id::uuid)

-- name: export_run_list(run_id, limit literal)
select run_id, org_id, signal_id, run_type, orchestrator_version, status, total_steps, failed_steps, correlation_id,
       started_at, completed_at, started_event_id::text, last_event_id::text
  from outlog.runs where run_id > :run_id
 order by run_id limit :limit

-- name: export_run_put(run_id, org_id, signal_id, run_type, orchestrator_version, status, total_steps, failed_steps, correlation_id, started_at, completed_at, started_event_id, last_event_id)
insert into outlog.runs (run_id, org_id, signal_id, run_type, orchestrator_version, status, total_steps,
                         failed_steps, correlation_id, started_at, completed_at, started_event_id, last_event_id)
values (:run_id, :org_id, :signal_id, :run_type, :orchestrator_version, :status, :total_steps, :failed_steps,
        :correlation_id, :started_at, :completed_at, :started_event_id::uuid, :last_event_id::uuid)

-- name: export_step_list(step_id, limit literal)
select step_id, run_id, step_index, step_type, status, output_result::text, error_code, error_message, duration_ms,
       retry_count, started_at, completed_at, last_event_id::text
  from outlog.steps where step_id > :step_id
 order by step_id limit :limit

-- name: export_step_put(step_id, run_id, step_index, step_type, status, output_result, error_code, error_message, duration_ms, retry_count, started_at, completed_at, last_event_id)
insert into outlog.steps (step_id, run_id, step_index, step_type, status, output_result, error_code, error_message,
                          duration_ms, retry_count, started_at, completed_at, last_event_id)
values (:step_id, :run_id, :step_index, :step_type, :status, :output_result, :error_code, :error_message,
        :duration_ms, :retry_count, :started_at, :completed_at, :last_event_id::uuid)

-- name: export_checkpoint_list(run_id, checkpoint_index, limit literal)
select run_id, cast(checkpoint_index as text), checkpoint_data::text, event_id, created_at
  from outlog.run_checkpoints where (run_id, cast(checkpoint_index as text)) > (:run_id, :checkpoint_index)
 order by run_id, cast(checkpoint_index as text) limit :limit

-- name: export_checkpoint_put(run_id, checkpoint_index, checkpoint_data, event_id, created_at)
insert into outlog.run_checkpoints (run_id, checkpoint_index, checkpoint_data, event_id, created_at)
values (:run_id, cast(:checkpoint_index::text as bigint), :checkpoint_data, :event_id, :created_at)

-- name: export_session_list(org_id, session_key, limit literal)
select org_id, session_key, last_seq, done_seq, checkpoint::text, tries, retry_at, last_error, created_at, updated_at
  from outlog.sessions where (org_id, session_key) > (:org_id, :session_key)
 order by org_id, session_key limit :limit

-- name: export_session_put(org_id, session_key, last_seq, done_seq, checkpoint, tries, retry_at, last_error, created_at, updated_at)
-- The events have made the row already.
insert into outlog.sessions (org_id, session_key, last_seq, done_seq, checkpoint, tries, retry_at, last_error,
                             created_at, updated_at)
values (:org_id, :session_key, :last_seq, :done_seq, :checkpoint, :tries, :retry_at, :last_error, :created_at,
        :updated_at)
on conflict (org_id, session_key) do update
   set last_seq = excluded.last_seq, done_seq = excluded.done_seq, checkpoint = excluded.checkpoint,
       tries = excluded.tries,
       retry_at = excluded.retry_at, last_error = excluded.last_error, created_at = excluded.created_at,
       updated_at = excluded.updated_at

-- name: export_projection_list(name, limit literal)
select name, version, definition::text, updated_at
  from outlog.projections where name > :name
 order by name limit :limit

-- name: export_projection_put(name, version, definition, updated_at)
insert into outlog.projections (name, version, definition, updated_at)
values (:name, :version, :definition, :updated_at)

-- name: export_views()
-- An export has no views: each is filled from the beginning.
insert into outlog.projection_checkpoints (name, rebuild, rebuild_id, updated_at)
select name, 'in_place', 'import', outlog.after(0) from outlog.projections where true on conflict (name) do nothing

-- name: export_skip_list(name, version, event_id, limit literal)
select name, cast(version as text), cast(event_id as text), skipped_at
  from outlog.projection_skips
 where (name, cast(version as text), cast(event_id as text)) > (:name, :version, :event_id)
 order by name, cast(version as text), cast(event_id as text) limit :limit

-- name: export_skip_put(name, version, event_id, skipped_at)
insert into outlog.projection_skips (name, version, event_id, skipped_at)
values (:name, cast(:version::text as bigint), cast(:event_id::text as bigint), :skipped_at)

-- name: export_token_list(id, limit literal)
select id::text, scope, org_id, hash, rate_milli, created_at, last_used_at, revoked_at
  from outlog.tokens where id::text > :id
 order by id::text limit :limit

-- name: export_token_put(id, scope, org_id, hash, rate_milli, created_at, last_used_at, revoked_at)
-- Hashes of random secrets: existing tokens stay valid, and nobody can make one from a hash.
insert into outlog.tokens (id, scope, org_id, hash, rate_milli, created_at, last_used_at, revoked_at)
values (:id::uuid, :scope, :org_id, :hash, :rate_milli, :created_at, :last_used_at, :revoked_at)

-- name: export_template_list(name, version, limit literal)
select name, cast(version as text), body::text, case when is_current then 1 else 0 end, created_at
  from outlog.templates where (name, cast(version as text)) > (:name, :version)
 order by name, cast(version as text) limit :limit

-- name: export_template_put(name, version, body, is_current, created_at)
insert into outlog.templates (name, version, body, is_current, created_at)
values (:name, cast(:version::text as bigint), :body, :is_current::bigint = 1, :created_at)

-- name: export_notice_list(id, limit literal)
select id::text, org_id, user_id, category, template, template_version, event_type, event_id::text, aggregate_type,
       aggregate_id, correlation_id, subject, body_text, body_html, created_at, read_at
  from outlog.notices where id::text > :id
 order by id::text limit :limit

-- name: export_notice_put(id, org_id, user_id, category, template, template_version, event_type, event_id, aggregate_type, aggregate_id, correlation_id, subject, body_text, body_html, created_at, read_at)
insert into outlog.notices (id, org_id, user_id, category, template, template_version, event_type, event_id,
                            aggregate_type, aggregate_id, correlation_id, subject, body_text, body_html, created_at,
                            read_at)
values (:id::uuid, :org_id, :user_id, :category, :template, :template_version, :event_type, :event_id::uuid,
        :aggregate_type, :aggregate_id, :correlation_id, :subject, :body_text, :body_html, :created_at, :read_at)

-- name: export_preference_list(org_id, user_id, category, channel, limit literal)
select org_id, user_id, category, channel, case when enabled then 1 else 0 end, updated_at
  from outlog.preferences where (org_id, user_id, category, channel) > (:org_id, :user_id, :category, :channel)
 order by org_id, user_id, category, channel limit :limit

-- name: export_preference_put(org_id, user_id, category, channel, enabled, updated_at)
insert into outlog.preferences (org_id, user_id, category, channel, enabled, updated_at)
values (:org_id, :user_id, :category, :channel, :enabled::bigint = 1, :updated_at)

-- name: export_contact_list(org_id, user_id, limit literal)
select org_id, user_id, email, updated_at
  from outlog.contacts where (org_id, user_id) > (:org_id, :user_id)
 order by org_id, user_id limit :limit

-- name: export_contact_put(org_id, user_id, email, updated_at)
insert into outlog.contacts (org_id, user_id, email, updated_at)
values (:org_id, :user_id, :email, :updated_at)

-- name: export_suppression_list(address, limit literal)
select address, reason, created_at
  from outlog.suppressions where address > :address
 order by address limit :limit

-- name: export_suppression_put(address, reason, created_at)
insert into outlog.suppressions (address, reason, created_at)
values (:address, :reason, :created_at)
