// Is it working? What is stuck, since when, why? What do I press?
import { useMemo } from 'preact/hooks';
import { get, may } from '../api.js';
import { Charts } from '../chart.js';
import { about, count, firstLine, rate, span } from '../format.js';
import { html } from '../html.js';
import { useGet, useLoad } from '../load.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { byHurt, healthOf, Shape, State } from '../status.js';
import { useTail } from '../tail.js';
import { Aggregate, Clock, Copy, Loaded, Table } from '../ui.js';
import { summarize } from '../summary.js';
import { Deliver, Pause, Test } from './operate.js';

const STATS_MS = 2000;
const LATEST = 8;
const LINES = [
    ['appended', 'appended', 'accent'],
    ['published', 'published', 'good'],
    ['failed', 'failed', 'bad'],
];

export function Overview({ query }) {
    const stats = useGet('/v1/stats', {}, { every: STATS_MS });
    const series = useLoad('series', (signal) => get('/v1/stats/series', {}, { signal }), {
        every: STATS_MS,
    });
    return html`<section class="page">
        <h1 class="unseen" tabindex="-1">Overview</h1>
        <${Loaded} from=${stats} what="the overview" rows=${16}>${(data) => html`
            <${Truth} stats=${data} />
            <${RightNow} stats=${data} refresh=${stats.refresh} />
            ${
                series.data
                    ? html`<${Charts} series=${series.data} lines=${LINES} />`
                    : html`<div class="charts room">
                    <p class="dim">${
                        series.error?.status === 404
                            ? 'Charts are not available in this version.'
                            : ''
                    }</p></div>`
            }
            <${Health} destinations=${data.destinations} />
            ${
                data.settled > 0 &&
                html`<${JustNow} key=${query.org_id} org_id=${query.org_id}
                />`
            }`}<//>
    </section>`;
}

// The newest events as they come.
function JustNow({ org_id }) {
    const tail = useTail(org_id ? { org_id } : {});
    const events = tail?.events.slice(-LATEST).reverse() || [];
    return html`<section aria-label="Just now"><div class="bar"><h2>Just now</h2>
        <a href=${to('log')}>Log</a></div>
        <ol class="latest">${events.map(
            (event) => html`<li key=${event.event_id}>
            <${Clock} at=${event.occurred_at} millis />
            <a href=${to('events', event.event_id)}>${event.event_type}</a>
                <${Aggregate} of=${event} />
            <span class="said">${JSON.stringify(event.payload).slice(0, 200)}</span></li>`,
        )}</ol></section>`;
}

// One line of truth; each number leads to where it comes from.
function Truth({ stats }) {
    const { rates = {} } = stats;
    const oldest = stats.oldest_pending_ms;
    const items = [
        [to('log'), `${rate(rates.appended)}`, 'events/s'],
        [to('outbox', { state: 'PUBLISHED' }), `${rate(rates.published)}`, 'published/s'],
        [
            to('outbox', { state: 'PUBLISHED' }),
            span(stats.publish_p50_ms),
            `p50 to publish`,
            `99 % within ${span(stats.publish_p99_ms)}`,
        ],
        [to('outbox', { state: 'PENDING' }), about(stats.pending, stats), 'pending'],
        [to('outbox', { state: 'PENDING' }), oldest == null ? '–' : span(oldest), 'oldest pending'],
        [to('dead'), about(stats.dead, stats), 'dead', null, stats.dead > 0 ? 'bad' : ''],
    ];
    return html`<ul class="truth" aria-label="Right now">
        ${items.map(
            ([href, value, name, title, tone]) => html`
        <li><a href=${href} title=${title} class=${tone}>
            <strong>${tone && html`<${Shape} name="cross" tone=${tone} />`}${value}</strong> <span>
            ${name}</span></a></li>`,
        )}</ul>`;
}

const MARKS = { good: 'check', warn: 'half', bad: 'cross', calm: 'ring' };

function RightNow({ stats, refresh }) {
    const lines = useMemo(() => summarize(stats), [stats]);
    const canOperate = may.operate(person.use());
    return html`<section class="rightnow" aria-label="Right now, in words">
        ${lines.slice(0, 4).map(
            (line) => html`
        <div class="line ${line.tone}"><p><${Shape} name=${MARKS[line.tone]} tone=${line.tone} />
            <span>${
                line.destination &&
                html`<a href=${to('destinations', line.destination)}>
                ${line.destination}</a> `
            }${line.text}</span></p>
            <${Acts} acts=${line.acts} name=${line.destination} canOperate=${canOperate}
                refresh=${refresh} /></div>`,
        )}
        ${lines.length > 4 && html`<p class="dim">${lines.length - 4} more below.</p>`}</section>`;
}

const FIRST = `outlog append --org acme --aggregate order/o-1 --type order.created --data '{"total":12}'`;

function Acts({ acts, name, canOperate, refresh }) {
    if (acts.includes('append'))
        return html`<code class="hint">${FIRST}</code>
        <${Copy} text=${FIRST} />`;
    return html`<div class="acts">
        ${
            acts.includes('dead') &&
            html`<a class="button"
            href=${to('dead', { destination: name })}>Dead letters</a>`
        }
        ${canOperate && acts.includes('test') && html`<${Test} name=${name} />`}
        ${canOperate && acts.includes('deliver') && html`<${Deliver} name=${name} />`}
        ${
            canOperate &&
            acts.includes('pause') &&
            html`<${Pause} name=${name} paused=${false} done=${refresh} />`
        }
        ${
            canOperate &&
            acts.includes('resume') &&
            html`<${Pause} name=${name} paused=${true} done=${refresh} />`
        }
    </div>`;
}

export function Health({ destinations }) {
    const columns = [
        {
            label: 'destination',
            cell: (one) => html`<a href=${to('destinations', one.name)}>
            ${one.name}</a> <span class="dim wide">${one.type}</span>`,
        },
        { label: 'state', cell: (one) => html`<${State} of=${healthOf(one)} />` },
        {
            label: 'backlog',
            right: true,
            title: 'Messages that wait',
            cell: (one) => html`<a class="plain"
            href=${to('outbox', { state: 'PENDING', destination: one.name })}>
            ${about(one.pending, one)}</a>`,
        },
        {
            label: 'oldest',
            right: true,
            cell: (one) =>
                one.pending > 0 || one.oldest_pending_ms ? span(one.oldest_pending_ms) : '–',
        },
        { label: 'ok/min', right: true, wide: true, cell: (one) => rate(one.ok_per_min) },
        {
            label: 'fail/min',
            right: true,
            wide: true,
            cell: (one) => html`<span class=${one.fail_per_min > 0 ? 'bad' : ''}>
            ${rate(one.fail_per_min)}</span>`,
        },
        {
            label: 'p99',
            right: true,
            wide: true,
            title: '99 % of attempts were answered within',
            cell: (one) => span(one.p99_ms),
        },
        {
            label: 'dead',
            right: true,
            cell: (one) =>
                one.dead > 0
                    ? html`<a class="bad" href=${to('dead', { destination: one.name })}>
            ${about(one.dead, one)}</a>`
                    : count(one.dead ?? 0),
        },
        {
            label: 'last error',
            wide: true,
            grow: true,
            cell: (one) => html`<span class="dim" title=${one.last_error}>
            ${firstLine(one.last_error, 80)}</span>`,
        },
    ];
    return html`<${Table} label="Destinations, worst first" columns=${columns}
        keyOf=${(one) => one.name}
        rows=${[...destinations].sort(byHurt)} hrefOf=${(one) => to('destinations', one.name)}
        empty=${html`<p class="dim gap">No destinations yet: name them in <code>outlog.yaml</code>, then <code>outlog apply -f outlog.yaml</code>.</p>`} />`;
}
