// The state of things in sentences a person can act on. Pure: stats in, lines out.
import { clock, count, firstLine, plural, span } from './format.js';
import { byHurt, healthOf } from './state.js';

// [{tone, destination?, parts: [text…], acts: ['test', 'pause', 'resume', 'dead', …]}], worst first.
export function verdict(stats) {
    const lines = [...stats.destinations].sort(byHurt).flatMap((one) => [ofHealth(one), ofHeld(one)]).filter(Boolean);
    if (stats.dead > 0) lines.push(ofDead(stats));
    return lines.length ? lines : [allWell(stats)];
}

function ofHealth(one) {
    const say = { open: isOpen, half_open: isHalfOpen, failing: fails, behind: isBehind,
        paused: isPaused }[healthOf(one)];
    return say ? { destination: one.name, ...say(one) } : null;
}

function ofHeld(one) {
    if (!(one.held > 0)) return null;
    return { tone: 'warn', destination: one.name, acts: ['dead'],
        text: `holds ${plural(one.held, 'key')} behind a dead letter. What comes later with the same key waits until you requeue or release it.` };
}

function isOpen(one) {
    return { tone: 'bad', acts: ['test', 'pause'],
        text: `${answers(one)}${since(one)}${share(one)}. ${retry(one)}${waits(one)}` };
}

function isHalfOpen(one) {
    return { tone: 'warn', acts: ['test', 'pause'],
        text: `${answers(one)}${since(one)}, and is being tried again with single messages. ${waits(one)}` };
}

function fails(one) {
    const doing = one.retrying > 0 ? `${plural(one.retrying, 'message')} will be tried again. ` : '';
    return { tone: 'warn', acts: ['test', 'pause'],
        text: `${one.ok_per_min > 0 ? 'fails in part' : 'fails'}${share(one)}${one.last_error ? `: ${firstLine(one.last_error, 100)}` : ''}. ${doing}Nothing is lost.` };
}

function isBehind(one) {
    const isIdle = !(one.ok_per_min > 0) && !(one.fail_per_min > 0);
    return { tone: 'warn', acts: ['deliver', 'test'],
        text: isIdle ? `gets nothing, though ${plural(one.pending, 'message')} ${one.pending === 1 ? 'waits' : 'wait'}, the oldest for ${span(one.oldest_pending_ms)}. Is a relay running? outlog relay starts one.`
            : `is behind: ${plural(one.pending, 'message')} wait, the oldest for ${span(one.oldest_pending_ms)}; ${count(Math.round(one.ok_per_min))} leave a minute.` };
}

function isPaused(one) {
    if (!(one.pending > 0)) return { tone: 'calm', acts: ['resume'], text: 'is paused. Nothing waits for it.' };
    return { tone: 'warn', acts: ['resume'],
        text: `is paused${since(one)}. ${plural(one.pending, 'message')} ${one.pending === 1 ? 'waits' : 'wait'} until somebody resumes it; nothing is lost.` };
}

function ofDead(stats) {
    const of = stats.destinations.filter((one) => one.dead > 0);
    const whose = of.length === 1 ? ` of ${of[0].name}` : '';
    return { tone: 'bad', acts: ['dead'],
        text: `${plural(stats.dead, 'dead letter')}${whose} ${stats.dead === 1 ? 'waits' : 'wait'} for your decision: requeue once the cause is gone.` };
}

function allWell(stats) {
    if (!stats.events_total && !stats.settled) return { tone: 'calm', text: 'Nothing has been appended yet.', acts: ['append'] };
    const under = stats.pending + stats.claimed;
    return { tone: 'good', acts: [],
        text: under > 0 ? `All destinations keep up; ${plural(under, 'message')} ${under === 1 ? 'is' : 'are'} on the way.`
            : 'Everything that was sent has been delivered. Nothing waits, nothing is dead.' };
}

const answers = (one) => (one.last_error ? `does not take messages: ${firstLine(one.last_error, 100)}` : 'does not take messages');
const since = (one) => (one.since ? ` since ${clock(one.since)}` : '');
const waits = (one) => `${plural(one.pending, 'message')} ${one.pending === 1 ? 'waits' : 'wait'}; nothing is lost.`;
const retry = (one) => (one.retry_at ? `Tried again at ${clock(one.retry_at, { seconds: true })}. ` : '');

function share(one) {
    const failed = Math.round(one.fail_per_min || 0);
    const all = failed + Math.round(one.ok_per_min || 0);
    return all > 0 ? ` (${count(failed)} of ${count(all)} in the last minute)` : '';
}
