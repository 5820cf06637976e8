// The server: calls, problems and the event stream. The token is kept for this tab only and leaves
// the page in the Authorization header, never in an address.
import { isReachable, person } from './shared.js';

const KEPT_AS = 'outlog.token';
const RETRY_MS = [500, 1000, 2000, 5000, 10000];

export class Problem extends Error {
    constructor(status, body) {
        super(body.detail || body.title || `the server answered ${status}`);
        Object.assign(this, {
            status,
            code: body.code,
            request_id: body.request_id,
            errors: body.errors || [],
        });
    }
}

export function signIn(token) {
    sessionStorage.setItem(KEPT_AS, token.trim());
    return whoami();
}

export function signOut() {
    sessionStorage.removeItem(KEPT_AS);
    person.set('nobody');
}

// Who we are to this server. One that does not say so yet is asked like --dev.
export async function whoami() {
    try {
        person.set(await get('/v1/whoami'));
    } catch (problem) {
        if (problem.status === 404) person.set({ dev: true });
        else if (problem.status !== 401) throw problem;
    }
}

export const may = {
    operate: (who) => Boolean(who?.dev || who?.scope === 'admin'),
};

export function get(path, params, options) {
    return call('GET', path + search(params), undefined, options);
}

// Every write carries a key of its own: pressed once, done once, also when the network stutters.
export function post(path, body = {}, options) {
    return call('POST', path, body, options);
}

export const put = (path, body) => call('PUT', path, body);
export const remove = (path) => call('DELETE', path);

// The answer's text, for those who need the bytes as they came.
export async function getText(path, options = {}) {
    return (await request('GET', path, undefined, options)).text();
}

async function call(method, path, body, options) {
    const response = await request(method, path, body, options);
    const text = await response.text();
    return text ? JSON.parse(text) : null;
}

async function request(method, path, body, { signal, headers } = {}) {
    const sent = { Accept: 'application/json', ...credentials(), ...headers };
    if (body !== undefined) sent['Content-Type'] = 'application/json';
    if (method === 'POST') sent['Idempotency-Key'] = randomKey();
    const response = await reach(path, {
        method,
        signal,
        headers: sent,
        cache: 'no-store',
        credentials: 'omit',
        redirect: 'error',
        body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok) throw await problemOf(response);
    return response;
}

async function reach(path, init) {
    try {
        const response = await fetch(path, init);
        isReachable.set(true);
        return response;
    } catch (reason) {
        if (reason.name === 'AbortError') throw reason;
        isReachable.set(false);
        throw new Problem(0, { code: 'unreachable', detail: 'The server does not answer.' });
    }
}

async function problemOf(response) {
    let body = {};
    try {
        body = await response.json();
    } catch {
        /* a proxy's page, perhaps: the status has to do */
    }
    if (response.status === 401) signOut();
    return new Problem(response.status, body);
}

function credentials() {
    const token = sessionStorage.getItem(KEPT_AS);
    return token ? { Authorization: `Bearer ${token}` } : {};
}

function randomKey() {
    return [...crypto.getRandomValues(new Uint8Array(16))]
        .map((byte) => byte.toString(16).padStart(2, '0'))
        .join('');
}

export function search(params = {}) {
    const all = new URLSearchParams(
        Object.entries(params).filter(([, value]) => value != null && value !== ''),
    );
    return all.size ? `?${all}` : '';
}

// Follow the log until `signal` says stop. EventSource cannot send a header, so this reads the
// stream itself: the browser takes more only when `onEvents` came back, and a stream that ended
// goes on after the last event seen.
export async function follow(params, after, { signal, onEvents, onState }) {
    let last = after;
    let failures = 0;
    while (!signal.aborted) {
        try {
            const response = await reach(`/v1/events/stream${search(params)}`, {
                signal,
                cache: 'no-store',
                credentials: 'omit',
                headers: {
                    Accept: 'text/event-stream',
                    ...credentials(),
                    'Last-Event-ID': String(last),
                },
            });
            if (!response.ok) throw await problemOf(response);
            onState('open');
            failures = 0;
            for await (const events of frames(response.body.getReader())) {
                last = events.at(-1).event_id;
                onEvents(events);
            }
        } catch (reason) {
            if (signal.aborted) return;
            if ([401, 403, 404].includes(reason.status)) return onState('refused', reason);
        }
        onState('lost');
        await pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)], signal);
    }
}

async function* frames(reader) {
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
        rest = blocks.pop();
        const events = blocks.map(dataOf).filter(Boolean);
        if (events.length) yield events;
    }
}

function dataOf(block) {
    const data = block
        .split('\n')
        .filter((line) => line.startsWith('data:'))
        .map((line) => line.slice(5).trimStart())
        .join('\n');
    return data ? JSON.parse(data) : null;
}

function pause(ms, signal) {
    return new Promise((done) => {
        const timer = setTimeout(done, ms);
        signal.addEventListener(
            'abort',
            () => {
                clearTimeout(timer);
                done();
            },
            { once: true },
        );
    });
}
