-- The commands of a run (U1), for SQL and for the C library alike: on PostgreSQL there is this one
-- implementation. Each is one transaction: lock the run, look whether the move is legal (the table stands
-- in docs/runs.md), append the event, move the row at the event's own time.
--
-- Every command of a run locks its row first. So within a run event_id rises in the order of commits, and
-- a checkpoint has nothing of the run's own below it that could still appear. Effects alone are moved
-- by relays, which never wait for a run.

create type outlog.signal_view as (signal_id text, org_id text, signal_type text, payload json, status text,
    correlation_id text, received_at timestamptz);
create type outlog.run_view as (run_id text, org_id text, signal_id text, run_type text, orchestrator_version text,
    status text, total_steps integer, failed_steps integer, correlation_id text, started_at timestamptz,
    completed_at timestamptz);
create type outlog.step_view as (step_id text, run_id text, step_index integer, step_type text, status text,
    output_result json, error_code text, error_message text, duration_ms bigint, retry_count integer,
    started_at timestamptz, completed_at timestamptz);
create type outlog.checkpoint_view as (run_id text, checkpoint_index integer, checkpoint_data json, event_id bigint,
    created_at timestamptz);
create type outlog.tool_view as (tool_call_id text, step_id text, run_id text, tool_name text, status text);

-- Who calls, and what they said.
create type outlog.run_call as (verb text, id text, actor_type text, actor_id text, request_id text,
    expected_seq bigint, body json);

-- plpgsql, where SQL would be enough: a function in SQL starts an executor of its own at each call.
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

-- A move that the table does not have.
create function outlog.run_refuse(verb text, what text, id text, status text, needed text) returns void
language plpgsql as $$
begin
    perform outlog.fail('illegal_transition', format('%s %s is %s; %s needs %s', what, id, status, verb, needed));
end $$;

create function outlog.run_append(call outlog.run_call, org_id text, aggregate_type text, aggregate_id text,
        event_type text, payload json, correlation_id text, causation_id uuid, expected_seq bigint,
        id text) returns outlog.append_result language plpgsql as $$
#variable_conflict use_variable
declare
    result outlog.append_result;
begin
    select * into result from outlog.append(org_id => org_id, aggregate_type => aggregate_type,
        aggregate_id => aggregate_id, event_type => event_type, payload => payload::text,
        actor_type => call.actor_type, actor_id => call.actor_id, request_id => call.request_id,
        correlation_id => correlation_id, causation_id => causation_id::text, expected_seq => expected_seq,
        id => id, metadata => outlog.trace_metadata());
    return result;
end $$;

-- expected_seq of a command whose event stands on another aggregate than the one it names.
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

create function outlog.run_receive_signal(call outlog.run_call, org_id text) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    s  outlog.signals;
    at outlog.append_result;
begin
    s.signal_id := outlog.uuid7()::text;
    s.signal_type := call.body ->> 'signal_type';
    perform outlog.refuse_field('signal_type', s.signal_type, 100, true);
    perform outlog.refuse_field('correlation_id', call.body ->> 'correlation_id', 255, false);
    s.payload := call.body -> 'payload';
    s.org_id := org_id;
    s.status := 'RECEIVED';
    at := outlog.run_append(call, org_id, 'SIGNAL', s.signal_id, 'SIGNAL_RECEIVED',
        json_build_object('signal_id', s.signal_id, 'signal_type', s.signal_type, 'payload', s.payload),
        call.body ->> 'correlation_id', null, call.expected_seq, null);
    s.correlation_id := at.correlation_id;
    s.received_at := at.occurred_at;
    s.last_event_id := at.id;
    insert into outlog.signals values (s.*);
    return outlog.signal_json(s);
end $$;

create function outlog.run_start(call outlog.run_call, org_id text) returns json language plpgsql as $$
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
    perform outlog.refuse_field('run_type', r.run_type, 100, true);
    perform outlog.refuse_field('orchestrator_version', r.orchestrator_version, 100, true);
    perform outlog.refuse_field('signal_id', r.signal_id, 262144, false);
    if r.signal_id is not null then
        select * into s from outlog.signals g where g.signal_id = r.signal_id for update;
        if not found or s.org_id is distinct from org_id then
            perform outlog.run_missing('signal', r.signal_id);
        end if;
        if s.status not in ('RECEIVED', 'FAILED') then
            perform outlog.run_refuse(call.verb, 'signal', s.signal_id, s.status, 'RECEIVED or FAILED');
        end if;
        picked := outlog.run_append(call, org_id, 'SIGNAL', s.signal_id, 'SIGNAL_PROCESSING_STARTED',
            json_build_object('signal_id', s.signal_id, 'run_id', r.run_id), s.correlation_id, s.last_event_id,
            null, null);
    end if;
    r.status := 'RUNNING';
    r.total_steps := 0;
    r.failed_steps := 0;
    at := outlog.run_append(call, org_id, 'RUN', r.run_id, 'RUN_STARTED',
        json_build_object('run_id', r.run_id, 'signal_id', r.signal_id, 'run_type', r.run_type,
            'orchestrator_version', r.orchestrator_version),
        s.correlation_id, s.last_event_id, call.expected_seq, null);
    r.correlation_id := at.correlation_id;
    r.started_at := at.occurred_at;
    r.started_event_id := at.id;
    r.last_event_id := at.id;
    insert into outlog.runs values (r.*);
    if r.signal_id is not null then
        update outlog.signals g set status = 'PROCESSING', last_event_id = picked.id where g.signal_id = r.signal_id;
    end if;
    return outlog.run_json(r);
end $$;

create function outlog.run_checkpoint(call outlog.run_call, r outlog.runs) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    at outlog.append_result;
    n  integer;
begin
    if call.body -> 'checkpoint_data' is null then
        perform outlog.refuse_field('checkpoint_data', null, 1, true);
    end if;
    select coalesce(max(c.checkpoint_index), 0) + 1 into n from outlog.run_checkpoints c where c.run_id = r.run_id;
    at := outlog.run_append(call, r.org_id, 'RUN', r.run_id, 'RUN_CHECKPOINT_CREATED',
        json_build_object('run_id', r.run_id, 'checkpoint_index', n, 'checkpoint_data', call.body -> 'checkpoint_data'),
        r.correlation_id, r.last_event_id, call.expected_seq, null);
    insert into outlog.run_checkpoints
    values (r.run_id, n, call.body -> 'checkpoint_data', at.event_id, at.occurred_at);
    update outlog.runs u set last_event_id = at.id where u.run_id = r.run_id;
    return json_build_object('run_id', r.run_id, 'checkpoint_index', n, 'checkpoint_data', call.body -> 'checkpoint_data',
        'event_id', at.event_id, 'created_at', outlog.rfc3339(at.occurred_at));
end $$;

-- complete, fail, cancel; the signal's own end comes with it.
create function outlog.run_end(call outlog.run_call, r outlog.runs) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    at      outlog.append_result;
    s       outlog.signals;
    open_id text;
    open_status text;
    why     json;
begin
    if call.verb = 'complete_run' then
        select t.step_id, t.status into open_id, open_status from outlog.steps t
         where t.run_id = r.run_id and t.status in ('RUNNING', 'FAILED') order by t.step_index limit 1;
        if found then
            perform outlog.run_refuse(call.verb, 'step', open_id, open_status, 'every step COMPLETED or SKIPPED');
        end if;
        r.status := 'COMPLETED';
        why := '{}';
    elsif call.verb = 'fail_run' then
        perform outlog.refuse_field('error_code', call.body ->> 'error_code', 100, true);
        perform outlog.refuse_field('error_message', call.body ->> 'error_message', 262144, true);
        r.status := 'FAILED';
        why := json_build_object('error_code', call.body ->> 'error_code',
                                 'error_message', call.body ->> 'error_message');
    else
        perform outlog.refuse_field('reason', call.body ->> 'reason', 262144, false);
        r.status := 'CANCELLED';
        why := json_build_object('reason', call.body ->> 'reason');
    end if;
    at := outlog.run_append(call, r.org_id, 'RUN', r.run_id, 'RUN_' || r.status,
        outlog.json_join(json_build_object('run_id', r.run_id), why), r.correlation_id, r.last_event_id,
        call.expected_seq, null);
    r.completed_at := at.occurred_at;
    update outlog.runs u set status = r.status, completed_at = r.completed_at, last_event_id = at.id
     where u.run_id = r.run_id;
    if r.signal_id is not null then
        select * into s from outlog.signals g where g.signal_id = r.signal_id for update;
        s.status := case r.status when 'COMPLETED' then 'PROCESSED' else 'FAILED' end;
        at := outlog.run_append(call, r.org_id, 'SIGNAL', r.signal_id,
            case r.status when 'COMPLETED' then 'SIGNAL_PROCESSED' else 'SIGNAL_PROCESSING_FAILED' end,
            outlog.json_join(json_build_object('signal_id', r.signal_id, 'run_id', r.run_id), why),
            r.correlation_id, at.id, null, null);
        update outlog.signals g set status = s.status, last_event_id = at.id where g.signal_id = r.signal_id;
    end if;
    return outlog.run_json(r);
end $$;

-- The members of two objects, values as they are written.
create function outlog.json_join(one json, two json) returns json language plpgsql immutable as $$
begin
    return case when two::text = '{}' then one
           else (rtrim(one::text, '} ') || ', ' || ltrim(two::text, '{ '))::json end;
end $$;

-- --- steps and tools ---

create function outlog.run_start_step(call outlog.run_call, r outlog.runs) returns json language plpgsql as $$
#variable_conflict use_variable
declare
    s  outlog.steps;
    at outlog.append_result;
begin
    s.step_id := outlog.uuid7()::text;
    s.run_id := r.run_id;
    s.step_type := call.body ->> 'step_type';
    s.step_index := call.body ->> 'step_index';
    perform outlog.refuse_field('step_type', s.step_type, 100, true);
    if s.step_index < 0 then
        perform outlog.fail('invalid_field', 'step_index must be a whole number from 0',
                            json_build_object('pointer', '/step_index'));
    end if;
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
    at := outlog.run_append(call, r.org_id, 'STEP', s.step_id, 'STEP_STARTED',
        json_build_object('step_id', s.step_id, 'run_id', s.run_id, 'step_index', s.step_index, 'step_type', s.step_type),
        r.correlation_id, r.started_event_id, null, null);
    s.started_at := at.occurred_at;
    s.last_event_id := at.id;
    insert into outlog.steps values (s.*);
    return outlog.step_json(s);
end $$;

-- complete, fail, skip, retry, correct: one event on the step, the row and the run's counters.
create function outlog.run_move_step(call outlog.run_call, r outlog.runs, s outlog.steps) returns json
language plpgsql as $$
#variable_conflict use_variable
declare
    at    outlog.append_result;
    was   text := s.status;
    head  json := json_build_object('step_id', s.step_id, 'run_id', s.run_id, 'step_index', s.step_index,
                                    'step_type', s.step_type);
    cause text;
begin
    s.duration_ms := case when call.verb in ('complete_step', 'fail_step') then coalesce(
        (call.body ->> 'duration_ms')::bigint, greatest(0, floor(extract(epoch from clock_timestamp() - s.started_at) * 1000))::bigint) else s.duration_ms end;
    if call.verb in ('complete_step', 'correct_step') and call.body -> 'output_result' is null then
        perform outlog.refuse_field('output_result', null, 1, true);
    elsif s.duration_ms < 0 then
        perform outlog.fail('invalid_field', 'duration_ms must be a whole number from 0',
                            json_build_object('pointer', '/duration_ms'));
    end if;
    case call.verb
    when 'complete_step' then
        head := outlog.json_join(head, json_build_object('output_result', call.body -> 'output_result',
                                                         'duration_ms', s.duration_ms));
        s.status := 'COMPLETED';
        s.output_result := call.body -> 'output_result';
    when 'fail_step' then
        s.error_code := call.body ->> 'error_code';
        s.error_message := call.body ->> 'error_message';
        perform outlog.refuse_field('error_code', s.error_code, 100, true);
        perform outlog.refuse_field('error_message', s.error_message, 262144, true);
        head := outlog.json_join(head, json_build_object('error_code', s.error_code, 'error_message', s.error_message,
                                                         'duration_ms', s.duration_ms));
        s.status := 'FAILED';
    when 'skip_step' then
        perform outlog.refuse_field('reason', call.body ->> 'reason', 262144, false);
        head := outlog.json_join(head, json_build_object('reason', call.body ->> 'reason'));
        s.status := 'SKIPPED';
    when 'retry_step' then
        s.retry_count := s.retry_count + 1;
        head := outlog.json_join(head, json_build_object('retry_count', s.retry_count));
        s.status := 'RUNNING';
    else                                          -- correct_step
        head := outlog.json_join(head, json_build_object('output_result', call.body -> 'output_result'));
        cause := call.body ->> 'causation_id';
        s.status := 'COMPLETED';
        s.output_result := call.body -> 'output_result';
    end case;
    if cause is null then
        cause := s.last_event_id::text;
    end if;
    select * into at from outlog.append(org_id => r.org_id, aggregate_type => 'STEP', aggregate_id => s.step_id,
        event_type => case call.verb when 'complete_step' then 'STEP_COMPLETED' when 'fail_step' then 'STEP_FAILED'
            when 'skip_step' then 'STEP_SKIPPED' when 'retry_step' then 'STEP_RETRIED' else 'STEP_CORRECTED' end,
        payload => head::text, actor_type => call.actor_type, actor_id => call.actor_id, request_id => call.request_id,
        correlation_id => r.correlation_id, causation_id => cause, expected_seq => call.expected_seq);
    if s.status = 'RUNNING' then                  -- a new try
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

-- A tool call is the event that says so: its id is that event's id, and it is over when an event ends it.
create function outlog.run_call_tool(call outlog.run_call, r outlog.runs, s outlog.steps) returns json
language plpgsql as $$
#variable_conflict use_variable
declare
    tool text := outlog.uuid7()::text;
begin
    perform outlog.refuse_field('tool_name', call.body ->> 'tool_name', 100, true);
    perform outlog.run_append(call, r.org_id, 'STEP', s.step_id, 'TOOL_CALLED',
        json_build_object('tool_call_id', tool, 'step_id', s.step_id, 'run_id', s.run_id,
            'tool_name', call.body ->> 'tool_name', 'input', call.body -> 'input'),
        r.correlation_id, s.last_event_id, call.expected_seq, tool);
    return json_build_object('tool_call_id', tool, 'step_id', s.step_id, 'run_id', s.run_id,
        'tool_name', call.body ->> 'tool_name', 'status', 'RUNNING');
end $$;

create function outlog.run_end_tool(call outlog.run_call, r outlog.runs, called outlog.events) returns json
language plpgsql as $$
#variable_conflict use_variable
declare
    ended   text;
    outcome text := case call.verb when 'complete_tool' then 'COMPLETED' else 'FAILED' end;
begin
    select e.event_type into ended from outlog.events e
     where e.causation_id = called.id and e.event_type in ('TOOL_COMPLETED', 'TOOL_FAILED') limit 1;
    if found then
        perform outlog.run_refuse(call.verb, 'tool call', call.id, substr(ended, 6), 'RUNNING');
    end if;
    if outcome = 'FAILED' then
        perform outlog.refuse_field('error_code', call.body ->> 'error_code', 100, true);
        perform outlog.refuse_field('error_message', call.body ->> 'error_message', 262144, true);
    end if;
    perform outlog.run_append(call, r.org_id, 'STEP', called.aggregate_id, 'TOOL_' || outcome,
        outlog.json_join(json_build_object('tool_call_id', call.id, 'step_id', called.aggregate_id, 'run_id', r.run_id,
            'tool_name', called.payload ->> 'tool_name'),
            case outcome when 'COMPLETED' then json_build_object('result', call.body -> 'result')
            else json_build_object('error_code', call.body ->> 'error_code', 'error_message', call.body ->> 'error_message') end),
        r.correlation_id, called.id, call.expected_seq, null);
    return json_build_object('tool_call_id', call.id, 'step_id', called.aggregate_id, 'run_id', r.run_id,
        'tool_name', called.payload ->> 'tool_name', 'status', outcome);
end $$;

-- --- effects ---

-- What an effect takes from its run: org, correlation and cause. No row: the run is not one of ours.
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

-- --- the one way in ---

-- org: what the caller may touch, null for all. The answer is the object of docs/runs.md; replayed: the key
-- was used before, and this is what was said then (I1).
create function outlog.run_command(verb text, id text, org text, actor_type text, actor_id text, request_id text,
        idempotency_key text, body json, out answer json, out replayed boolean)
    language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_variable
declare
    call   outlog.run_call;
    r      outlog.runs;
    s      outlog.steps;
    called outlog.events;
    stored text;
    org_id text;
    target text;     -- the run to lock
    needed text;
begin
    call := (verb, lower(id), coalesce(actor_type, 'system'), coalesce(actor_id, 'system'),
             coalesce(request_id, outlog.uuid7()::text), (body ->> 'expected_seq')::bigint, body);
    replayed := false;
    if call.expected_seq < 0 then
        perform outlog.fail('invalid_field', 'expected_seq must be a whole number from 0',
                            json_build_object('pointer', '/expected_seq'));
    elsif id is null and verb not in ('receive_signal', 'start_run') then
        perform outlog.refuse_field(case when verb ~ '_step$' and verb <> 'start_step' or verb = 'call_tool' then 'step_id'
                                    when verb ~ '_tool$' then 'tool_call_id' else 'run_id' end, null, 1, true);
    end if;
    if verb in ('receive_signal', 'start_run') then
        if body -> 'org_id' is null and org is null then
            perform outlog.fail('org_required', 'org_id is missing; give one, or null for an infrastructure event',
                                json_build_object('pointer', '/org_id'));
        end if;
        org_id := case when body -> 'org_id' is null then org else body ->> 'org_id' end;
        perform outlog.refuse_field('org_id', org_id, 100, false);
    else
        case
        when verb in ('start_step', 'checkpoint_run', 'complete_run', 'fail_run', 'cancel_run', 'request_effect') then
            target := call.id;
        when verb in ('complete_tool', 'fail_tool') then
            called := outlog.find_event(call.id);
            if called.event_type is distinct from 'TOOL_CALLED' then
                perform outlog.run_missing('tool call', id);
            end if;
            target := called.payload ->> 'run_id';
        else
            select t.run_id into target from outlog.steps t where t.step_id = call.id;
            if not found then
                perform outlog.run_missing('step', id);
            end if;
        end case;
        select * into r from outlog.runs u where u.run_id = target for update;
        if not found or (org is not null and r.org_id is distinct from org)
           or (called.event_id is not null and called.org_id is distinct from r.org_id) then
            perform outlog.run_missing(case when target = call.id then 'run' when called.event_id is not null
                                       then 'tool call' else 'step' end, id);
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

    if r.run_id is not null and r.status <> 'RUNNING' and verb <> 'correct_step' then
        perform outlog.run_refuse(verb, 'run', r.run_id, r.status, 'a RUNNING run');
    end if;
    if target <> call.id and called.event_id is null then
        select * into s from outlog.steps t where t.step_id = call.id;
        needed := case verb when 'skip_step' then 'RUNNING or FAILED' when 'retry_step' then 'FAILED'
                  when 'correct_step' then 'COMPLETED or FAILED' else 'RUNNING' end;
        if s.status <> all (string_to_array(needed, ' or ')) then
            perform outlog.run_refuse(verb, 'step', s.step_id, s.status, needed);
        end if;
    end if;

    case verb
    when 'receive_signal' then answer := outlog.run_receive_signal(call, org_id);
    when 'start_run'      then answer := outlog.run_start(call, org_id);
    when 'checkpoint_run' then answer := outlog.run_checkpoint(call, r);
    when 'complete_run', 'fail_run', 'cancel_run' then answer := outlog.run_end(call, r);
    when 'start_step'     then answer := outlog.run_start_step(call, r);
    when 'call_tool'      then answer := outlog.run_call_tool(call, r, s);
    when 'complete_tool', 'fail_tool' then answer := outlog.run_end_tool(call, r, called);
    when 'complete_step', 'fail_step', 'skip_step', 'retry_step', 'correct_step' then
        answer := outlog.run_move_step(call, r, s);
    when 'request_effect' then
        perform outlog.run_expect(call, r.org_id, 'RUN');
        select to_json(e) into answer from outlog.request_effect(run_id => r.run_id, org_id => r.org_id,
            effect_type => body ->> 'effect_type', destination => body ->> 'destination',
            effect_spec => (body -> 'effect_spec')::text, idempotency_key => body ->> 'idempotency_key',
            ordering_key => body ->> 'ordering_key', step_id => body ->> 'step_id',
            max_attempts => (body ->> 'max_attempts')::integer, actor_type => call.actor_type,
            actor_id => call.actor_id) e;
    else
        perform outlog.fail('invalid_field', format('there is no command %s', verb));
    end case;

    if idempotency_key is not null then
        perform outlog.idempotency_end(org_id, call.actor_id, verb, idempotency_key, answer::text);
    end if;
end $$;
