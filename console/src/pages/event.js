// One event: its fields, its payload, where it came from and what came of it.
import { getText } from '../api.js';
import { html } from '../html.js';
import { field } from '../json.js';
import { useGet, useLoad } from '../load.js';
import { Payload } from '../payload.js';
import { to } from '../router.js';
import { messageState, State } from '../status.js';
import {
    Aggregate,
    Ago,
    Clock,
    Copy,
    Destination,
    Fields,
    Id,
    Loaded,
    ofOne,
    Page,
    Table,
} from '../ui.js';

export function EventPage({ id }) {
    return html`<${Page} title="Event ${id}"><${EventDetail} id=${id} /><//>`;
}

export function EventDetail({ id }) {
    const path = `/v1/events/${encodeURIComponent(id)}`;
    const text = ofOne(
        useLoad(path, (signal) => getText(path, { signal })),
        'event',
    );
    return html`<${Loaded} from=${text} what="the event" rows=${12}>${(raw) => {
        const event = JSON.parse(raw);
        return html`<div class="detail">
            <p class="lead"><strong>
                ${event.event_type}</strong> of <${Aggregate} of=${event} /> <${Ago}
                at=${event.occurred_at} /></p>
            <${Fields} of=${fieldsOf(event)} />
            <div class="acts"><a class="button" href=${to('traces', event.correlation_id)}>Trace</a>
                ${
                    event.causation_id &&
                    html`<a class="button"
                    href=${to('events', event.causation_id)}>Cause</a>`
                }
                <${Copy} text=${raw} what="Copy JSON" /></div>
            <${Payload} text=${field(raw, 'payload')} />
            ${
                event.metadata &&
                Object.keys(event.metadata).length > 0 &&
                html`<${Payload} label="Metadata" text=${field(raw, 'metadata')} />`
            }
            <${Consequences} event=${event} />
        </div>`;
    }}<//>`;
}

// Fields that have a place of their own; all others follow as they are.
const PLACED = new Set([
    'event_id',
    'id',
    'occurred_at',
    'org_id',
    'aggregate_type',
    'aggregate_id',
    'aggregate_seq',
    'event_type',
    'event_version',
    'actor_type',
    'actor_id',
    'correlation_id',
    'causation_id',
    'request_id',
    'metadata',
    'payload',
]);

function fieldsOf(event) {
    return [
        ['event_id', html`<span class="id">${event.event_id}</span>`],
        ['id', html`<span class="id">${event.id}</span>`],
        ['occurred_at', html`<${Clock} at=${event.occurred_at} millis />`],
        ['org_id', event.org_id ?? 'none: infrastructure'],
        ['aggregate', html`<${Aggregate} of=${event} />, number ${event.aggregate_seq}`],
        ['event_version', event.event_version],
        ['actor', `${event.actor_type}:${event.actor_id}`],
        [
            'correlation_id',
            html`<${Id} of=${event.correlation_id}
            href=${to('traces', event.correlation_id)} />`,
        ],
        [
            'causation_id',
            event.causation_id &&
                html`<${Id} of=${event.causation_id} href=${to('events', event.causation_id)} />`,
        ],
        ['request_id', event.request_id && html`<span class="id">${event.request_id}</span>`],
        ...Object.entries(event).filter(([name]) => !PLACED.has(name)),
    ];
}

function Consequences({ event }) {
    const down = useGet(`/v1/events/${event.id}/causality`, { direction: 'down' });
    const trace = useGet(`/v1/traces/${encodeURIComponent(event.correlation_id)}`);
    const effects = (down.data?.events || []).filter((one) => one.depth === 1);
    const messages = (trace.data?.messages || []).filter((one) => one.causation_id === event.id);
    if (!effects.length && !messages.length) return null;
    return html`<section aria-label="What came of it"><h2>What came of it</h2>
        ${
            effects.length > 0 &&
            html`<${Table} label="Events it caused" rows=${effects}
            keyOf=${(one) => one.event_id}
            hrefOf=${(one) => to('events', one.event_id)} columns=${[
                {
                    label: 'event',
                    cell: (one) => html`<a href=${to('events', one.event_id)}>
                    ${one.event_type}</a>`,
                },
                { label: 'about', cell: (one) => html`<${Aggregate} of=${one} />` },
                {
                    label: 'when',
                    right: true,
                    cell: (one) => html`<${Ago} at=${one.occurred_at} />`,
                },
            ]} />`
        }
        ${
            messages.length > 0 &&
            html`<${Table} label="Messages it caused" rows=${messages}
            keyOf=${(one) => one.event_id}
            hrefOf=${(one) => to('messages', one.event_id)} columns=${[
                {
                    label: 'message',
                    cell: (one) =>
                        html`<${Id} of=${one.event_id} href=${to('messages', one.event_id)} />`,
                },
                { label: 'to', cell: (one) => html`<${Destination} name=${one.destination} />` },
                { label: 'state', cell: (one) => html`<${State} of=${messageState(one)} />` },
            ]} />`
        }
    </section>`;
}
