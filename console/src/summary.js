// The state of things in sentences a person can act on. Pure: stats in, lines out.
import { clock, count, firstLine, plural, span } from './format.js';
import { byHurt, healthOf } from './status.js';

// [{tone, destination?, text, acts: ['test', 'pause', 'resume', 'dead', …]}], worst first.
export function summarize(stats) {
    const lines = [...stats.destinations]
        .sort(byHurt)
        .flatMap((one) => [ofHealth(one), ofHeld(one)])
        .filter(Boolean);
    if (stats.dead > 0) lines.push(ofDead(stats));
    return lines.length ? lines : [allWell(stats)];
}

const SENTENCES = {
    open: isOpen,
    half_open: isHalfOpen,
    failing: fails,
    behind: isBehind,
    paused: isPaused,
};

function ofHealth(one) {
    const say = SENTENCES[healthOf(one)];
    return say ? { destination: one.name, ...say(one) } : null;
}

function ofHeld(one) {
    if (!(one.held > 0)) return null;
    return {
        tone: 'warn',
        destination: one.name,
        acts: ['dead'],
        text:
            `holds ${plural(one.held, 'key')} behind a dead letter. ` +
            'What comes later with the same key waits until you requeue or release it.',
    };
}

function isOpen(one) {
    return {
        tone: 'bad',
        acts: ['test', 'pause'],
        text: `${refuses(one)}${since(one)}${share(one)}. ${retry(one)}${waiting(one)}; nothing is lost.`,
    };
}

function isHalfOpen(one) {
    return {
        tone: 'warn',
        acts: ['test', 'pause'],
        text:
            `${refuses(one)}${since(one)}, and is being tried again with single messages. ` +
            `${waiting(one)}; nothing is lost.`,
    };
}

function fails(one) {
    const how = one.ok_per_min > 0 ? 'fails in part' : 'fails';
    const why = one.last_error ? `: ${firstLine(one.last_error, 100)}` : '';
    const next = one.retrying > 0 ? `${plural(one.retrying, 'message')} will be tried again. ` : '';
    return {
        tone: 'warn',
        acts: ['test', 'pause'],
        text: `${how}${share(one)}${why}. ${next}Nothing is lost.`,
    };
}

function isBehind(one) {
    const acts = ['deliver', 'test'];
    const oldest = `the oldest for ${span(one.oldest_pending_ms)}`;
    if (one.ok_per_min > 0 || one.fail_per_min > 0) {
        const leaving = count(Math.round(one.ok_per_min));
        return {
            tone: 'warn',
            acts,
            text: `is behind: ${waiting(one)}, ${oldest}; ${leaving} leave a minute.`,
        };
    }
    return {
        tone: 'warn',
        acts,
        text:
            `gets nothing, though ${waiting(one)}, ${oldest}. ` +
            'Is a relay running? outlog relay starts one.',
    };
}

function isPaused(one) {
    const acts = ['resume'];
    if (!(one.pending > 0)) return { tone: 'calm', acts, text: 'is paused. Nothing waits for it.' };
    return {
        tone: 'warn',
        acts,
        text: `is paused${since(one)}. ${waiting(one)} until somebody resumes it; nothing is lost.`,
    };
}

function ofDead(stats) {
    const of = stats.destinations.filter((one) => one.dead > 0);
    const whose = of.length === 1 ? ` of ${of[0].name}` : '';
    const wait = stats.dead === 1 ? 'waits' : 'wait';
    return {
        tone: 'bad',
        acts: ['dead'],
        text:
            `${plural(stats.dead, 'dead letter')}${whose} ${wait} for your decision: ` +
            'requeue once the cause is gone.',
    };
}

function allWell(stats) {
    if (!stats.events_total && !stats.settled) {
        return { tone: 'calm', text: 'Nothing has been appended yet.', acts: ['append'] };
    }
    const under = stats.pending + stats.claimed;
    const are = under === 1 ? 'is' : 'are';
    return {
        tone: 'good',
        acts: [],
        text:
            under > 0
                ? `All destinations keep up; ${plural(under, 'message')} ${are} on the way.`
                : 'Everything that was sent has been delivered. Nothing waits, nothing is dead.',
    };
}

const waiting = (one) =>
    `${plural(one.pending, 'message')} ${one.pending === 1 ? 'waits' : 'wait'}`;
const since = (one) => (one.since ? ` since ${clock(one.since)}` : '');
const retry = (one) =>
    one.retry_at ? `Tried again at ${clock(one.retry_at, { seconds: true })}. ` : '';

function refuses(one) {
    const why = one.last_error ? `: ${firstLine(one.last_error, 100)}` : '';
    return `does not take messages${why}`;
}

function share(one) {
    const failed = Math.round(one.fail_per_min || 0);
    const all = failed + Math.round(one.ok_per_min || 0);
    return all > 0 ? ` (${count(failed)} of ${count(all)} in the last minute)` : '';
}
