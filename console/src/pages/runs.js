// Runs: the list, and one run as a timeline of steps, tools, effects and attempts.
import { useMemo, useState } from 'preact/hooks';
import { get, may } from '../api.js';
import { count, span } from '../format.js';
import { html } from '../html.js';
import { useLoad, useNewest } from '../load.js';
import { Payload } from '../payload.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { Shape, shapeOf, State, toneOf } from '../status.js';
import {
    Ago,
    Button,
    Clock,
    Empty,
    Fields,
    Id,
    Loaded,
    ofOne,
    Older,
    Page,
    Table,
    Tabs,
} from '../ui.js';
import { rowsOf } from '../timeline.js';
import { Graph, loadTrace } from './traces.js';

const STATUSES = [
    [undefined, 'All'],
    ['RUNNING', 'Running'],
    ['FAILED', 'Failed'],
    ['COMPLETED', 'Completed'],
    ['CANCELLED', 'Cancelled'],
];

export function Runs({ query }) {
    const keyOf = (one) => one.run_id;
    const runs = useNewest(
        '/v1/runs',
        { status: query.status, org_id: query.org_id },
        'runs',
        keyOf,
        { every: 3000 },
    );
    const tabs = STATUSES.map(([name, label]) => ({
        name,
        label,
        href: to('runs', { status: name }),
        shape: name && html`<${Shape} name=${shapeOf(name)} tone=${toneOf(name)} />`,
    }));
    return html`<${Page} title="Runs">
        <${Tabs} label="Status" items=${tabs} current=${query.status} />
        <${Loaded} from=${runs} what="runs" rows=${10}>
            ${() => html`<${Table} label="Runs" rows=${runs.rows} keyOf=${keyOf}
            hrefOf=${(one) => to('runs', one.run_id)}
            empty=${html`<${Empty} title=${
                query.status ? 'No run has this status' : 'No runs yet'
            }>A run begins with <code>POST /v1/runs</code> or <code>outlog.start_run()</code> in SQL.<//>`}
            columns=${[
                { label: 'status', cell: (one) => html`<${State} of=${one.status} />` },
                {
                    label: 'run',
                    cell: (one) => html`<${Id} of=${one.run_id} href=${to('runs', one.run_id)} />`,
                },
                { label: 'type', cell: (one) => one.run_type },
                { label: 'steps', right: true, cell: (one) => count(one.total_steps) },
                {
                    label: 'failures',
                    right: true,
                    cell: (one) => html`<span class=${one.failed_steps > 0 ? 'bad' : ''}>
                    ${count(one.failed_steps)}</span>`,
                },
                {
                    label: 'took',
                    right: true,
                    wide: true,
                    cell: (one) =>
                        one.completed_at
                            ? span(Date.parse(one.completed_at) - Date.parse(one.started_at))
                            : 'running',
                },
                { label: 'org', wide: true, cell: (one) => one.org_id },
                {
                    label: 'started',
                    right: true,
                    cell: (one) => html`<${Ago} at=${one.started_at} />`,
                },
                {
                    label: 'trace',
                    wide: true,
                    cell: (one) => html`<${Id} of=${one.correlation_id}
                    href=${to('traces', one.correlation_id)} />`,
                },
            ]} /><${Older} of=${runs} />`}<//><//>`;
}

export function Run({ id }) {
    const canLook = may.operate(person.use());
    const path = `/v1/runs/${encodeURIComponent(id)}`;
    const run = ofOne(
        useLoad(
            `${path} ${canLook}`,
            async (signal) => {
                const data = await get(path, {}, { signal });
                const trace = await loadTrace(data.correlation_id, canLook, {}, signal).catch(
                    () => null,
                );
                return { run: data, trace };
            },
            { every: 3000 },
        ),
        'run',
    );
    return html`<${Page} title="Run" note=${html`<${Id} of=${id} />`}
        tools=${
            run.data &&
            html`<a class="button"
        href=${to('traces', run.data.run.correlation_id)}>Trace</a>`
        }>
        <${Loaded} from=${run} what="the run" rows=${14}>${({ run: one, trace }) => html`
            <p class="lead"><${State} of=${one.status} /> <strong>
                ${one.run_type}</strong> ${
                    one.completed_at
                        ? html`took ${span(Date.parse(one.completed_at) - Date.parse(one.started_at))}, ended <${Ago} at=${one.completed_at} />`
                        : html`runs since <${Ago} at=${one.started_at} />`
                }</p>
            <${Fields} of=${[
                ['org_id', one.org_id],
                ['orchestrator_version', one.orchestrator_version],
                [
                    'signal',
                    one.signal_id &&
                        html`<${Id} of=${one.signal_id}
                    href=${to('log', { aggregate: `SIGNAL/${one.signal_id}` })} />`,
                ],
                ['steps', `${count(one.total_steps)} completed, ${count(one.failed_steps)} failed`],
                ['started_at', html`<${Clock} at=${one.started_at} millis />`],
                [
                    'completed_at',
                    one.completed_at && html`<${Clock} at=${one.completed_at} millis />`,
                ],
                [
                    'error',
                    one.error_message && html`<span class="bad wrap">${one.error_message}</span>`,
                ],
            ]} />
            <${Timeline} run=${one} trace=${trace} />
            <${Verify} path=${path} />
            ${
                trace &&
                html`<h2>Cause and effect</h2>
                <${Graph} id=${one.correlation_id} trace=${trace} />`
            }`}<//><//>`;
}

// One row a step, below it its tools, its effects and their attempts, each where it stood in time.
function Timeline({ run, trace }) {
    const rows = useMemo(() => rowsOf(run, trace), [run, trace]);
    const [open, setOpen] = useState(null);
    if (!rows.length) return html`<p class="dim">No steps yet.</p>`;
    const end = Math.max(...rows.map((row) => row.to));
    const start = Math.min(Date.parse(run.started_at), ...rows.map((row) => row.from));
    const at = (time) => `${((time - start) / Math.max(1, end - start)) * 100}%`;
    return html`<section aria-label="Timeline">
        <h2>Timeline <span class="dim">${span(end - start)}</span></h2>
        <ol class="timeline">${rows.map(
            (row) => html`<li key=${row.key} class="depth${row.depth}">
            <button type="button" class="line" data-row
                aria-expanded=${row.detail ? open === row.key : null}
                onClick=${() => setOpen(open === row.key ? null : row.key)}>
                <span class="label"><${State} of=${row.state} word=${row.label} /></span>
                <span class="lane"><span class="span ${toneOf(row.state)}"
                    style=${{
                        left: at(row.from),
                        width: `max(3px, calc(${at(row.to)} - ${at(row.from)}))`,
                    }}></span></span>
                <span class="took">${
                    row.isMoment
                        ? ''
                        : row.isOpenEnd
                          ? 'running'
                          : span(row.took ?? row.to - row.from)
                }</span></button>
            ${
                open === row.key &&
                row.detail &&
                html`<div class="inner">
                ${
                    row.message &&
                    html`<p><a href=${to('messages', row.message)}>
                    Its message, with every attempt</a></p>`
                }
                <${Payload} label=${row.detailLabel} text=${JSON.stringify(row.detail)} /></div>`
            }
        </li>`,
        )}</ol></section>`;
}

// Does the stored state follow from the events?
function Verify({ path }) {
    const [result, setResult] = useState(null);
    return html`<section aria-label="Verify"><div class="bar"><h2>Replay</h2>
            <${Button} onPress=${async () =>
                setResult(await get(`${path}/verify`))}>Verify against its events<//></div>
        ${
            result === null
                ? html`<p
            class="dim">Rebuilds this run from its events alone and compares.</p>`
                : result.matches
                  ? html`<p role="status">
                <${State} of="COMPLETED" word="The stored state is what the events say." /></p>`
                  : html`<p class="bad" role="status">The stored state differs from its events:</p>
                <${Table} label="Differences" rows=${result.differences}
                keyOf=${(one) => `${one.table} ${one.id} ${one.field}`} columns=${[
                    { label: 'table', cell: (one) => one.table },
                    { label: 'row', cell: (one) => html`<${Id} of=${one.id} />` },
                    { label: 'field', cell: (one) => one.field },
                    {
                        label: 'stored',
                        cell: (one) => html`<code>
                        ${JSON.stringify(one.stored)}</code>`,
                    },
                    {
                        label: 'replayed',
                        grow: true,
                        cell: (one) => html`<code>${JSON.stringify(one.replayed)}</code>`,
                    },
                ]}
                        />`
        }</section>`;
}
