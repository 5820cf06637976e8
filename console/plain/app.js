// The page of a build without npm: the state of things, and the dead letters with a button each.
const KEPT_AS = 'outlog.token';
const EVERY_MS = 3000;
const $ = (id) => document.getElementById(id);

async function call(method, path) {
    const token = sessionStorage.getItem(KEPT_AS);
    const response = await fetch(path, {
        method,
        cache: 'no-store',
        headers: {
            ...(token && { Authorization: `Bearer ${token}` }),
            ...(method === 'POST' && { 'Content-Type': 'application/json' }),
        },
        body: method === 'POST' ? '{}' : undefined,
    });
    $('door').hidden = response.status !== 401;
    const body = await response.json();
    if (!response.ok) throw new Error(body.detail || `the server answered ${response.status}`);
    return body;
}

function fill(table, heads, rows) {
    const line = (cells, tag) => {
        const row = document.createElement('tr');
        for (const cell of cells) {
            const place = document.createElement(tag);
            place.append(cell ?? '–');
            row.append(place);
        }
        return row;
    };
    table.replaceChildren(
        ...(rows.length
            ? [line(heads, 'th'), ...rows.map((row) => line(row, 'td'))]
            : [line(['none'], 'td')]),
    );
}

function requeue(message) {
    const button = document.createElement('button');
    button.textContent = 'Requeue';
    button.setAttribute('aria-label', `Requeue ${message.event_id}`);
    button.onclick = () =>
        call('POST', `/v1/messages/${message.event_id}/requeue`).then(refresh, tell);
    return button;
}

const tell = (problem) => {
    $('truth').textContent = problem.message;
};

async function refresh() {
    try {
        const stats = await call('GET', '/v1/stats');
        const rate = (name) =>
            stats.rates[name] == null ? '–' : Math.round(stats.rates[name] * 10) / 10;
        $('truth').textContent =
            `${stats.settled} events, ${rate('appended')}/s appended, ` +
            `${rate('published')}/s published; ${stats.pending} pending, ${stats.dead} dead.`;
        fill(
            $('destinations'),
            ['name', 'type', 'breaker', 'pending', 'dead', 'last error'],
            stats.destinations.map((one) => [
                one.name,
                one.type,
                one.paused ? 'paused' : one.breaker,
                one.pending,
                one.dead,
                one.last_error,
            ]),
        );
        const { messages } = await call('GET', '/v1/messages?state=DEAD&limit=50');
        fill(
            $('dead'),
            ['message', 'to', 'type', 'attempts', 'error', ''],
            messages.map((one) => [
                one.event_id,
                one.destination,
                one.event_type,
                one.attempts,
                one.last_error,
                requeue(one),
            ]),
        );
    } catch (problem) {
        tell(problem);
    }
}

$('door').onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT_AS, event.target.token.value.trim());
    refresh();
};
refresh();
setInterval(() => {
    if (!document.hidden) refresh();
}, EVERY_MS);
