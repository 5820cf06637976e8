-- Effects: what a run or a session asks of the outside world (U5).
create type outlog.effect_result as (effect_id uuid, event_id uuid, duplicate boolean);

-- T4: the trace context of a transaction, for the events and messages of its commands. The client
-- sets it with `set local outlog.traceparent = '00-…'`.
create function outlog.trace_metadata() returns text language plpgsql stable as $$
begin
    return '{"traceparent":"' || substring(current_setting('outlog.traceparent', true)
                                           from '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}') || '"}';
end $$;

-- request_effect: stores an effect, its message and the event EFFECT_REQUESTED in the caller's
-- transaction.
-- Parameters: effect_type, destination  of the message; 1 to 100 bytes
--             effect_spec      the message's payload: a JSON object of at most 256 KiB, as text,
--                              json or jsonb
--             org_id           null: infrastructure; in a run the org of the run
--             run_id, step_id, session_key, checkpoint_id  what the effect belongs to
--             idempotency_key  default: that of effect_spec, else derived from effect_spec
--             ordering_key, max_attempts  of the message
--             correlation_id   default: that of the run or cause, else a new one
--             causation_id     id or event_id of the causing event; default: the step's, else the
--                              run's start
--             actor_type, actor_id  of the event
-- Returns:    effect_id, event_id of the message, and duplicate: an effect with this key exists,
--             and the ids are those of the first.
-- Errors:     invalid_field, invalid_json, too_large; not_found (the run has no such step, or
--             another org); illegal_transition (the run is not RUNNING); idempotency_key_reuse (a
--             message that is no effect has the key); unavailable (another transaction just took
--             the key: roll back and retry); unknown_causation; and those of outlog.append.
-- Locks:      the row of the run, until the transaction ends.
create function outlog.request_effect(
        effect_type text, destination text, effect_spec text, org_id text default null,
        run_id text default null, step_id text default null, session_key text default null,
        checkpoint_id text default null, idempotency_key text default null, ordering_key text default null,
        max_attempts integer default null, correlation_id text default null,
        causation_id text default null,
        actor_type text default 'system', actor_id text default 'system')
    returns setof outlog.effect_result
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    cause_said text := request_effect.causation_id;
    result outlog.effect_result;
    spec   json := outlog.checked_json(request_effect.effect_spec, 'effect_spec');
    key    text;
    asked  outlog.append_result;
    sent   outlog.enqueue_result;
    run    record;
begin
    -- In a run the effect has the run's org and correlation. Its cause is the step, else the run's
    -- start.
    for run in select * from outlog.run_of_effect(request_effect.run_id, request_effect.step_id) loop
        if not run.has_step or run.org_id is distinct from coalesce(request_effect.org_id, run.org_id) then
            perform outlog.fail('not_found',
                                format('run %s has no step %s', request_effect.run_id, request_effect.step_id));
        elsif run.status <> 'RUNNING' then
            perform outlog.fail('illegal_transition', format('run %s is %s; request_effect needs a RUNNING run',
                                request_effect.run_id, run.status));
        end if;
        request_effect.org_id := run.org_id;
        request_effect.correlation_id := coalesce(request_effect.correlation_id, run.correlation_id);
        cause_said := coalesce(cause_said, run.cause::text);
    end loop;
    result.effect_id := outlog.uuid7();
    key := coalesce(request_effect.idempotency_key, spec ->> 'idempotency_key',
                    outlog.derived_key('EFFECT', result.effect_id::text, request_effect.effect_type,
                                       request_effect.effect_spec));
    result.event_id := outlog.uuid7();
    sent.event_id := outlog.message_with_key(request_effect.org_id, request_effect.destination, key);
    if sent.event_id is not null then
        select e.effect_id, sent.event_id, true into result from outlog.effects e where e.message_id = sent.event_id;
        if not found then
            perform outlog.fail('idempotency_key_reuse', format('key %s was used for a message that is no effect; '
                'take a new key', key), json_build_object('pointer', '/idempotency_key'));
        end if;
        return next result;
        return;
    end if;
    -- ids, type, destination, key and the hash of the spec, which verify needs (U3); never the
    -- spec or headers (E13)
    select * into asked from outlog.append_own(org_id => request_effect.org_id, aggregate_type => 'EFFECT',
        aggregate_id => result.effect_id::text, event_type => 'EFFECT_REQUESTED',
        payload => json_build_object('effect_id', result.effect_id, 'run_id', request_effect.run_id,
            'effect_type', request_effect.effect_type, 'step_id', request_effect.step_id,
            'session_key', request_effect.session_key, 'checkpoint_id', request_effect.checkpoint_id,
            'destination', request_effect.destination, 'message_id', result.event_id, 'idempotency_key', key,
            'spec_hash', outlog.request_hash(spec))::text,
        actor_type => request_effect.actor_type, actor_id => request_effect.actor_id,
        correlation_id => request_effect.correlation_id, causation_id => cause_said,
        metadata => outlog.trace_metadata());
    -- The event comes first: it is the cause of the message, which has its correlation.
    select * into sent from outlog.enqueue(destination => request_effect.destination,
        event_type => request_effect.effect_type, payload => request_effect.effect_spec,
        org_id => request_effect.org_id, idempotency_key => key, ordering_key => request_effect.ordering_key,
        max_attempts => request_effect.max_attempts, correlation_id => asked.correlation_id,
        causation_id => asked.id::text, aggregate_type => 'EFFECT',
        aggregate_id => result.effect_id::text, event_id => result.event_id::text, metadata => outlog.trace_metadata());
    if sent.duplicate then
        perform outlog.fail('unavailable', 'an effect with this key was just requested; roll back and try again');
    end if;
    insert into outlog.effects (effect_id, org_id, run_id, step_id, session_key, checkpoint_id, effect_type,
            effect_spec, destination, idempotency_key, message_id, event_id, last_event_id, correlation_id,
            created_at, updated_at)
    values (result.effect_id, request_effect.org_id, request_effect.run_id, request_effect.step_id,
            request_effect.session_key, request_effect.checkpoint_id, request_effect.effect_type, spec,
            request_effect.destination, key, result.event_id, asked.event_id, asked.id, asked.correlation_id,
            asked.occurred_at, asked.occurred_at);
    result.duplicate := false;
    return next result;
end $$;
revoke all on all functions in schema outlog from public;
select outlog.overload('request_effect', '{effect_spec}');
