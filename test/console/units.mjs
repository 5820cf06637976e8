// The parts of the console that need no browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { about, brief, clock, plural, rate, relative, span } from '../../console/src/format.js';
import { asText, layout, offset, pathOf } from '../../console/src/graph.js';
import { field, parse } from '../../console/src/json.js';
import { byHurt, healthOf } from '../../console/src/status.js';
import { rowsOf } from '../../console/src/timeline.js';
import { summarize } from '../../console/src/summary.js';

test('a payload is cut out of its answer byte for byte', () => {
    const text =
        '{"id":1,"payload":{"a": 1.10 ,"b":"\\"}]","c":[1,{}],"d":12345678901234567890}, "z":null}';
    assert.equal(
        field(text, 'payload'),
        '{"a": 1.10 ,"b":"\\"}]","c":[1,{}],"d":12345678901234567890}',
    );
    assert.equal(field(text, 'z'), 'null');
    assert.equal(field(text, 'nothing'), undefined);
    assert.equal(
        field('{"p\\u0061yload":[]}', 'payload'),
        '[]',
        'names are compared as what they mean',
    );
});

test('the tree knows kinds and places', () => {
    const node = parse(' [true, -1e3, "x\\\\", {"k": null}] ');
    assert.deepEqual(
        node.items.map((item) => item.node.kind),
        ['boolean', 'number', 'string', 'object'],
    );
    assert.throws(() => parse('{"a":'));
    assert.throws(() => parse('<html>'));
    assert.throws(() => parse('"open'));
});

test('numbers and spans as people read them', () => {
    assert.equal(about(20000, { is_estimate: true }), '≈ 20,000');
    assert.equal(about(20000, { is_estimate: false }), '20,000');
    assert.equal(about(0, { is_estimate: true }), '0');
    assert.deepEqual([0, 0.44, 12.4, 1204, 31500].map(rate), ['0', '0.4', '12', '1,204', '31.5k']);
    assert.deepEqual([0.8, 41, 999, 3000, 61e3, 240e3, 7200e3, 2 * 86400e3].map(span), [
        '0.8 ms',
        '41 ms',
        '999 ms',
        '3 s',
        '61 s',
        '4 min',
        '2 h',
        '2 d',
    ]);
    assert.deepEqual([span(null), rate(undefined)], ['–', '–']);
    assert.equal(plural(1, 'message'), '1 message');
    assert.equal(brief('01a1e30d-3bd3-7cce-a0ed-488b36ff95c9'), '01a1e30d…ff95c9');
    assert.equal(brief('order-1'), 'order-1');
    const now = Date.parse('2026-01-01T12:00:00Z');
    assert.equal(relative('2026-01-01T11:59:57.5Z', now), '2 s ago');
    assert.equal(relative('2026-01-01T12:04:00Z', now), 'in 4 min');
    assert.match(clock('2020-05-05T10:00:00Z'), /May/);
});

const event = (n, cause, at) => ({
    id: `e${n}`,
    event_id: n,
    causation_id: cause && `e${cause}`,
    occurred_at: at,
    aggregate_type: 'order',
    aggregate_id: 'o-1',
    event_type: `type.${n}`,
});
const T = '2026-01-01T12:00:00.000Z';

test('a cause stands left of what it caused, also within one transaction', () => {
    const { nodes, ticks } = layout([
        event(1, null, T),
        event(2, 1, T),
        event(3, 2, T),
        event(4, 1, '2026-01-01T12:10:00Z'),
    ]);
    for (const node of nodes)
        if (node.parent)
            assert.ok(node.x > node.parent.x, `${node.label} right of ${node.parent.label}`);
    assert.deepEqual(
        nodes.map((node) => [node.label, node.depth]),
        [
            ['type.1', 0],
            ['type.2', 1],
            ['type.3', 2],
            ['type.4', 1],
        ],
    );
    assert.equal(offset(ticks.at(-1).offset), '+10:00');
    assert.deepEqual([...pathOf(nodes[2])], ['e3', 'e2', 'e1']);
});

test('messages and attempts hang on the event they came from', () => {
    const message = {
        event_id: 'm',
        causation_id: 'e1',
        created_at: T,
        destination: 'billing',
        event_type: 'x',
        state: 'DEAD',
        attempts: 1,
    };
    const graph = layout([event(1, null, T)], [message], {
        m: [{ attempt: 1, started_at: T, duration_ms: 4, outcome: 'failed', status: 503 }],
    });
    assert.deepEqual(
        graph.nodes.map((node) => node.label),
        ['type.1', '→ billing', 'attempt 1'],
    );
    assert.equal(
        asText('trace t', graph).split('\n').slice(2).join('\n'),
        [
            'type.1  order/o-1  0',
            '└─ → billing  x, DEAD  0',
            '   └─ attempt 1  failed · 503 · 4 ms  0',
            '',
        ].join('\n'),
    );
});

test('an unknown cause makes a root, nothing makes an empty graph', () => {
    assert.equal(layout([event(2, 1, T)]).nodes[0].parent, null);
    assert.deepEqual(layout([]).nodes, []);
});

test('a run is told with all that befell its steps', () => {
    const at = (second) => `2026-01-01T12:00:0${second}Z`;
    const says = (id, type, second, payload) => ({
        id,
        event_type: type,
        aggregate_id: 's',
        occurred_at: at(second),
        actor_id: 'ann',
        payload,
    });
    const run = {
        steps: [
            {
                step_id: 's',
                step_index: 1,
                step_type: 'CHARGE',
                status: 'COMPLETED',
                retry_count: 1,
                started_at: at(4),
                completed_at: at(6),
                duration_ms: 1523,
            },
        ],
        effects: [
            {
                effect_id: 'a',
                step_id: 's',
                effect_type: 'MAIL',
                status: 'COMPLETED',
                created_at: at(5),
                executed_at: at(5),
            },
            {
                effect_id: 'b',
                step_id: null,
                effect_type: 'CALL',
                status: 'FAILED',
                created_at: at(7),
                updated_at: at(8),
                message_id: 'm',
            },
        ],
        checkpoints: [{ checkpoint_index: 1, created_at: at(9) }],
    };
    const trace = {
        attempts: {
            m: [{ attempt: 1, outcome: 'failed', status: 503, started_at: at(7), duration_ms: 5 }],
        },
        events: [
            says('1', 'STEP_STARTED', 1, {}),
            says('2', 'TOOL_CALLED', 2, { tool_call_id: 't', tool_name: 'look' }),
            says('3', 'TOOL_COMPLETED', 2, { tool_call_id: 't' }),
            says('4', 'STEP_FAILED', 3, { error_code: 'LATE', error_message: 'no answer' }),
            says('5', 'STEP_RETRIED', 4, { retry_count: 1 }),
            says('6', 'STEP_CORRECTED', 8, { output_result: {} }),
        ],
    };
    const rows = rowsOf(run, trace);
    assert.deepEqual(
        rows.map((row) => [row.depth, row.state, row.label]),
        [
            [0, 'COMPLETED', '1 CHARGE, retry 1'],
            [1, 'COMPLETED', 'tool look'],
            [1, 'FAILED', 'LATE: no answer'],
            [1, 'RETRYING', 'tried again, retry 1'],
            [1, 'corrected', 'corrected by ann'],
            [1, 'COMPLETED', 'effect MAIL'],
            [0, 'FAILED', 'effect CALL'],
            [1, 'attempt.failed', 'attempt 1: failed 503'],
            [0, 'checkpoint', 'checkpoint 1'],
        ],
    );
    assert.equal(rows[0].from, Date.parse(at(1)), 'from its first start');
    assert.equal(rows[0].took, 1523, 'what the step said itself');
    assert.equal(rowsOf(run, null)[0].from, Date.parse(at(4)), 'without the right to see events');
});

const destination = (more) => ({
    name: 'd',
    breaker: 'closed',
    paused: false,
    pending: 0,
    oldest_pending_ms: null,
    ok_per_min: 0,
    fail_per_min: 0,
    retrying: 0,
    dead: 0,
    held: 0,
    ...more,
});
const stats = (more, ...destinations) => ({
    settled: 9,
    events_total: 9,
    pending: 0,
    claimed: 0,
    dead: 0,
    destinations,
    ...more,
});

test('what hurts comes first', () => {
    const all = [
        destination({ name: 'fine' }),
        destination({ name: 'idle', paused: true }),
        destination({ name: 'open', breaker: 'open' }),
        destination({ name: 'held up', paused: true, pending: 3 }),
        destination({ name: 'late', pending: 1, oldest_pending_ms: 90e3 }),
    ];
    assert.deepEqual(
        all.sort(byHurt).map((one) => one.name),
        ['open', 'held up', 'late', 'idle', 'fine'],
    );
    assert.equal(healthOf(destination({ retrying: 1 })), 'failing');
});

test('each state has its sentence', () => {
    const say = (more, of = {}) => summarize(stats(of, destination(more)))[0];
    assert.match(
        say({ breaker: 'open', last_error: 'HTTP 503', fail_per_min: 96, pending: 812 }).text,
        /^does not take messages: HTTP 503 \(96 of 96 in the last minute\)\. 812 messages wait; nothing is lost\.$/,
    );
    assert.deepEqual(say({ paused: true, pending: 1 }).acts, ['resume']);
    assert.match(say({ pending: 5, oldest_pending_ms: 300e3 }).text, /Is a relay running\?/);
    assert.match(say({ held: 1 }).text, /holds 1 key behind a dead letter/);
    assert.match(
        summarize(stats({ dead: 2 }, destination({ dead: 2 }))).at(-1).text,
        /^2 dead letters of d wait for your decision/,
    );
    assert.equal(summarize(stats({}))[0].tone, 'good');
    assert.deepEqual(summarize(stats({ settled: 0, events_total: 0 }))[0].acts, ['append']);
});
