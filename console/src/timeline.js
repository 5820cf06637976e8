// A run as the rows of a timeline: its steps, what befell them, their tools and effects with every
// attempt, its checkpoints; each with where it stood in time. `outlog run show` draws the same.

// Blocks in the order of time: a step with what it did, an effect of no step, a checkpoint.
export function rowsOf(run, trace, now = Date.now()) {
    const events = trace?.events || [];
    const tools = toolsOf(events);
    const effects = run.effects || [];
    const rows = (effect, depth) =>
        rowsOfEffect(effect, depth, trace?.attempts?.[effect.message_id]);
    const blocks = [
        ...(run.steps || []).map((step) => [
            rowOfStep(step, events, now),
            ...[...turnsOf(step, events), ...(tools[step.step_id] || [])].sort(
                (a, b) => a.from - b.from,
            ),
            ...effects
                .filter((effect) => effect.step_id === step.step_id)
                .flatMap((effect) => rows(effect, 1)),
        ]),
        ...effects.filter((effect) => !effect.step_id).map((effect) => rows(effect, 0)),
        ...(run.checkpoints || []).map((point) => [rowOfCheckpoint(point)]),
    ];
    return blocks.sort((a, b) => a[0].from - b[0].from).flat();
}

// From its first start, which a retry takes out of the row but not out of the log.
function rowOfStep(step, events, now) {
    const first = events.find(
        (event) => event.event_type === 'STEP_STARTED' && event.aggregate_id === step.step_id,
    );
    const error = step.error_message && {
        error_code: step.error_code,
        error_message: step.error_message,
    };
    const retries = step.retry_count ? `, retry ${step.retry_count}` : '';
    return {
        key: step.step_id,
        depth: 0,
        state: step.status,
        from: Date.parse(first?.occurred_at ?? step.started_at),
        to: step.completed_at ? Date.parse(step.completed_at) : now,
        took: step.duration_ms,
        isOpenEnd: !step.completed_at && step.status === 'RUNNING',
        label: `${step.step_index} ${step.step_type}${retries}`,
        detail: error || (step.output_result ?? {}),
        detailLabel: error ? 'Error' : 'Output',
    };
}

const TURNS = {
    STEP_FAILED: ['FAILED', ({ error_code: code, error_message: text }) => `${code}: ${text}`],
    STEP_RETRIED: ['RETRYING', ({ retry_count: n }) => `tried again, retry ${n}`],
    STEP_SKIPPED: ['SKIPPED', ({ reason }) => (reason ? `skipped: ${reason}` : 'skipped')],
    STEP_CORRECTED: ['corrected', (_, by) => `corrected by ${by}`],
};

// What befell a step between its start and its end, and after it.
function turnsOf(step, events) {
    return events
        .filter((event) => TURNS[event.event_type] && event.aggregate_id === step.step_id)
        .map((event) => {
            const [state, word] = TURNS[event.event_type];
            const at = Date.parse(event.occurred_at);
            return {
                key: event.id,
                depth: 1,
                state,
                from: at,
                to: at,
                isMoment: true,
                label: word(event.payload, event.actor_id),
                detail: event.payload,
                detailLabel: event.event_type,
            };
        });
}

function rowsOfEffect(effect, depth, attempts = []) {
    const from = Date.parse(effect.created_at);
    const ended = Date.parse(effect.executed_at || effect.updated_at || effect.created_at);
    const tries = attempts.map((attempt) => rowOfAttempt(effect, depth + 1, attempt));
    return [
        {
            key: effect.effect_id,
            depth,
            state: effect.status,
            from,
            to: Math.max(from, ended, ...tries.map((one) => one.to)),
            label: `effect ${effect.effect_type}`,
            detail: effect.effect_spec ?? {},
            detailLabel: 'Effect',
            message: effect.message_id,
        },
        ...tries,
    ];
}

function rowOfAttempt(effect, depth, attempt) {
    const from = Date.parse(attempt.started_at);
    const said = [attempt.outcome, attempt.status].filter((one) => one != null).join(' ');
    return {
        key: `${effect.effect_id}/${attempt.attempt}`,
        depth,
        state: `attempt.${attempt.outcome}`,
        from,
        to: from + (attempt.duration_ms || 0),
        label: `attempt ${attempt.attempt}: ${said}`,
        detail: attempt,
        detailLabel: 'Attempt',
    };
}

function rowOfCheckpoint(point) {
    const at = Date.parse(point.created_at);
    return {
        key: `c${point.checkpoint_index}`,
        depth: 0,
        state: 'checkpoint',
        from: at,
        to: at,
        isMoment: true,
        label: `checkpoint ${point.checkpoint_index}`,
        detail: point.checkpoint_data ?? {},
        detailLabel: 'Checkpoint',
    };
}

// Tool calls are known by their events alone: called, then completed or failed.
function toolsOf(events) {
    const steps = {};
    const calls = {};
    for (const event of events.filter((one) => /^TOOL_/.test(one.event_type))) {
        const { tool_call_id: id, tool_name: name } = event.payload;
        const at = Date.parse(event.occurred_at);
        if (!calls[id]) {
            calls[id] = {
                key: `tool ${id}`,
                depth: 1,
                state: 'RUNNING',
                label: `tool ${name ?? ''}`,
                from: at,
                to: at,
                detail: event.payload,
                detailLabel: 'Tool call',
            };
            (steps[event.aggregate_id] ||= []).push(calls[id]);
        }
        if (event.event_type === 'TOOL_COMPLETED' || event.event_type === 'TOOL_FAILED') {
            Object.assign(calls[id], {
                to: at,
                state: event.event_type === 'TOOL_FAILED' ? 'FAILED' : 'COMPLETED',
                detail: { ...calls[id].detail, ...event.payload },
            });
        }
    }
    return steps;
}
