// The causation graph of a trace, laid out left to right on a time axis. Pure: events, messages and
// attempts in, places out.
//
// A trace may span a millisecond or a day of retries, so the axis is stepped: each instant has a
// column, columns stand in the order of time, the gap between two grows with the logarithm of the time
// between them, and each column says how long after the start it is. A cause always stands left of what
// it caused, also when both were committed together.
import { brief, clock, span } from './format.js';

export const ROW = 32;
const LEFT = 20;
const TOP = 28;
const GAP = 26;

const KINDS = {
    signal: 'triangle',
    run: 'dot',
    step: 'square',
    effect: 'diamond',
    session: 'ring',
};

export function layout(events, messages = [], attempts = {}) {
    const nodes = [
        ...events.map(ofEvent),
        ...messages.flatMap((one) => ofMessage(one, attempts[one.event_id])),
    ];
    const byKey = new Map(nodes.map((node) => [node.key, node]));
    for (const node of nodes) {
        node.parent = byKey.get(node.parentKey) || null;
        node.parent?.children.push(node);
    }
    const rows = [];
    nodes
        .filter((node) => !node.parent)
        .sort(inTime)
        .forEach((root) => walk(root, 0, rows));
    rows.forEach((node, i) => {
        node.row = i;
        node.y = TOP + i * ROW + ROW / 2;
    });
    const ticks = columns(rows);
    return {
        nodes: rows,
        ticks,
        width: (ticks.at(-1)?.x || 0) + LEFT,
        height: TOP + rows.length * ROW,
    };
}

function ofEvent(event) {
    return {
        key: event.id,
        parentKey: event.causation_id,
        at: Date.parse(event.occurred_at),
        order: event.event_id,
        shape: KINDS[String(event.aggregate_type).toLowerCase()] || 'dot',
        tone: toneOfType(event.event_type),
        label: event.event_type,
        about: `${event.aggregate_type}/${brief(event.aggregate_id)}`,
        href: ['events', event.event_id],
        children: [],
    };
}

function toneOfType(type) {
    if (/(FAILED|DEAD_LETTERED|\.failed)$/.test(type)) return 'bad';
    if (/RETRYING$/.test(type)) return 'warn';
    return 'accent';
}

function ofMessage(message, tries = []) {
    const at = Date.parse(message.created_at);
    const node = {
        key: `m:${message.event_id}`,
        parentKey: message.causation_id,
        at,
        order: Infinity,
        shape: 'message',
        tone: { DEAD: 'bad', PUBLISHED: 'good' }[message.state] || 'calm',
        label: `→ ${message.destination}`,
        about: `${message.event_type}, ${message.state === 'PENDING' && message.attempts ? 'retrying' : message.state}`,
        href: ['messages', message.event_id],
        children: [],
    };
    return [
        node,
        ...tries.map((one) => ({
            key: `a:${message.event_id}:${one.attempt}`,
            parentKey: node.key,
            at: Date.parse(one.started_at),
            order: Infinity,
            shape: { ok: 'check', failed: 'cross', unknown: 'question' }[one.outcome] || 'skip',
            tone: { ok: 'good', failed: 'bad', unknown: 'warn' }[one.outcome] || 'calm',
            label: `attempt ${one.attempt}`,
            about: [
                one.outcome,
                one.status,
                one.duration_ms != null && span(one.duration_ms),
                one.error,
            ]
                .filter(Boolean)
                .join(' · '),
            href: ['messages', message.event_id, 'attempts', one.attempt],
            children: [],
        })),
    ];
}

const inTime = (a, b) => a.at - b.at || (a.order === b.order ? 0 : a.order - b.order);

function walk(node, depth, rows) {
    node.depth = depth;
    rows.push(node);
    node.children.sort(inTime).forEach((child) => walk(child, depth + 1, rows));
}

function columns(rows) {
    const ticks = [];
    const start = Math.min(...rows.map((node) => node.at));
    for (const node of [...rows].sort((a, b) => a.at - b.at || a.depth - b.depth)) {
        const last = ticks.at(-1);
        if (!last || node.at - last.at >= 1 || node.parent?.tick === last) {
            const wait = last ? node.at - last.at : 0;
            ticks.push({
                at: node.at,
                offset: node.at - start,
                x: last ? last.x + GAP + 14 * Math.log10(1 + wait) : LEFT,
            });
        }
        node.tick = ticks.at(-1);
        node.x = node.tick.x;
    }
    return ticks;
}

// How long after the start: +5 ms, +3.2 s, +12:33, +2:05:10
export function offset(ms) {
    if (ms < 60e3) return ms ? `+${span(ms)}` : '0';
    const seconds = Math.floor(ms / 1000);
    const two = (n) => String(n).padStart(2, '0');
    const hours = Math.floor(seconds / 3600);
    const minutes = Math.floor(seconds / 60) % 60;
    return `+${hours ? `${hours}:${two(minutes)}` : minutes}:${two(seconds % 60)}`;
}

// What lights up under the pointer: the node, and all its causes.
export function pathOf(node) {
    const path = new Set();
    for (let one = node; one; one = one.parent) path.add(one.key);
    return path;
}

// The same tree, for a ticket or a chat.
export function asText(title, { nodes }) {
    const start = nodes.length ? Math.min(...nodes.map((node) => node.at)) : 0;
    const lines = [title];
    function put(node, indent, isLast, isRoot) {
        const branch = isRoot ? '' : isLast ? '└─ ' : '├─ ';
        lines.push(`${indent}${branch}${node.label}  ${node.about}  ${offset(node.at - start)}`);
        const below = isRoot ? '' : isLast ? '   ' : '│  ';
        node.children.forEach((child, i) =>
            put(child, indent + below, i === node.children.length - 1, false),
        );
    }
    nodes.filter((node) => !node.parent).forEach((root) => put(root, '', true, true));
    if (nodes.length)
        lines.splice(1, 0, `began ${new Date(start).toISOString()}, ${clock(start)} here`);
    return `${lines.join('\n')}\n`;
}
