// The console: the frame around every page.
import 'uplot/dist/uPlot.min.css';
import './app.css';
import { render } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { may, signOut, whoami } from './api.js';
import { count } from './format.js';
import { html } from './html.js';
import { PLACES, useKeys } from './keys.js';
import { useGet } from './load.js';
import { Consumers } from './pages/consumers.js';
import { Dead } from './pages/dead-letters.js';
import { DestinationPage, Destinations } from './pages/destinations.js';
import { EventPage } from './pages/event.js';
import { Find } from './pages/find.js';
import { Log } from './pages/log.js';
import { Message } from './pages/message.js';
import { Notifications } from './pages/notifications.js';
import { Outbox } from './pages/outbox.js';
import { Overview } from './pages/overview.js';
import { Run, Runs } from './pages/runs.js';
import { Session, Sessions } from './pages/sessions.js';
import { SignIn } from './pages/signin.js';
import { Tokens } from './pages/tokens.js';
import { Trace, Traces } from './pages/traces.js';
import { Projections } from './pages/projections.js';
import { go, refine, to, useRoute } from './router.js';
import { dead, isReachable, live, person } from './shared.js';
import { Shape } from './status.js';
import { switchTheme, theme } from './theme.js';
import { Dialog, Draft, Empty, Failure, Fence, Notes, Page } from './ui.js';

// Path → [page, page of one thing, title]
const PAGES = {
    '': [Overview, null, 'Overview'],
    log: [Log, null, 'Log'],
    events: [null, EventPage, 'Event'],
    traces: [Traces, Trace, 'Traces'],
    outbox: [Outbox, null, 'Outbox'],
    messages: [null, Message, 'Message'],
    dead: [Dead, null, 'Dead letters'],
    destinations: [Destinations, DestinationPage, 'Destinations'],
    consumers: [Consumers, null, 'Consumers'],
    views: [Projections, null, 'Views'],
    runs: [Runs, Run, 'Runs'],
    sessions: [Sessions, Session, 'Sessions'],
    notices: [Notifications, null, 'Notices'],
    tokens: [Tokens, null, 'Tokens'],
    find: [Find, null, 'Find'],
};
const PARENTS = { events: 'log', messages: 'outbox' };
const STATS_MS = 5000;

function App() {
    const who = person.use();
    const [failure, setFailure] = useState(null);
    const start = useCallback(() => {
        setFailure(null);
        whoami().catch(setFailure);
    }, []);
    useEffect(start, []);

    if (failure)
        return html`<main class="alone">
        <${Failure} error=${failure} retry=${start} what="the console" /></main>`;
    if (who === null)
        return html`<header class="top"><span class="brand">
        <${Mark} />outlog</span></header>`;
    if (who === 'nobody') return html`<${SignIn} />`;
    return html`<${Frame} who=${who} />`;
}

function Frame({ who }) {
    const route = useRoute();
    const [isHelp, setHelp] = useState(false);
    const main = useRef();
    const [name = '', id] = route.parts;
    // Who may only read begins with the log: the overview is about deliveries.
    const [list, one, title] = PAGES[name || (may.operate(who) ? '' : 'log')] || [];
    const View = id === undefined ? list : one;

    useKeys({ onHelp: useCallback(() => setHelp(true), []), onTheme: switchTheme });
    useDeadCount(title, may.operate(who));
    useEffect(() => main.current.scrollTo(0, 0), [name, id]);

    return html`
        <a class="skip" href="#main"
            onClick=${(event) => {
                event.preventDefault();
                main.current.focus();
            }}>
            Skip to the page</a>
        <${Top} who=${who} route=${route} onHelp=${() => setHelp(true)} />
        <div class="frame">
            <${Navigation} current=${PARENTS[name] || name} />
            <main id="main" tabindex="-1" ref=${main}>
                <${Fence} route=${route}>
                    ${
                        View
                            ? html`<${View} key=${`${name}/${id}`} id=${id}
                        rest=${route.parts.slice(2)} query=${route.query} />`
                            : html`<${Page} title="Nothing here"><${Empty} title="No such page">
                            <a href=${to('')}>Go to the overview</a>, or press <kbd>?</kbd> for the keys.<//><//>`
                    }
                <//>
            </main>
        </div>
        <${Notes} />
        ${isHelp && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

function Top({ who, route, onHelp }) {
    const isLive = live.use();
    const canReach = isReachable.use();
    const look = theme.use();
    const [search, setSearch] = useState('');
    const submit = (event) => {
        event.preventDefault();
        if (search.trim()) go(to('find', { q: search.trim() }));
        document.activeElement.blur();
    };
    const status = !canReach
        ? ['broken', 'bad', 'offline']
        : isLive
          ? ['dot', 'good', 'live']
          : ['pause', 'calm', 'paused'];

    return html`<header class="top">
        <a class="brand" href=${to('')} aria-label="outlog, overview"><${Mark} />
            <span>outlog</span></a>
        <${Org} who=${who} current=${route.query.org_id} />
        <form class="search" role="search" onSubmit=${submit}>
            <input id="search" type="search" placeholder="id, correlation, aggregate…"
                autocomplete="off"
                aria-label="Find an id, a correlation, an aggregate" value=${search}
                onInput=${(event) => setSearch(event.target.value)} />
            <kbd aria-hidden="true">/</kbd>
        </form>
        <button type="button" class="quiet status" aria-pressed=${isLive}
            onClick=${() => live.set(!isLive)}
            title=${
                isLive
                    ? 'Pages refresh by themselves; press to stop that'
                    : 'Press to refresh by itself again'
            }>
            <${Shape} name=${status[0]} tone=${status[1]} /><span>${status[2]}</span></button>
        <button type="button" class="quiet icon" onClick=${switchTheme}
            aria-label=${look === 'dark' ? 'Light colours' : 'Dark colours'}
                title="Light or dark (T)">
            <${Shape} name="half" /></button>
        <button type="button" class="quiet icon" onClick=${onHelp} aria-label="Keys"
            title="Keys (?)">?</button>
        ${
            !who.dev &&
            html`<button type="button" class="quiet"
            onClick=${signOut}>Sign out</button>`
        }
    </header>`;
}

// A token of an org sees that org; a global one all of them, or the one asked for.
function Org({ who, current = '' }) {
    if (who.org_id) return html`<span class="org">${who.org_id}</span>`;
    return html`<${Draft} class="org" aria-label="Org to look at, empty for all" value=${current}
        placeholder="all orgs" onCommit=${(org_id) => refine({ org_id }, { replace: false })} />`;
}

function Navigation({ current }) {
    const count = dead.use();
    const bar = useRef();
    useEffect(
        () =>
            bar.current
                .querySelector('[aria-current]')
                ?.scrollIntoView({ block: 'nearest', inline: 'nearest' }),
        [current],
    );
    return html`<nav class="side" aria-label="Pages" ref=${bar}>
        ${Object.entries(PLACES).map(
            ([key, [path, name]]) => html`
        <a href=${to(path)} aria-current=${path === current ? 'page' : null} title="g ${key}">
            <span>${name}</span>
            ${path === 'dead' && count > 0 && html`<span class="badge">${count}</span>`}</a>`,
        )}</nav>`;
}

// The dead-letter count shows where a person looks who does not look here: title and icon.
function useDeadCount(title, mayLook) {
    const stats = useGet(mayLook ? '/v1/stats' : null, {}, { every: STATS_MS });
    const total = dead.use();
    useEffect(() => {
        if (stats.data) dead.set(stats.data.dead || 0);
    }, [stats.data]);
    useEffect(() => {
        document.title = `${total ? `(${count(total)}) ` : ''}${title || 'Nothing here'} · outlog`;
        document.querySelector('link[rel=icon]').href = total ? badge(total) : '/favicon.svg';
    }, [total, title]);
}

function badge(total) {
    const text = total > 99 ? '99+' : String(total);
    const size = text.length > 2 ? 14 : 18;
    const svg =
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">' +
        '<rect width="32" height="32" rx="7" fill="#c62a2f"/>' +
        `<text x="16" y="22.5" font-family="system-ui,sans-serif" font-size="${size}" ` +
        `font-weight="700" fill="#fff" text-anchor="middle">${text}</text></svg>`;
    return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

function Mark() {
    return html`<svg class="mark" viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
        <rect width="32" height="32" rx="7" />
            <path d="M8 10h10M8 16h7M8 22h10M20 12l4 4-4 4" /></svg>`;
}

function Help({ onClose }) {
    const keys = [
        ['/', 'search'],
        ['j  k', 'next, previous row'],
        ['enter', 'open the row'],
        ['esc', 'back'],
        ['T', 'light or dark'],
        ['?', 'this list'],
        ...Object.entries(PLACES).map(([key, [, name]]) => [`g ${key}`, name]),
    ];
    return html`<${Dialog} title="Keys" onClose=${onClose}>
        <dl class="keys">${keys.map(
            ([key, does]) => html`<div>
            <dt>${key.split(/ +/).map((one) => html`<kbd>${one}</kbd>`)}</dt>
            <dd>${does}</dd></div>`,
        )}</dl>
        <form method="dialog" class="buttons"><button>Close</button></form>
    <//>`;
}

const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
