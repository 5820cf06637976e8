// Traces: the story of one execution, drawn.
import { useMemo, useState } from 'preact/hooks';
import { get, may } from '../api.js';
import { count, plural, span } from '../format.js';
import { asText, layout, offset, pathOf, ROW } from '../graph.js';
import { html } from '../html.js';
import { useLoad } from '../load.js';
import { go, to } from '../router.js';
import { person } from '../shared.js';
import { Shape } from '../status.js';
import { before } from '../tail.js';
import { Ago, Copy, Empty, Id, Loaded, ofOne, Page, Table } from '../ui.js';

const RECENT = 1000;
const MOST_MESSAGES = 60; // whose attempts are asked for
const MOST_DRAWN = 1500; // a longer story is read in the log

export function Traces({ query }) {
    const recent = useLoad(
        `traces ${query.org_id}`,
        async (signal) => {
            const params = { org_id: query.org_id };
            return group((await before('end', params, RECENT, signal)).events);
        },
        { every: 5000 },
    );
    const open = (event) => {
        event.preventDefault();
        const id = event.currentTarget.correlation.value.trim();
        if (id) go(to('traces', id));
    };
    return html`<${Page} title="Traces"
        note="The newest stories of the log: everything that shares a correlation."
        tools=${html`<form class="filters" onSubmit=${open}>
            <label>correlation<input type="text" name="correlation"
            placeholder="correlation_id" spellcheck="false" /></label>
                <button>Open</button></form>`}>
        <${Loaded} from=${recent} what="traces" rows=${12}>${(traces) => html`
            <${Table} label="Newest traces" rows=${traces} keyOf=${(one) => one.id}
                hrefOf=${(one) => to('traces', one.id)}
                empty=${html`<${Empty} title="No traces yet">A trace begins with the first event of a correlation.<//>`}
                columns=${[
                    {
                        label: 'began with',
                        cell: (one) => html`<a href=${to('traces', one.id)}>
                        ${one.first.event_type}</a>`,
                    },
                    {
                        label: 'about',
                        cell: (one) => html`<span class="id">
                        ${one.first.aggregate_type}/${one.first.aggregate_id}</span>`,
                    },
                    { label: 'events', right: true, cell: (one) => count(one.events.length) },
                    { label: 'took', right: true, wide: true, cell: (one) => span(one.took) },
                    { label: 'last', wide: true, cell: (one) => one.last.event_type },
                    {
                        label: 'when',
                        right: true,
                        cell: (one) => html`<${Ago} at=${one.last.occurred_at} />`,
                    },
                    {
                        label: 'correlation',
                        wide: true,
                        cell: (one) => html`<${Id} of=${one.id} />`,
                    },
                ]} />`}<//><//>`;
}

function group(events) {
    const traces = new Map();
    for (const event of events) {
        const id = event.correlation_id;
        if (!traces.has(id)) traces.set(id, { id, events: [] });
        traces.get(id).events.push(event);
    }
    return [...traces.values()]
        .map((trace) => ({
            ...trace,
            first: trace.events[0],
            last: trace.events.at(-1),
            took: tookOf(trace.events.map((event) => Date.parse(event.occurred_at))),
        }))
        .sort((a, b) => b.last.event_id - a.last.event_id)
        .slice(0, 200);
}

const tookOf = (times) => Math.max(...times) - Math.min(...times);

export function Trace({ id, query }) {
    const canLook = may.operate(person.use());
    const trace = ofOne(
        useLoad(
            `trace ${id} ${canLook} ${query.org_id}`,
            (signal) => loadTrace(id, canLook, query, signal),
            { every: 4000 },
        ),
        'trace',
    );
    return html`<${Page} title="Trace" note=${html`<${Id} of=${id} />`}
        tools=${html`<a class="button" href=${to('log', { correlation_id: id })}>In the log</a>`}>
        <${Loaded} from=${trace} what="the trace" rows=${12}>
            ${(data) =>
                data.events.length || data.messages.length
                    ? html`<${Graph} id=${id} trace=${data} selected=${query.node} />`
                    : html`<${Empty} title="Nothing has this correlation">Check the id: it is the <code>correlation_id</code> of an event.<//>`}<//><//>`;
}

export async function loadTrace(id, canLook, query, signal) {
    const trace = await get(
        `/v1/traces/${encodeURIComponent(id)}`,
        { org_id: query.org_id },
        { signal },
    );
    const messages = trace.messages || [];
    const attempts = {};
    if (canLook) {
        await Promise.all(
            messages.slice(0, MOST_MESSAGES).map(async (one) => {
                attempts[one.event_id] = (
                    await get(`/v1/messages/${one.event_id}`, {}, { signal })
                ).attempts_log;
            }),
        );
    }
    return {
        events: (trace.events || []).slice(0, MOST_DRAWN),
        messages: messages.slice(0, MOST_DRAWN),
        attempts,
        isCut: trace.events?.length > MOST_DRAWN || messages.length > MOST_DRAWN,
    };
}

export function Graph({ id, trace }) {
    const graph = useMemo(() => layout(trace.events, trace.messages, trace.attempts), [trace]);
    const [lit, setLit] = useState(null);
    const path = lit ? pathOf(graph.nodes.find((node) => node.key === lit)) : null;
    const took = tookOf(graph.nodes.map((node) => node.at));
    const off = () => setLit(null);
    return html`<div class="tracehead">
        <span>${plural(trace.events.length, 'event')}, ${plural(
            trace.messages.length,
            'message',
        )}, ${span(took)} from first to last${trace.isCut ? '; the rest is in the log' : ''}</span>
            <${Copy} text=${() => asText(`trace ${id}`, graph)} what="Copy as text" /></div>
        <div class="scroll"><div class=${`graph${path ? ' lit' : ''}`}
            style=${{ height: `${graph.height}px`, minWidth: `${graph.width + 400}px` }}>
        <svg width=${graph.width} height=${graph.height} aria-hidden="true">
            ${graph.ticks.map(
                (tick, i) =>
                    html`<line class="tick" x1=${tick.x} x2=${tick.x} y1="20" y2=${graph.height} />
                ${
                    shows(graph.ticks, i) &&
                    html`<text class="ticktext" x=${tick.x} y="13">
                    ${offset(tick.offset)}</text>`
                }`,
            )}
            ${graph.nodes
                .filter((node) => node.parent)
                .map(
                    (node) =>
                        html`<path class=${`edge${path?.has(node.key) ? ' on' : ''}`}
                d=${`M${node.parent.x} ${node.parent.y}V${node.y - 6}q0 6 6 6H${node.x - 7}`} />`,
                )}
            ${graph.nodes.map(
                (node) =>
                    html`<g class=${`node ${node.tone}${path?.has(node.key) ? ' on' : ''}`}
                transform="translate(${node.x - 6} ${node.y - 6})">
                <${Mark} shape=${node.shape} /></g>`,
            )}
        </svg>
        <ol class="labels" aria-label="Trace, each below its cause">
            ${graph.nodes.map(
                (node) => html`
            <li key=${node.key} class=${path?.has(node.key) ? 'on' : ''} data-row tabindex="-1"
                data-href=${to(...node.href)}
                style=${{ transform: `translate(${node.x + 12}px, ${node.y - ROW / 2}px)` }}
                onMouseEnter=${() => setLit(node.key)} onMouseLeave=${off}
                    onFocusIn=${() => setLit(node.key)} onFocusOut=${off}>
                <a href=${to(...node.href)} class=${node.tone === 'accent' ? '' : node.tone}>
                    ${node.label}</a> <span class="dim">${node.about}</span></li>`,
            )}</ol>
        </div></div>`;
}

// Offsets that would run into each other are left out.
function shows(ticks, i) {
    let from = -Infinity;
    for (let k = 0; k <= i; k++) {
        if (ticks[k].x - from < 52) continue;
        from = ticks[k].x;
        if (k === i) return true;
    }
    return false;
}

function Mark({ shape }) {
    if (shape !== 'message')
        return html`<rect class="under" x="-1" y="-1" width="14" height="14"
        /><${Shape} name=${shape} />`;
    return html`<rect class="under" x="-1" y="-1" width="14" height="14" />
        <path class="hollow" d="M.75 2.5h10.5v7H.75zM.75 2.5L6 6.5l5.25-4" />`;
}
