-- The commands of a run (U1). On PostgreSQL this is the one implementation, for SQL and for the C
-- library. Each command locks the run, checks that the transition is legal (docs/runs.md has the
-- table, sql/schema/run_transitions.json the data), appends the event and updates the row with the
-- event's time.
--
-- Every command of a run locks its row first. So within a run event_id rises in the order of
-- commits, and no event of the run below a checkpoint can still appear. Only effects are updated by
-- relays, which never wait for a run.

create type outlog.signal_view as (signal_id text, org_id text, signal_type text, payload json, status text,
    correlation_id text, received_at timestamptz);
create type outlog.run_view as (run_id text, org_id text, signal_id text, run_type text,
    orchestrator_version text, status text, total_steps integer, failed_steps integer, correlation_id text,
    started_at timestamptz, completed_at timestamptz);
create type outlog.step_view as (step_id text, run_id text, step_index integer, step_type text, status text,
    output_result json, error_code text, error_message text, duration_ms bigint, retry_count integer,
    started_at timestamptz, completed_at timestamptz);
create type outlog.checkpoint_view as (run_id text, checkpoint_index integer, checkpoint_data json,
    event_id bigint, created_at timestamptz);
create type outlog.tool_view as (tool_call_id text, step_id text, run_id text, tool_name text, status text);

-- A command: the verb, the id of its target, the caller, and the body.
create type outlog.run_call as (verb text, id text, actor_type text, actor_id text, request_id text,
    expected_seq bigint, body json);

-- What a verb does: the member that names its target; the legal states of a step or tool call,
-- joined by ' or '; the next state; the event; whether the run must be RUNNING; the states that all
-- steps must have; and the same for the signal of the run.
create type outlog.run_transition as (target text, from_states text, to_state text, event_type text,
    needs_running boolean, step_states text, signal_from text, signal_to text, signal_event text);

-- Null for a verb that does not exist.
create function outlog.run_transition_of(verb text) returns outlog.run_transition
language plpgsql immutable as $$
begin
    return case verb
        --= run_transitions()
    end;
end $$;

-- Fails with invalid_field where a member of the body is missing or breaks its limit.
create function outlog.run_check_body(verb text, body json) returns void language plpgsql as $$
begin
    case verb
    --= run_members()
    end case;
end $$;

create function outlog.run_refuse_number(field text, value numeric, lowest integer, highest integer) returns void
language plpgsql as $$
begin
    if value < lowest or value > highest then
        perform outlog.fail('invalid_field', format('%s must be a whole number from %s%s', field, lowest,
                            ' to ' || highest), json_build_object('pointer', '/' || field));
    end if;
end $$;

-- plpgsql, although SQL would do: a SQL function starts an executor of its own at each call.
create function outlog.signal_json(s outlog.signals) returns json language plpgsql stable as $$
begin
    return json_build_object('signal_id', s.signal_id, 'org_id', s.org_id, 'signal_type', s.signal_type,
        'payload', s.payload, 'status', s.status, 'correlation_id', s.correlation_id,
        'received_at', outlog.rfc3339(s.received_at));
end $$;
create function outlog.run_json(r outlog.runs) returns json language plpgsql stable as $$
begin
    return json_build_object('run_id', r.run_id, 'org_id', r.org_id, 'signal_id', r.signal_id,
        'run_type', r.run_type, 'orchestrator_version', r.orchestrator_version, 'status', r.status,
        'total_steps', r.total_steps, 'failed_steps', r.failed_steps, 'correlation_id', r.correlation_id,
        'started_at', outlog.rfc3339(r.started_at), 'completed_at', outlog.rfc3339(r.completed_at));
end $$;
create function outlog.step_json(s outlog.steps) returns json language plpgsql stable as $$
begin
    return json_build_object('step_id', s.step_id, 'run_id', s.run_id, 'step_index', s.step_index,
        'step_type', s.step_type, 'status', s.status, 'output_result', s.output_result,
        'error_code', s.error_code, 'error_message', s.error_message, 'duration_ms', s.duration_ms,
        'retry_count', s.retry_count, 'started_at', outlog.rfc3339(s.started_at),
        'completed_at', outlog.rfc3339(s.completed_at));
end $$;

create function outlog.run_missing(what text, id text) returns void language plpgsql as $$
begin
    perform outlog.fail('not_found', format('no %s %s; check the id', what, coalesce(id, '')));
end $$;

-- Fails with illegal_transition.
create function outlog.run_refuse(verb text, what text, id text, status text, needed text) returns void
language plpgsql as $$
begin
    perform outlog.fail('illegal_transition',
                        format('%s %s is %s; %s needs %s', what, id, status, verb, needed));
end $$;

create function outlog.run_append(call outlog.run_call, org_id text, aggregate_type text, aggregate_id text,
        event_type text, payload json, correlation_id text, causation_id uuid, expected_seq bigint,
        id text) returns outlog.append_result language plpgsql as $$
#variable_conflict use_variable
declare
    result outlog.append_result;
begin
    select * into result from outlog.append_own(org_id => org_id, aggregate_type => aggregate_type,
        aggregate_id => aggregate_id, event_type => event_type, payload => payload::text,
        actor_type => call.actor_type, actor_id => call.actor_id, request_id => call.request_id,
        correlation_id => correlation_id, causation_id => causation_id::text, expected_seq => expected_seq,
        id => id, metadata => outlog.trace_metadata());
    return result;
end $$;

-- Checks expected_seq of a command whose event belongs to another aggregate than the run it names.
create function outlog.run_expect(call outlog.run_call, org_id text, aggregate_type text) returns void
language plpgsql as $$
#variable_conflict use_variable
declare
    actual bigint;
begin
    if call.expected_seq is not null then
        select h.aggregate_seq into actual from outlog.heads h where h.org_key = coalesce(org_id, '')
           and h.aggregate_type = aggregate_type and h.aggregate_id = call.id;
        if coalesce(actual, 0) <> call.expected_seq then
            perform outlog.refuse_sequence(aggregate_type, call.id, call.expected_seq, coalesce(actual, 0), 0);
        end if;
    end if;
end $$;

-- --- signals and runs ---

create function outlog.run_receive_signal(call outlog.run_call, org_id text, move outlog.run_transition)
    returns json language plpgsql as $$
#variable_conflict use_variable
declare
    s  outlog.signals;
    at outlog.append_result;
begin
    s.signal_id := outlog.uuid7()::text;
    s.signal_type := call.body ->> 'signal_type';
    s.payload := call.body -> 'payload';
    s.org_id := org_id;
    s.status := move.to_state;
    at := outlog.run_append(call, org_id, 'SIGNAL', s.signal_id, move.event_type,
        json_build_object('signal_id', s.signal_id, 'signal_type', s.signal_type, 'payload', s.payload),
        call.body ->> 'correlation_id', null, call.expected_seq, null);
    s.correlation_id := at.correlation_id;
    s.received_at := at.occurred_at;
    s.last_event_id := at.id;
    insert into outlog.signals values (s.*);
    return outlog.signal_json(s);
end $$;

create function outlog.run_start(call outlog.run_call, org_id text, move outlog.run_transition)
    returns json language plpgsql as $$
#variable_conflict use_variable
declare
    r      outlog.runs;
    s      outlog.signals;
    at     outlog.append_result;
    picked outlog.append_result;
begin
    r.run_id := outlog.uuid7()::text;
    r.org_id := org_id;
    r.run_type := call.body ->> 'run_type';
    r.orchestrator_version := call.body ->> 'orchestrator_version';
    r.signal_id := lower(call.body ->> 'signal_id');
    if r.signal_id is not null then
        select * into s from outlog.signals g where g.signal_id = r.signal_id for update;
        if not found or s.org_id is distinct from org_id then
            perform outlog.run_missing('signal', r.signal_id);
        end if;
        if s.status <> all (string_to_array(move.signal_from, ' or ')) then
            perform outlog.run_refuse(call.verb, 'signal', s.signal_id, s.status, move.signal_from);
        end if;
        picked := outlog.run_append(call, org_id, 'SIGNAL', s.signal_id, move.signal_event,
            json_build_object('signal_id', s.signal_id, 'run_id', r.run_id), s.correlation_id, s.last_event_id,
            null, null);
    end if;
    r.status := move.to_state;
    r.total_steps := 0;
    r.failed_steps := 0;
    at := outlog.run_append(call, org_id, 'RUN', r.run_id, move.event_type,
        json_build_object('run_id', r.run_id, 'signal_id', r.signal_id, 'run_type', r.run_type,
            'orchestrator_version', r.orchestrator_version),
        s.correlation_id, s.last_event_id, call.expected_seq, null);
    r.correlation_id := at.correlation_id;
    r.started_at := at.occurred_at;
    r.started_event_id := at.id;
    r.last_event_id := at.id;
    insert into outlog.runs values (r.*);
    if r.signal_id is not null then
        update outlog.signals g set status = move.signal_to, last_event_id = picked.id
         where g.signal_id = r.signal_id;
    end if;
    return outlog.run_json(r);
end $$;

create function outlog.run_checkpoint(call outlog.run_call, r outlog.runs, move outlog.run_transition)
    returns json language plpgsql as $$
#variable_conflict use_variable
declare
    at outlog.append_result;
    n  integer;
begin
    select coalesce(max(c.checkpoint_index), 0) + 1 into n
      from outlog.run_checkpoints c where c.run_id = r.run_id;
    at := outlog.run_append(call, r.org_id, 'RUN', r.run_id, move.event_type,
        json_build_object('run_id', r.run_id, 'checkpoint_index', n,
                          'checkpoint_data', call.body -> 'checkpoint_data'),
        r.correlation_id, r.last_event_id, call.expected_seq, null);
    insert into outlog.run_checkpoints
    values (r.run_id, n, call.body -> 'checkpoint_data', at.event_id, at.occurred_at);
    update outlog.runs u set last_event_id = at.id where u.run_id = r.run_id;
    return json_build_object('run_id', r.run_id, 'checkpoint_index', n,
        'checkpoint_data', call.body -> 'checkpoint_data', 'event_id', at.event_id,
        'created_at', outlog.rfc3339(at.occurred_at));
end $$;

-- complete_run, fail_run, cancel_run. The signal of the run ends with it.
create function outlog.run_end(call outlog.run_call, r outlog.runs, move outlog.run_transition)
    returns json language plpgsql as $$
#variable_conflict use_variable
declare
    at      outlog.append_result;
    open_id text;
    open_status text;
    why     json := case call.verb
        when 'fail_run' then json_build_object('error_code', call.body ->> 'error_code',
                                               'error_message', call.body ->> 'error_message')
        when 'cancel_run' then json_build_object('reason', call.body ->> 'reason')
        else '{}' end;
begin
    if move.step_states is not null then
        select t.step_id, t.status into open_id, open_status from outlog.steps t
         where t.run_id = r.run_id and t.status <> all (string_to_array(move.step_states, ' or '))
         order by t.step_index limit 1;
        if found then
            perform outlog.run_refuse(call.verb, 'step', open_id, open_status, 'every step ' || move.step_states);
        end if;
    end if;
    r.status := move.to_state;
    at := outlog.run_append(call, r.org_id, 'RUN', r.run_id, move.event_type,
        outlog.json_join(json_build_object('run_id', r.run_id), why), r.correlation_id, r.last_event_id,
        call.expected_seq, null);
    r.completed_at := at.occurred_at;
    update outlog.runs u set status = r.status, completed_at = r.completed_at, last_event_id = at.id
     where u.run_id = r.run_id;
    if r.signal_id is not null then
        perform from outlog.signals g where g.signal_id = r.signal_id for update;
        at := outlog.run_append(call, r.org_id, 'SIGNAL', r.signal_id, move.signal_event,
            outlog.json_join(json_build_object('signal_id', r.signal_id, 'run_id', r.run_id), why),
            r.correlation_id, at.id, null, null);
        update outlog.signals g set status = move.signal_to, last_event_id = at.id
         where g.signal_id = r.signal_id;
    end if;
    return outlog.run_json(r);
end $$;

-- One object with the members of both, values as they are written.
create function outlog.json_join(one json, two json) returns json language plpgsql immutable as $$
begin
    return case when two::text = '{}' then one
           else (rtrim(one::text, '} ') || ', ' || ltrim(two::text, '{ '))::json end;
end $$;

-- --- steps and tools ---

create function outlog.run_start_step(call outlog.run_call, r outlog.runs, move outlog.run_transition)
    returns json language plpgsql as $$
#variable_conflict use_variable
declare
    s  outlog.steps;
    at outlog.append_result;
begin
    s.step_id := outlog.uuid7()::text;
    s.run_id := r.run_id;
    s.step_type := call.body ->> 'step_type';
    s.step_index := call.body ->> 'step_index';
    perform outlog.run_expect(call, r.org_id, 'RUN');
    if s.step_index is null then
        select coalesce(max(t.step_index), 0) into s.step_index from outlog.steps t where t.run_id = r.run_id;
        if s.step_index = 2147483647 then
            perform outlog.fail('invalid_field', 'no step_index is left after 2147483647; give one',
                                json_build_object('pointer', '/step_index'));
        end if;
        s.step_index := s.step_index + 1;
    end if;
    s.status := 'RUNNING';
    s.retry_count := 0;
    at := outlog.run_append(call, r.org_id, 'STEP', s.step_id, move.event_type,
        json_build_object('step_id', s.step_id, 'run_id', s.run_id, 'step_index', s.step_index,
                          'step_type', s.step_type),
        r.correlation_id, r.started_event_id, null, null);
    s.started_at := at.occurred_at;
    s.last_event_id := at.id;
    insert into outlog.steps values (s.*);
    return outlog.step_json(s);
end $$;

-- complete_step, fail_step, skip_step, retry_step, correct_step: one event of the step; the row and
-- the run's counters follow.
create function outlog.run_move_step(call outlog.run_call, r outlog.runs, s outlog.steps,
        move outlog.run_transition) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    at    outlog.append_result;
    was   text := s.status;
    head  json := json_build_object('step_id', s.step_id, 'run_id', s.run_id, 'step_index', s.step_index,
                                    'step_type', s.step_type);
    cause text;
begin
    s.status := move.to_state;
    if call.verb in ('complete_step', 'fail_step') then
        s.duration_ms := coalesce((call.body ->> 'duration_ms')::bigint,
            greatest(0, floor(extract(epoch from clock_timestamp() - s.started_at) * 1000))::bigint);
    end if;
    case call.verb
    when 'complete_step' then
        s.output_result := call.body -> 'output_result';
        head := outlog.json_join(head, json_build_object('output_result', s.output_result,
                                                         'duration_ms', s.duration_ms));
    when 'fail_step' then
        s.error_code := call.body ->> 'error_code';
        s.error_message := call.body ->> 'error_message';
        head := outlog.json_join(head, json_build_object('error_code', s.error_code,
            'error_message', s.error_message, 'duration_ms', s.duration_ms));
    when 'skip_step' then
        head := outlog.json_join(head, json_build_object('reason', call.body ->> 'reason'));
    when 'retry_step' then
        s.retry_count := s.retry_count + 1;
        head := outlog.json_join(head, json_build_object('retry_count', s.retry_count));
    when 'correct_step' then
        s.output_result := call.body -> 'output_result';
        head := outlog.json_join(head, json_build_object('output_result', s.output_result));
        cause := call.body ->> 'causation_id';
    end case;
    if cause is null then
        cause := s.last_event_id::text;
    end if;
    select * into at from outlog.append_own(org_id => r.org_id, aggregate_type => 'STEP', aggregate_id => s.step_id,
        event_type => move.event_type, payload => head::text, actor_type => call.actor_type,
        actor_id => call.actor_id, request_id => call.request_id, correlation_id => r.correlation_id,
        causation_id => cause, expected_seq => call.expected_seq);
    if s.status = 'RUNNING' then                  -- a retry
        s.started_at := at.occurred_at;
        s.completed_at := null;
        s.duration_ms := null;
    elsif s.status <> was then
        s.completed_at := at.occurred_at;
    end if;
    if s.status in ('RUNNING', 'COMPLETED') then
        s.error_code := null;
        s.error_message := null;
    end if;
    s.last_event_id := at.id;
    update outlog.steps t set status = s.status, output_result = s.output_result, error_code = s.error_code,
           error_message = s.error_message, duration_ms = s.duration_ms, retry_count = s.retry_count,
           started_at = s.started_at, completed_at = s.completed_at, last_event_id = s.last_event_id
     where t.step_id = s.step_id;
    update outlog.runs u set total_steps = u.total_steps + (s.status = 'COMPLETED' and was <> 'COMPLETED')::integer,
           failed_steps = u.failed_steps + (s.status = 'FAILED')::integer,
           last_event_id = case u.status when 'RUNNING' then at.id else u.last_event_id end
     where u.run_id = r.run_id;
    return outlog.step_json(s);
end $$;

-- A tool call is the event TOOL_CALLED and has the id of that event. It has ended when there is an
-- event TOOL_COMPLETED or TOOL_FAILED with that event as its cause.
create function outlog.run_call_tool(call outlog.run_call, r outlog.runs, s outlog.steps,
        move outlog.run_transition) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    tool text := outlog.uuid7()::text;
begin
    perform outlog.run_append(call, r.org_id, 'STEP', s.step_id, move.event_type,
        json_build_object('tool_call_id', tool, 'step_id', s.step_id, 'run_id', s.run_id,
            'tool_name', call.body ->> 'tool_name', 'input', call.body -> 'input'),
        r.correlation_id, s.last_event_id, call.expected_seq, tool);
    return json_build_object('tool_call_id', tool, 'step_id', s.step_id, 'run_id', s.run_id,
        'tool_name', call.body ->> 'tool_name', 'status', 'RUNNING');
end $$;

create function outlog.run_end_tool(call outlog.run_call, r outlog.runs, called outlog.events,
        move outlog.run_transition) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    ended text;
    tool  json := json_build_object('tool_call_id', call.id, 'step_id', called.aggregate_id, 'run_id', r.run_id,
                                    'tool_name', called.payload ->> 'tool_name');
begin
    select substr(e.event_type, 6) into ended from outlog.events e
     where e.causation_id = called.id and e.event_type in ('TOOL_COMPLETED', 'TOOL_FAILED') limit 1;
    if coalesce(ended, 'RUNNING') <> move.from_states then
        perform outlog.run_refuse(call.verb, 'tool call', call.id, ended, move.from_states);
    end if;
    perform outlog.run_append(call, r.org_id, 'STEP', called.aggregate_id, move.event_type,
        outlog.json_join(tool, case call.verb
            when 'complete_tool' then json_build_object('result', call.body -> 'result')
            else json_build_object('error_code', call.body ->> 'error_code',
                                   'error_message', call.body ->> 'error_message') end),
        r.correlation_id, called.id, call.expected_seq, null);
    return outlog.json_join(tool, json_build_object('status', move.to_state));
end $$;

-- --- effects ---

-- What an effect takes from its run: org, correlation and cause. Locks the run. No row: there is no
-- such run here; a run_id may also name a run of another system.
create function outlog.run_of_effect(run_id text, step_id text, out org_id text, out status text,
        out correlation_id text, out cause uuid, out has_step boolean) returns setof record
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
    r outlog.runs;
    s outlog.steps;
begin
    select * into r from outlog.runs u where u.run_id = lower(run_id) for update;
    if not found then
        return;
    end if;
    select * into s from outlog.steps t where t.step_id = lower(step_id) and t.run_id = r.run_id;
    org_id := r.org_id;
    status := r.status;
    correlation_id := r.correlation_id;
    cause := coalesce(s.last_event_id, r.started_event_id);
    has_step := step_id is null or s.step_id is not null;
    return next;
end $$;

-- --- the entry point ---

-- run_command: runs one command. The functions of 3_functions.sql and the C library call it.
-- Parameters: verb, id         what to do (run_transitions.json), and its target
--             org              the only org the caller may use; null: every org
--             actor_type, actor_id, request_id  of the events; null: the defaults of outlog.append
--             idempotency_key  a repeat returns the first answer, and replayed is true (I1)
--             body             a JSON object with the members of the verb
-- Returns:    the object of docs/runs.md as answer.
-- Errors:     invalid_field, org_required, not_found, illegal_transition, sequence_conflict,
--             idempotency_key_reuse, idempotency_in_progress, and those of outlog.append.
-- Locks:      the row of the run, and that of its signal where it changes, until the transaction
--             ends.
create function outlog.run_command(verb text, id text, org text, actor_type text, actor_id text, request_id text,
        idempotency_key text, body json, out answer json, out replayed boolean)
    language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_variable
declare
    move   outlog.run_transition := outlog.run_transition_of(verb);
    call   outlog.run_call;
    r      outlog.runs;
    s      outlog.steps;
    called outlog.events;
    stored text;
    org_id text;
    target text;     -- the run to lock
begin
    call := (verb, lower(id), coalesce(actor_type, 'system'), coalesce(actor_id, 'system'),
             coalesce(request_id, outlog.uuid7()::text), (body ->> 'expected_seq')::bigint, body);
    replayed := false;
    if move.event_type is null then
        perform outlog.fail('invalid_field', format('there is no command %s', verb));
    elsif call.expected_seq < 0 then
        perform outlog.fail('invalid_field', 'expected_seq must be a whole number from 0',
                            json_build_object('pointer', '/expected_seq'));
    elsif id is null and move.target is not null then
        perform outlog.refuse_field(move.target, null, 1, true);
    end if;
    if move.target is null then
        if body -> 'org_id' is null and org is null then
            perform outlog.fail('org_required', 'org_id is missing; give one, or null for an infrastructure event',
                                json_build_object('pointer', '/org_id'));
        end if;
        org_id := case when body -> 'org_id' is null then org else body ->> 'org_id' end;
        perform outlog.refuse_field('org_id', org_id, 100, false);
    else
        case move.target
        when 'run_id' then
            target := call.id;
        when 'tool_call_id' then
            called := outlog.find_event(call.id);
            if called.event_type is distinct from 'TOOL_CALLED' then
                perform outlog.run_missing('tool call', id);
            end if;
            target := called.payload ->> 'run_id';
        when 'step_id' then
            select t.run_id into target from outlog.steps t where t.step_id = call.id;
            if not found then
                perform outlog.run_missing('step', id);
            end if;
        end case;
        select * into r from outlog.runs u where u.run_id = target for update;
        if not found or (org is not null and r.org_id is distinct from org)
           or (called.event_id is not null and called.org_id is distinct from r.org_id) then
            perform outlog.run_missing(case move.target when 'run_id' then 'run' when 'step_id' then 'step'
                                       else 'tool call' end, id);
        end if;
        org_id := r.org_id;
    end if;

    if idempotency_key is not null then
        stored := outlog.idempotency_begin(org_id, call.actor_id, verb, idempotency_key,
                                           json_build_object('id', call.id, 'body', body));
        if stored is not null then
            answer := stored;
            replayed := true;
            return;
        end if;
    end if;

    if move.needs_running and r.status <> 'RUNNING' then
        perform outlog.run_refuse(verb, 'run', r.run_id, r.status, 'a RUNNING run');
    end if;
    if move.target = 'step_id' then
        select * into s from outlog.steps t where t.step_id = call.id;
        if s.status <> all (string_to_array(move.from_states, ' or ')) then
            perform outlog.run_refuse(verb, 'step', s.step_id, s.status, move.from_states);
        end if;
    end if;
    perform outlog.run_check_body(verb, body);

    case verb
    when 'receive_signal' then answer := outlog.run_receive_signal(call, org_id, move);
    when 'start_run'      then answer := outlog.run_start(call, org_id, move);
    when 'checkpoint_run' then answer := outlog.run_checkpoint(call, r, move);
    when 'complete_run', 'fail_run', 'cancel_run' then answer := outlog.run_end(call, r, move);
    when 'start_step'     then answer := outlog.run_start_step(call, r, move);
    when 'call_tool'      then answer := outlog.run_call_tool(call, r, s, move);
    when 'complete_tool', 'fail_tool' then answer := outlog.run_end_tool(call, r, called, move);
    when 'complete_step', 'fail_step', 'skip_step', 'retry_step', 'correct_step' then
        answer := outlog.run_move_step(call, r, s, move);
    when 'request_effect' then
        perform outlog.run_expect(call, r.org_id, 'RUN');
        select to_json(e) into answer from outlog.request_effect(run_id => r.run_id, org_id => r.org_id,
            effect_type => body ->> 'effect_type', destination => body ->> 'destination',
            effect_spec => (body -> 'effect_spec')::text, idempotency_key => body ->> 'idempotency_key',
            ordering_key => body ->> 'ordering_key', step_id => body ->> 'step_id',
            max_attempts => (body ->> 'max_attempts')::integer, actor_type => call.actor_type,
            actor_id => call.actor_id) e;
    end case;

    if idempotency_key is not null then
        perform outlog.idempotency_end(org_id, call.actor_id, verb, idempotency_key, answer::text);
    end if;
end $$;
