// States, each a shape, a word and a colour: the colour never stands alone.
import { html } from './html.js';

const SHAPES = {
    dot: html`<circle cx="6" cy="6" r="4.5" />`,
    ring: html`<circle cx="6" cy="6" r="3.75" class="hollow" />`,
    half: html`<g><circle cx="6" cy="6" r="3.75" class="hollow" />
        <path d="M6 2.25a3.75 3.75 0 0 1 0 7.5z" /></g>`,
    broken: html`<g><circle cx="6" cy="6" r="3.9" class="hollow" />
        <path d="M2.5 9.5l7-7" class="hollow" /></g>`,
    pause: html`<path d="M3 2h2.2v8H3zM6.8 2H9v8H6.8z" />`,
    cross: html`<path d="M2.5 2.5l7 7M9.5 2.5l-7 7" class="hollow" />`,
    check: html`<path d="M1.8 6.5l3 3 5.4-7" class="hollow" />`,
    again: html`<path d="M9.9 6a3.9 3.9 0 1 1-1.2-2.8M9.9 1v2.6H7.3" class="hollow" />`,
    square: html`<rect x="2" y="2" width="8" height="8" rx="1" />`,
    diamond: html`<path d="M6 .8l5.2 5.2L6 11.2.8 6z" />`,
    triangle: html`<path d="M2 1.5l8.5 4.5L2 10.5z" />`,
    question: html`<path d="M3.8 4a2.2 2.2 0 1 1 3.3 2c-.8.5-1.1.9-1.1 1.7M6 9.6v.9" class="hollow"
        />`,
    skip: html`<path d="M1.5 2l4 4-4 4M6.5 2l4 4-4 4" class="hollow" />`,
};

const STATES = {
    // destinations
    ok: ['dot', 'good', 'ok'],
    open: ['broken', 'bad', 'open'],
    half_open: ['half', 'warn', 'half open'],
    failing: ['again', 'warn', 'failing'],
    behind: ['half', 'warn', 'behind'],
    paused: ['pause', 'calm', 'paused'],
    // messages
    PENDING: ['ring', 'calm', 'PENDING'],
    RETRYING: ['again', 'warn', 'retrying'],
    CLAIMED: ['half', 'calm', 'CLAIMED'],
    PUBLISHED: ['check', 'good', 'PUBLISHED'],
    DEAD: ['cross', 'bad', 'DEAD'],
    // attempts
    'attempt.ok': ['check', 'good', 'ok'],
    'attempt.failed': ['cross', 'bad', 'failed'],
    'attempt.unknown': ['question', 'warn', 'unknown'],
    'attempt.released': ['skip', 'calm', 'released'],
    // runs, steps, effects, signals
    checkpoint: ['diamond', 'calm', 'checkpoint'],
    corrected: ['again', 'calm', 'corrected'],
    RUNNING: ['half', 'calm', 'RUNNING'],
    EXECUTING: ['half', 'calm', 'EXECUTING'],
    PROCESSING: ['half', 'calm', 'PROCESSING'],
    RECEIVED: ['ring', 'calm', 'RECEIVED'],
    COMPLETED: ['check', 'good', 'COMPLETED'],
    PROCESSED: ['check', 'good', 'PROCESSED'],
    FAILED: ['cross', 'bad', 'FAILED'],
    CANCELLED: ['skip', 'calm', 'CANCELLED'],
    SKIPPED: ['skip', 'calm', 'SKIPPED'],
    // views
    running: ['dot', 'good', 'running'],
    rebuilding: ['again', 'warn', 'rebuilding'],
    stopped: ['cross', 'bad', 'stopped'],
    // tokens
    active: ['dot', 'good', 'active'],
    revoked: ['cross', 'calm', 'revoked'],
};

export function Shape({ name, tone }) {
    return html`<svg class="shape ${tone || ''}" viewBox="0 0 12 12" width="12" height="12"
        aria-hidden="true">${SHAPES[name] || SHAPES.ring}</svg>`;
}

export function State({ of, word }) {
    const [shape, tone, name] = STATES[of] || ['ring', 'calm', String(of ?? 'unknown')];
    return html`<span class="state ${tone}"><${Shape} name=${shape} />${word || name}</span>`;
}

export const toneOf = (state) => (STATES[state] || [])[1] || 'calm';
export const shapeOf = (state) => (STATES[state] || [])[0] || 'ring';

// What a destination is to a person, in the order of what hurts.
const HURTS = ['open', 'half_open', 'failing', 'behind', 'paused', 'ok'];
const BEHIND_MS = 60e3;

export function healthOf(destination) {
    const { breaker, paused, fail_per_min, oldest_pending_ms } = destination;
    if (paused) return 'paused';
    if (breaker === 'open' || breaker === 'half_open') return breaker;
    if (fail_per_min > 0 || destination.retrying > 0) return 'failing';
    return oldest_pending_ms > BEHIND_MS ? 'behind' : 'ok';
}

// Worst first; a paused one hurts while something waits for it.
export function byHurt(a, b) {
    const rank = (one) => {
        const health = healthOf(one);
        return health === 'paused' && one.pending > 0 ? 0.5 : HURTS.indexOf(health);
    };
    return (
        rank(a) - rank(b) ||
        (b.dead || 0) - (a.dead || 0) ||
        (b.oldest_pending_ms || 0) - (a.oldest_pending_ms || 0) ||
        (b.pending || 0) - (a.pending || 0) ||
        a.name.localeCompare(b.name)
    );
}

export function messageState(message) {
    return message.state === 'PENDING' && message.attempts > 0 ? 'RETRYING' : message.state;
}
