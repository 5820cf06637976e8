// The outbox: messages by state and destination.
import { useEffect } from 'preact/hooks';
import { count, firstLine } from '../format.js';
import { html } from '../html.js';
import { useGet, useNewest } from '../load.js';
import { refine, to } from '../router.js';
import { messageState, Shape, shapeOf, State, toneOf } from '../status.js';
import { Ago, Destination, Due, Empty, Id, Loaded, Older, Page, Table, Tabs } from '../ui.js';

const STATES = [
    [undefined, 'All'],
    ['PENDING', 'Pending', 'pending'],
    ['RETRYING', 'Retrying', 'retrying'],
    ['CLAIMED', 'Claimed', 'claimed'],
    ['PUBLISHED', 'Published'],
    ['DEAD', 'Dead', 'dead'],
];

export function Outbox({ query }) {
    const stats = useGet('/v1/stats', {}, { every: 3000 });
    const { state, destination } = query;
    const counts = destination
        ? stats.data?.destinations?.find((one) => one.name === destination)
        : stats.data;
    const tabs = STATES.map(([name, label, key]) => ({
        name,
        label,
        count: key && counts?.[key] > 0 ? count(counts[key]) : null,
        shape: name && html`<${Shape} name=${shapeOf(name)} tone=${toneOf(name)} />`,
        href: to('outbox', { ...query, state: name }),
    }));
    return html`<${Page} title="Outbox"
        tools=${html`<${DestinationFilter} value=${destination} all=${stats.data?.destinations}
        />`}>
        <${Tabs} label="State" items=${tabs} current=${state} />
        <${Messages} params=${paramsOf(query)} fits=${ofOrg(query)}
            empty=${html`<${Empty} title=${
                destination || state ? 'No message fits' : 'The outbox is empty'
            } shape="check">
            ${
                destination || state
                    ? 'Choose another state or destination.'
                    : html`Send one: <code>outlog send --to billing --type invoice.send --data '{"n":1}'</code>`
            }<//>`} /><//>`;
}

export function paramsOf({ state, destination }) {
    return state === 'RETRYING' ? { retrying: true, destination } : { state, destination };
}

// The outbox is the operator's, and listed for all orgs; a person may still look at one.
export const ofOrg =
    ({ org_id }) =>
    (message) =>
        !org_id || message.org_id === org_id;

export function DestinationFilter({ value, all = [] }) {
    const names = [...new Set([...all.map((one) => one.name), ...(value ? [value] : [])])].sort();
    return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>destination
        <select value=${value || ''}
            onChange=${(event) =>
                refine({ destination: event.target.value, error: '' }, { replace: false })}>
            <option value="">all</option>
                ${names.map(
                    (name) => html`<option value=${name} selected=${name === value}>
                ${name}</option>`,
                )}</select></label></form>`;
}

// Newest first, a page at a time; the first page stays fresh.
export function Messages({
    params,
    columns = COLUMNS,
    empty,
    fits = () => true,
    onShown,
    every = 3000,
}) {
    const messages = useNewest('/v1/messages', params, 'messages', (one) => one.event_id, {
        every,
    });
    const shown = messages.rows.filter(fits);
    useEffect(() => onShown?.(shown, messages.refresh), [messages.data]);
    const list = typeof columns === 'function' ? columns(messages.refresh) : columns;
    return html`<${Loaded} from=${messages} what="messages" rows=${12}>${() => html`
        <${Table} label="Messages" rows=${shown} columns=${list} keyOf=${(one) => one.event_id}
            hrefOf=${(one) => to('messages', one.event_id)} empty=${!messages.next && empty} />
        <${Older} of=${messages} />`}<//>`;
}

export const COLUMNS = [
    { label: 'state', cell: (one) => html`<${State} of=${messageState(one)} />` },
    {
        label: 'message',
        cell: (one) => html`<${Id} of=${one.event_id} href=${to('messages', one.event_id)} />`,
    },
    { label: 'to', cell: (one) => html`<${Destination} name=${one.destination} />` },
    { label: 'type', cell: (one) => one.event_type },
    {
        label: 'attempts',
        right: true,
        wide: true,
        cell: (one) =>
            html`${count(one.attempts)}${
                one.max_attempts ? html`<span class="dim"> / ${count(one.max_attempts)}</span>` : ''
            }`,
    },
    {
        label: 'key',
        wide: true,
        cell: (one) => html`<span class="id clip" title=${one.ordering_key}>
        ${one.ordering_key ?? ''}</span>`,
    },
    { label: 'created', right: true, cell: (one) => html`<${Ago} at=${one.created_at} />` },
    {
        label: 'next try',
        right: true,
        wide: true,
        cell: (one) => (one.state === 'PENDING' ? html`<${Due} at=${one.available_at} />` : ''),
    },
    {
        label: 'error',
        wide: true,
        grow: true,
        cell: (one) => html`<span class="dim" title=${one.last_error}>
        ${firstLine(one.last_error, 80)}</span>`,
    },
];
