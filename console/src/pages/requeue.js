// Requeue and kill: what will happen, the doing, and what came of it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, post } from '../api.js';
import { count, plural } from '../format.js';
import { html } from '../html.js';
import { to } from '../router.js';
import { State, messageState } from '../status.js';
import { Dialog } from '../ui.js';

const AT_ONCE = 4; // single calls under way
const WATCHED = 20; // messages whose further way is shown
const WATCH_MS = 700;
const WATCH_FOR_MS = 60e3;

// What one can do to messages: {verb, destination, count(signal) → {n, unknown}, run(onProgress, how) →
// {n, ids}}. `unknown` are those that go at most once and may have arrived: they are left out unless `how`
// says {even_if_unknown: true}.

export function one(verb, message) {
    const path = `/v1/messages/${message.event_id}/${verb}`;
    return {
        verb,
        destination: message.destination,
        count: async () => {
            if (verb !== 'requeue') return { n: 1, unknown: 0 };
            await post(path, { dry_run: true, even_if_unknown: true });
            return post(path, { dry_run: true }).then(
                () => ({ n: 1, unknown: 0 }),
                () => ({ n: 0, unknown: 1 }),
            );
        },
        run: async (_, how) => {
            await post(path, verb === 'requeue' ? how : {});
            return { n: 1, ids: [message.event_id] };
        },
    };
}

// All that fit; the server counts first and does it in one go.
export function requeueAll(filter) {
    const body = { state: 'DEAD', ...filter };
    return {
        verb: 'requeue',
        destination: filter.destination,
        count: async () => {
            const { requeued, skipped = 0 } = await post('/v1/messages/requeue', {
                ...body,
                dry_run: true,
            });
            return { n: requeued, unknown: skipped };
        },
        run: async (_, how) => {
            const { requeued, event_ids } = await post('/v1/messages/requeue', { ...body, ...how });
            return { n: requeued, ids: event_ids || [] };
        },
    };
}

export function killAll(filter) {
    const body = { state: 'PENDING', ...filter };
    return {
        verb: 'kill',
        destination: filter.destination,
        count: async () => ({
            unknown: 0,
            n: (await post('/v1/messages/kill', { ...body, dry_run: true })).killed,
        }),
        run: async () => {
            const { killed, event_ids } = await post('/v1/messages/kill', body);
            return { n: killed, ids: event_ids || [] };
        },
    };
}

// Those the server cannot pick by itself: found page by page, done one by one.
export function each(verb, params, fits = () => true) {
    let found = [];
    return {
        verb,
        destination: params.destination,
        count: async (signal) => {
            found = [];
            let after;
            do {
                const page = await get(
                    '/v1/messages',
                    { ...params, limit: 1000, after },
                    { signal },
                );
                found.push(...page.messages.filter(fits));
                after = page.next_after;
            } while (after);
            return { n: found.length, unknown: 0 };
        },
        run: async (onProgress) => {
            const ids = found.map((message) => message.event_id);
            const done = [];
            await Promise.all(
                Array.from({ length: AT_ONCE }, async () => {
                    for (let id = ids.shift(); id; id = ids.shift()) {
                        try {
                            await post(`/v1/messages/${id}/${verb}`);
                            done.push(id);
                        } catch (problem) {
                            if (problem.code !== 'illegal_transition') throw problem; // somebody was faster
                        }
                        onProgress(done.length);
                    }
                }),
            );
            return { n: done.length, ids: done };
        },
    };
}

const WORDS = {
    requeue: {
        title: 'Requeue',
        done: 'requeued',
        means: 'They are tried again as soon as the relay takes them, in the order of their keys. Past attempts stay on record; each message gets a fresh budget of attempts.',
    },
    kill: {
        title: 'Kill',
        done: 'killed',
        means: 'They become dead letters now and are not tried again by themselves. Later messages of the same key go on. Requeue brings them back.',
    },
    release: {
        title: 'Release',
        done: 'released',
        means: 'The message stays dead; what waits behind it with the same key is delivered without it.',
    },
};

export function Operation({ of, what, onClose }) {
    const words = WORDS[of.verb];
    const [step, setStep] = useState({ name: 'counting' });
    const [isBold, setBold] = useState(false); // also what may have arrived already
    const stop = useRef(new AbortController());

    useEffect(() => {
        of.count(stop.current.signal).then(
            (found) => setStep({ name: 'preview', ...found }),
            (problem) => setStep({ name: 'failed', problem }),
        );
        return () => stop.current.abort();
    }, []);

    const n = step.n + (isBold ? step.unknown : 0);
    async function run() {
        setStep({ name: 'running', n, done: 0 });
        try {
            const result = await of.run(
                (done) => setStep({ name: 'running', n, done }),
                isBold ? { even_if_unknown: true } : {},
            );
            setStep({ name: 'done', ...result });
        } catch (problem) {
            setStep({ name: 'failed', problem });
        }
    }

    return html`<${Dialog} title="${words.title} ${what}" onClose=${onClose}>
        <${Step} step=${{ ...step, n: step.name === 'preview' ? n : step.n }} words=${words}
            of=${of} />
        ${
            step.name === 'preview' &&
            step.unknown > 0 &&
            html`<label class="choice warn">
            <input type="checkbox" checked=${isBold}
            onChange=${(event) => setBold(event.target.checked)} />
            also ${plural(
                step.unknown,
                'message',
            )} that may have arrived already: ask the receiver first</label>`
        }
        <form method="dialog" class="buttons">
            ${
                step.name === 'preview' &&
                n > 0 &&
                html`<button type="button" autofocus
                class=${of.verb === 'kill' ? 'danger' : 'primary'} onClick=${run}>
                    ${words.title} ${plural(n, 'message')}</button>`
            }
            <button disabled=${step.name === 'running'}>
                ${
                    step.name === 'done' || step.name === 'failed' ? 'Close' : 'Cancel'
                }</button></form>
    <//>`;
}

function Step({ step, words, of }) {
    switch (step.name) {
        case 'counting':
            return html`<p role="status">Counting what this touches…</p>`;
        case 'preview':
            if (!step.n && step.unknown)
                return html`<p>It goes at most once and may have arrived; nobody but the receiver knows.</p>`;
            if (!step.n)
                return html`<p>Nothing fits any more: somebody was faster, or it was delivered meanwhile.</p>`;
            return html`<p><strong>${plural(step.n, 'message')}</strong>
            ${
                of.destination &&
                html` to <strong>
            ${of.destination}</strong>`
            } will be ${words.done}.</p>
            <p class="dim">${words.means}</p>
                <${Warning} destination=${of.destination} verb=${of.verb} />`;
        case 'running':
            return html`<p role="status">
        ${step.done ? `${count(step.done)} of ${count(step.n)} ${words.done}…` : 'On it…'}</p>`;
        case 'failed':
            return html`<p class="bad" role="alert">${step.problem.message}</p>`;
        default:
            return html`<p role="status">
        <strong>${plural(step.n, 'message')} ${words.done}.</strong></p>
        ${of.verb === 'requeue' && step.ids.length > 0 && html`<${Outcome} ids=${step.ids} />`}`;
    }
}

// Requeueing into a wall is allowed, but nobody should do it unknowingly.
function Warning({ destination, verb }) {
    const [state, setState] = useState(null);
    useEffect(() => {
        if (!destination || verb !== 'requeue') return;
        get('/v1/destinations').then(
            ({ destinations }) => setState(destinations.find((d) => d.name === destination)),
            () => {},
        );
    }, [destination]);
    if (state?.paused)
        return html`<p class="warn">
        ${destination} is paused: they will wait until it is resumed.</p>`;
    if (state?.breaker === 'open')
        return html`<p class="warn">
        ${destination} still refuses (breaker open): they may well die again. Test it first.</p>`;
    return null;
}

// Follows the first few until each is delivered or dead again.
function Outcome({ ids }) {
    const [messages, setMessages] = useState([]);
    useEffect(() => {
        let timer = 0;
        const until = Date.now() + WATCH_FOR_MS;
        async function look() {
            const now = await Promise.all(
                ids.slice(0, WATCHED).map((id) => get(`/v1/messages/${id}`).catch(() => null)),
            );
            const known = now.filter(Boolean);
            setMessages(known);
            const isOver = known.every((message) => ['PUBLISHED', 'DEAD'].includes(message.state));
            if (!isOver && Date.now() < until) timer = setTimeout(look, WATCH_MS);
        }
        look();
        return () => clearTimeout(timer);
    }, []);
    const counts = {};
    messages.forEach((message) => {
        counts[messageState(message)] = (counts[messageState(message)] || 0) + 1;
    });
    return html`<div class="outcome" role="status">
        ${ids.length > WATCHED && html`<p class="dim">The first ${WATCHED} of them:</p>`}
        <ul>${Object.entries(counts).map(
            ([state, n]) => html`<li>
            <${State} of=${state} /> ${count(n)}</li>`,
        )}</ul>
        ${
            ids.length === 1 &&
            html`<p>
            <a href=${to('messages', ids[0])}>Open the message</a></p>`
        }</div>`;
}
