// Destinations: how each is, and what can be done about it.
import { useState } from 'preact/hooks';
import { may } from '../api.js';
import { about, count, firstLine, plural, rate, span } from '../format.js';
import { html } from '../html.js';
import { useGet } from '../load.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { healthOf, State } from '../status.js';
import { Ago, Clock, Empty, Fields, Loaded, Page, Table } from '../ui.js';
import { summarize } from '../summary.js';
import { Messages } from './outbox.js';
import { Health } from './overview.js';
import { Deliver, Pause, Test } from './operate.js';

export function Destinations() {
    const stats = useHealth();
    return html`<${Page} title="Destinations" note="Worst first.">
        <${Loaded} from=${stats} what="destinations" rows=${8}>
            ${(all) => html`<${Health} destinations=${all} />`}<//>
        <${Sinks} /><//>`;
}

// The log streamed to a destination: no message is made, so what it is behind is seen nowhere else.
function Sinks() {
    const sinks = useGet('/v1/sinks', {}, { every: 2000 });
    if (!sinks.data?.sinks.length) return null;
    return html`<section aria-label="Sinks"><h2>Sinks</h2>
        <${Table} label="Sinks" rows=${sinks.data.sinks} keyOf=${(one) => one.name} columns=${[
            { label: 'sink', cell: (one) => html`<strong>${one.name}</strong>` },
            {
                label: 'to',
                cell: (one) => html`<a href=${to('destinations', one.to)}>${one.to}</a>`,
            },
            {
                label: 'behind',
                right: true,
                cell: (one) => (one.lag > 0 ? plural(one.lag, 'event') : 'up to date'),
            },
            {
                label: 'at event',
                right: true,
                wide: true,
                cell: (one) =>
                    one.cursor_event_id > 0
                        ? html`<a href=${to('events', one.cursor_event_id)}>
                    ${count(one.cursor_event_id)}</a>`
                        : '–',
            },
            {
                label: 'moved',
                right: true,
                wide: true,
                cell: (one) => html`<${Ago} at=${one.updated_at} />`,
            },
            { label: 'by', wide: true, cell: (one) => one.claimed_by },
            {
                label: 'last error',
                grow: true,
                cell: (one) =>
                    html`<span class="bad" title=${one.last_error}>
                    ${firstLine(one.last_error, 80)}</span>`,
            },
        ]} /></section>`;
}

// The stats know more of each destination; an older server has the plain list.
function useHealth() {
    const stats = useGet('/v1/stats', {}, { every: 2000 });
    const plain = useGet(
        stats.error?.status === 404 ? '/v1/destinations' : null,
        {},
        { every: 2000 },
    );
    const from = stats.error?.status === 404 ? plain : stats;
    return { ...from, data: from.data?.destinations };
}

export function DestinationPage({ id: name }) {
    const stats = useHealth();
    const canOperate = may.operate(person.use());
    const [result, setResult] = useState(null);
    const one = stats.data?.find((each) => each.name === name);
    return html`<${Page} title=${name} note=${one?.type} tools=${
        one &&
        canOperate &&
        html`
        <${Test} name=${name} onResult=${setResult} />
            <${Deliver} name=${name} done=${stats.refresh} />
        <${Pause} name=${name} paused=${one.paused} done=${stats.refresh} />`
    }>
        <${Loaded} from=${stats} what="the destination" rows=${12}>${() =>
            one
                ? html`
            <p class="lead"><${State} of=${healthOf(one)} /> <span>${words(one)}</span></p>
            ${
                result &&
                html`<p class="testresult" role="status">
                <${State} of="attempt.${result.outcome}" word="Test: ${result.outcome}" />
                ${[
                    result.status,
                    result.duration_ms != null && span(result.duration_ms),
                    result.error,
                ]
                    .filter(Boolean)
                    .join(' · ')}</p>`
            }
            <${Fields} of=${[
                ['breaker', one.breaker],
                ['since', one.since && html`<${Clock} at=${one.since} />`],
                ['next try', one.retry_at ? html`<${Clock} at=${one.retry_at} />` : undefined],
                [
                    'pending',
                    html`<a href=${to('outbox', { state: 'PENDING', destination: name })}>
                    ${about(one.pending, one)}</a>`,
                ],
                [
                    'retrying',
                    one.retrying != null &&
                        html`<a href=${to('dead', { tab: 'retrying', destination: name })}>
                    ${count(one.retrying)}</a>`,
                ],
                [
                    'dead',
                    one.dead != null &&
                        html`<a href=${to('dead', { destination: name })}>${about(one.dead, one)}</a>`,
                ],
                [
                    'held keys',
                    one.held > 0
                        ? html`<a href=${to('dead', { destination: name })}>${count(one.held)}</a>`
                        : undefined,
                ],
                ['oldest pending', one.pending > 0 ? span(one.oldest_pending_ms) : undefined],
                [
                    'a minute',
                    one.ok_per_min != null &&
                        `${rate(one.ok_per_min)} ok, ${rate(one.fail_per_min)} failed`,
                ],
                ['p99', one.p99_ms != null && span(one.p99_ms)],
                ['last success', one.last_ok_at && html`<${Clock} at=${one.last_ok_at} />`],
                [
                    'last error',
                    one.last_error && html`<span class="bad wrap">${one.last_error}</span>`,
                ],
            ]} />
            <h2>Newest messages</h2>
            <${Messages} params=${{ destination: name }}
                empty=${html`<${Empty} title="Nothing was sent to ${name} yet">
                Try it: <code>outlog send --to ${name} --type test --data '{}'</code><//>`} />`
                : html`<${Empty} title="No such destination"
                shape="question">It may have been removed. <a
                href=${to('destinations')}>All destinations</a><//>`}<//><//>`;
}

function words(one) {
    const line = summarize({
        destinations: [one],
        dead: 0,
        pending: one.pending,
        claimed: 0,
        settled: 1,
    })[0];
    return line.destination
        ? `${line.destination} ${line.text}`
        : one.pending > 0
          ? `takes messages; ${about(one.pending, one)} on the way.`
          : 'takes messages; nothing waits.';
}
