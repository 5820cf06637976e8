-- The commands of runs as functions with named arguments, called like the members of the HTTP
-- bodies. JSON is passed as text, json or jsonb, as in outlog.append. A null argument means the
-- same as none, except org_id.
--
-- For all of them, each runs outlog.run_command in the caller's transaction:
-- Parameters: actor_type, actor_id, request_id  of the events; default: system, system, a new id
--             idempotency_key  a repeat with this key returns the first row and changes nothing;
--                              its scope is org, actor and verb
--             expected_seq     the last aggregate_seq of the target (of the run for start_step), 0
--                              for a new one
-- Returns:    the changed object as one row.
-- Errors:     invalid_field, invalid_json, too_large; not_found (no such id); illegal_transition
--             (its state does not allow the command: docs/runs.md); sequence_conflict;
--             idempotency_key_reuse; idempotency_in_progress; secret_material. A failed call
--             changes nothing.
-- Locks:      the row of the run until the transaction ends; commands of one run wait for each
--             other.

create function outlog.any_json(value text, field text) returns json language plpgsql immutable
    set search_path = pg_catalog, pg_temp as $$
begin
    if position(E'\\u' in value) > 0 then        -- reading every string finds U+0000 and lone surrogates
        perform count(s.value) from outlog.json_strings(value::json) s;
    end if;
    return value::json;
exception when others then
    perform outlog.fail('invalid_json', field || ': ' || sqlerrm, json_build_object('pointer', '/' || field));
end $$;

-- An object with the members that are not null.
create function outlog.json_given(names text[], given json[]) returns json language sql immutable as $$
    select coalesce(json_object_agg(g.name, g.value), '{}') from unnest(names, given) g(name, value)
     where g.value is not null
$$;

-- The member org_id: absent for '', and null for null, which means infrastructure.
create function outlog.json_org(org_id text) returns json language sql immutable as $$
    select case when org_id is null then json 'null' when org_id <> '' then to_json(org_id) end
$$;

-- The verb that ends a run or a tool call: by status, or without one by whether there is an
-- error_code.
create function outlog.ending(what text, status text, error_code text) returns text
language plpgsql immutable as $$
begin
    status := coalesce(status, case when error_code is null then 'COMPLETED' else 'FAILED' end);
    if status not in ('COMPLETED', 'FAILED', 'CANCELLED') or (what = 'tool' and status = 'CANCELLED') then
        perform outlog.fail('invalid_field', format('status must be COMPLETED, FAILED%s', case what when 'run'
                            then ' or CANCELLED' else '' end), json_build_object('pointer', '/status'));
    end if;
    return case status when 'COMPLETED' then 'complete_' when 'FAILED' then 'fail_' else 'cancel_' end || what;
end $$;

-- receive_signal: stores a signal: something that came in and that a run may work on.
-- Parameters: org_id          required; null: infrastructure
--             signal_type     required, 1 to 100 bytes
--             payload         any JSON
--             correlation_id  default: a new one
-- Errors:     also org_required (org_id is missing).
create function outlog.receive_signal(org_id text default '', signal_type text default null,
        payload text default null, correlation_id text default null, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.signal_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('receive_signal', null, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{org_id, signal_type, payload, correlation_id, expected_seq}',
            array[outlog.json_org(org_id), to_json(signal_type), outlog.any_json(payload, 'payload'),
                  to_json(correlation_id), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.signal_view, c.answer) v
$$;

-- start_run: starts a run, RUNNING, and sets its signal to PROCESSING.
-- Parameters: org_id     required; null: infrastructure
--             run_type, orchestrator_version  required, 1 to 100 bytes
--             signal_id  of a signal of the same org that is RECEIVED or FAILED
-- Errors:     also org_required (org_id is missing).
-- Locks:      also the row of the signal.
create function outlog.start_run(org_id text default '', run_type text default null,
        orchestrator_version text default null, signal_id text default null, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.run_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('start_run', null, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{org_id, run_type, orchestrator_version, signal_id, expected_seq}',
            array[outlog.json_org(org_id), to_json(run_type), to_json(orchestrator_version), to_json(signal_id),
                  to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.run_view, c.answer) v
$$;

-- start_step: starts a step, RUNNING, of a RUNNING run.
-- Parameters: step_type   1 to 100 bytes
--             step_index  from 0; default: the next, from 1
create function outlog.start_step(run_id text, step_type text, step_index integer default null,
        actor_type text default 'system', actor_id text default 'system', request_id text default null,
        idempotency_key text default null, expected_seq bigint default null)
    returns setof outlog.step_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('start_step', run_id, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{step_type, step_index, expected_seq}',
            array[to_json(step_type), to_json(step_index), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.step_view, c.answer) v
$$;

-- complete_step: completes a RUNNING step.
-- Parameters: output_result  any JSON
--             duration_ms    from 0; default: since the step started
create function outlog.complete_step(step_id text, output_result text, duration_ms bigint default null,
        actor_type text default 'system', actor_id text default 'system', request_id text default null,
        idempotency_key text default null, expected_seq bigint default null)
    returns setof outlog.step_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('complete_step', step_id, null, actor_type, actor_id, request_id,
        idempotency_key,
        outlog.json_given('{output_result, duration_ms, expected_seq}',
            array[coalesce(outlog.any_json(output_result, 'output_result'), json 'null'), to_json(duration_ms),
                  to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.step_view, c.answer) v
$$;

-- fail_step: fails a RUNNING step.
-- Parameters: error_code     1 to 100 bytes
--             error_message  1 to 262144 bytes
create function outlog.fail_step(step_id text, error_code text, error_message text, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.step_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('fail_step', step_id, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{error_code, error_message, expected_seq}',
            array[to_json(error_code), to_json(error_message), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.step_view, c.answer) v
$$;

-- skip_step: skips a RUNNING or FAILED step.
-- Parameters: reason  1 to 262144 bytes
create function outlog.skip_step(step_id text, reason text default null, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.step_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('skip_step', step_id, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{reason, expected_seq}',
            array[to_json(reason), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.step_view, c.answer) v
$$;

-- retry_step: sets a FAILED step to RUNNING again: clears its error, counts the retry, restarts its
-- clock.
create function outlog.retry_step(step_id text, actor_type text default 'system', actor_id text default 'system',
        request_id text default null, idempotency_key text default null, expected_seq bigint default null)
    returns setof outlog.step_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('retry_step', step_id, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{expected_seq}',
            array[to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.step_view, c.answer) v
$$;

-- correct_step: corrects the result of a COMPLETED or FAILED step, also in a run that has ended. It
-- is COMPLETED then.
-- Parameters: output_result  any JSON
--             causation_id   id or event_id of the corrected event; default: the newest of the step
-- Errors:     also unknown_causation.
create function outlog.correct_step(step_id text, output_result text, causation_id text default null,
        actor_type text default 'system', actor_id text default 'system', request_id text default null,
        idempotency_key text default null, expected_seq bigint default null)
    returns setof outlog.step_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('correct_step', step_id, null, actor_type, actor_id, request_id,
        idempotency_key,
        outlog.json_given('{output_result, causation_id, expected_seq}',
            array[coalesce(outlog.any_json(output_result, 'output_result'), json 'null'), to_json(causation_id),
                  to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.step_view, c.answer) v
$$;

-- call_tool: starts a tool call in a RUNNING step. Its tool_call_id is the id of the event
-- TOOL_CALLED.
-- Parameters: tool_name  1 to 100 bytes
--             input      any JSON
create function outlog.call_tool(step_id text, tool_name text, input text default null,
        actor_type text default 'system', actor_id text default 'system', request_id text default null,
        idempotency_key text default null, expected_seq bigint default null)
    returns setof outlog.tool_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('call_tool', step_id, null, actor_type, actor_id, request_id, idempotency_key,
        outlog.json_given('{tool_name, input, expected_seq}',
            array[to_json(tool_name), outlog.any_json(input, 'input'), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.tool_view, c.answer) v
$$;

-- end_tool: ends a tool call that has not ended.
-- Parameters: status  COMPLETED or FAILED; default: FAILED where there is an error_code, else
--                     COMPLETED
--             result  any JSON, of a completed call
--             error_code, error_message  required for FAILED
create function outlog.end_tool(tool_call_id text, result text default null, error_code text default null,
        error_message text default null, status text default null, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.tool_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command(outlog.ending('tool', status, error_code), tool_call_id, null, actor_type,
        actor_id, request_id, idempotency_key,
        outlog.json_given('{result, error_code, error_message, expected_seq}',
            array[outlog.any_json(result, 'result'), to_json(error_code), to_json(error_message),
                  to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.tool_view, c.answer) v
$$;

-- checkpoint_run: stores a checkpoint of a RUNNING run: what its orchestrator needs to continue
-- from here.
-- Parameters: checkpoint_data  any JSON
create function outlog.checkpoint_run(run_id text, checkpoint_data text, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.checkpoint_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command('checkpoint_run', run_id, null, actor_type, actor_id, request_id,
        idempotency_key,
        outlog.json_given('{checkpoint_data, expected_seq}',
            array[coalesce(outlog.any_json(checkpoint_data, 'checkpoint_data'), json 'null'), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.checkpoint_view, c.answer) v
$$;

-- end_run: ends a RUNNING run, and its signal with it.
-- Parameters: status  COMPLETED, FAILED or CANCELLED; default: FAILED where there is an error_code,
--                     else COMPLETED, which needs every step COMPLETED or SKIPPED
--             error_code, error_message  required for FAILED
--             reason  of a cancelled run
-- Locks:      also the row of the signal.
create function outlog.end_run(run_id text, status text default null, error_code text default null,
        error_message text default null, reason text default null, actor_type text default 'system',
        actor_id text default 'system', request_id text default null, idempotency_key text default null,
        expected_seq bigint default null)
    returns setof outlog.run_view language sql security definer set search_path = pg_catalog, pg_temp as $$
    select v.* from outlog.run_command(outlog.ending('run', status, error_code), run_id, null, actor_type, actor_id,
        request_id, idempotency_key,
        outlog.json_given('{error_code, error_message, reason, expected_seq}',
            array[to_json(error_code), to_json(error_message), to_json(reason), to_json(expected_seq)])) c
     cross join lateral json_populate_record(null::outlog.run_view, c.answer) v
$$;

revoke all on all functions in schema outlog from public;
select outlog.overload('receive_signal', '{payload}'), outlog.overload('complete_step', '{output_result}'),
       outlog.overload('correct_step', '{output_result}'), outlog.overload('call_tool', '{input}'),
       outlog.overload('end_tool', '{result}'), outlog.overload('checkpoint_run', '{checkpoint_data}');
do $$
declare
    name text;
begin
    foreach name in array array['outlog_append', 'outlog_admin'] loop
        continue when not exists (select from pg_roles where rolname = name);
        execute format('grant execute on function outlog.run_command, outlog.run_of_effect, outlog.start_run, '
            'outlog.start_step, outlog.fail_step, outlog.skip_step, outlog.retry_step, outlog.end_run to %I', name);
    end loop;
    foreach name in array array['outlog_append', 'outlog_read', 'outlog_admin'] loop
        continue when not exists (select from pg_roles where rolname = name);
        execute format('grant select on outlog.signals, outlog.runs, outlog.steps, outlog.effects, '
            'outlog.run_checkpoints to %I', name);
    end loop;
end $$;
