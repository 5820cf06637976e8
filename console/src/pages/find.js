// What somebody typed into the search field, looked up as everything it could be.
import { useEffect } from 'preact/hooks';
import { get, may } from '../api.js';
import { html } from '../html.js';
import { useLoad } from '../load.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { Empty, Loaded, Page, Table } from '../ui.js';

export function Find({ query }) {
    const q = query.q || '';
    const canLook = may.operate(person.use());
    const found = useLoad(`find ${q} ${query.org_id} ${canLook}`, (signal) =>
        find(q, query.org_id, canLook, signal),
    );
    // One answer is the answer.
    useEffect(() => {
        if (found.data?.length === 1) location.replace(found.data[0].href);
    }, [found.data]);
    return html`<${Page} title="Find" note=${html`<span class="id">${q}</span>`}>
        <${Loaded} from=${found} what="what fits" rows=${4}>
            ${(all) => html`<${Table} label="What fits" rows=${all} keyOf=${(one) => one.href}
            hrefOf=${(one) => one.href}
            empty=${html`<${Empty} title="Nothing is called “${q}”"
                shape="question">Looked at events, messages, traces, runs, aggregates (type/id), event types, destinations and sessions.<//>`}
            columns=${[
                { label: 'what', cell: (one) => one.kind },
                {
                    label: 'which',
                    grow: true,
                    cell: (one) => html`<a href=${one.href}>${one.name}</a>`,
                },
            ]} />`}<//><//>`;
}

async function find(q, org_id, canLook, signal) {
    const id = encodeURIComponent(q);
    const ask = (path, params) =>
        get(path, params, { signal }).catch((problem) => {
            if (problem.name === 'AbortError') throw problem;
            return null;
        });
    const isId = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(q);
    const slash = q.indexOf('/');
    const looks = [
        (isId || /^\d+$/.test(q)) &&
            ask(`/v1/events/${id}`).then(
                (one) =>
                    one && {
                        kind: 'event',
                        name: `${one.event_type} ${one.event_id}`,
                        href: to('events', one.event_id),
                    },
            ),
        isId &&
            canLook &&
            ask(`/v1/messages/${id}`).then(
                (one) =>
                    one && {
                        kind: 'message',
                        name: `${one.event_type} to ${one.destination}`,
                        href: to('messages', q),
                    },
            ),
        isId &&
            ask(`/v1/runs/${id}`).then(
                (one) => one && { kind: 'run', name: one.run_type, href: to('runs', q) },
            ),
        slash < 0 &&
            ask(`/v1/traces/${id}`, { org_id }).then(
                (one) =>
                    (one?.events?.length || one?.messages?.length) && {
                        kind: 'trace',
                        name: q,
                        href: to('traces', q),
                    },
            ),
        slash > 0 &&
            ask('/v1/events', {
                aggregate_type: q.slice(0, slash),
                aggregate_id: q.slice(slash + 1),
                limit: 1,
                org_id,
            }).then(
                (one) =>
                    one?.events.length && {
                        kind: 'aggregate',
                        name: q,
                        href: to('log', { aggregate: q }),
                    },
            ),
        slash < 0 &&
            !isId &&
            ask('/v1/events', { event_type: q, limit: 1, org_id }).then(
                (one) =>
                    one?.events.length && {
                        kind: 'event type',
                        name: q,
                        href: to('log', { event_type: q }),
                    },
            ),
        canLook &&
            !isId &&
            ask('/v1/destinations').then(
                (all) =>
                    all?.destinations.some((one) => one.name === q) && {
                        kind: 'destination',
                        name: q,
                        href: to('destinations', q),
                    },
            ),
        q.split(':').length === 3 &&
            ask(`/v1/sessions/${id}/events`, { org_id }).then(
                (one) =>
                    one?.events.length && { kind: 'session', name: q, href: to('sessions', q) },
            ),
    ];
    return (await Promise.all(looks)).filter(Boolean);
}
