// Consumers: who reads the log, how far they are, and how far behind.
import { useState } from 'preact/hooks';
import { may, post, remove } from '../api.js';
import { count, plural } from '../format.js';
import { html } from '../html.js';
import { useGet } from '../load.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { Ago, Button, Dialog, Empty, Loaded, Page, say, Table } from '../ui.js';

export function Consumers() {
    const consumers = useGet('/v1/consumers', {}, { every: 2000 });
    const canOperate = may.operate(person.use());
    const [doing, setDoing] = useState(null);
    const close = () => {
        setDoing(null);
        consumers.refresh();
    };
    return html`<${Page} title="Consumers"
        note="Each reads the log at its own pace and loses nothing.">
        <${Loaded} from=${consumers} what="consumers" rows=${6}>
            ${(data) => html`<${Table} label="Consumers" keyOf=${(one) => one.name}
            rows=${[...data.consumers].sort(
                (a, b) => b.lag - a.lag || a.name.localeCompare(b.name),
            )}
            empty=${html`<${Empty} title="No consumers yet">A consumer begins with <code>outlog consumers create NAME</code> or <code>PUT /v1/consumers/NAME</code>.<//>`}
            columns=${[
                { label: 'consumer', cell: (one) => html`<strong>${one.name}</strong>` },
                {
                    label: 'behind',
                    right: true,
                    cell: (one) => (one.lag > 0 ? `${plural(one.lag, 'event')}` : 'up to date'),
                },
                {
                    label: 'at event',
                    right: true,
                    cell: (one) =>
                        one.cursor_event_id
                            ? html`<a class="id" href=${to('events', one.cursor_event_id)}>
                    ${count(one.cursor_event_id)}</a>`
                            : 'the start',
                },
                {
                    label: 'moved',
                    right: true,
                    cell: (one) => html`<${Ago} at=${one.updated_at} none="never" />`,
                },
                {
                    label: 'filters',
                    wide: true,
                    grow: true,
                    cell: (one) => html`<span class="dim">${filtersOf(one.filters)}</span>`,
                },
                ...(canOperate
                    ? [
                          {
                              label: html`<span class="unseen">actions</span>`,
                              right: true,
                              cell: (one) => html`
                    <button type="button" aria-label="Reset ${one.name}"
                        onClick=${() => setDoing({ reset: one })}>Reset…</button>
                    <button type="button" class="danger" aria-label="Delete ${one.name}"
                        onClick=${() => setDoing({ remove: one })}>Delete…</button>`,
                          },
                      ]
                    : []),
            ]} />`}<//>
        ${doing?.reset && html`<${Reset} consumer=${doing.reset} onClose=${close} />`}
        ${doing?.remove && html`<${Remove} consumer=${doing.remove} onClose=${close} />`}<//>`;
}

function filtersOf(filters) {
    const all = Object.entries(filters || {}).filter(([, value]) => value != null);
    return all.length
        ? all.map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(', ')
        : 'everything';
}

function Reset({ consumer, onClose }) {
    const [place, setPlace] = useState('end');
    const [exact, setExact] = useState('');
    async function reset() {
        const target =
            place === 'end'
                ? 'end'
                : place === 'start'
                  ? 0
                  : /^\d+$/.test(exact.trim())
                    ? Number(exact)
                    : exact.trim();
        const result = await post(`/v1/consumers/${encodeURIComponent(consumer.name)}/reset`, {
            to: target,
        });
        say(`${consumer.name} now stands at ${result?.cursor_event_id ?? target}.`);
        onClose();
    }
    const choice = (value, label) => html`<label class="choice">
        <input type="radio" name="place" value=${value} checked=${place === value}
        onChange=${() => setPlace(value)} />${label}</label>`;
    return html`<${Dialog} title="Reset ${consumer.name}" onClose=${onClose}>
        <p>It stands at ${count(consumer.cursor_event_id)}, ${plural(
            consumer.lag,
            'event',
        )} behind. Back means that it sees events again; forward means that it misses some.</p>
        ${choice('end', 'to the end: skip what it has not read')}${choice(
            'start',
            'to the start: read the whole log again',
        )}
        ${choice(
            'exact',
            html`to an event or a time <input type="text" aria-label="Event or time"
            placeholder="event_id or 2026-01-31T12:00:00Z" value=${exact}
            onInput=${(event) => {
                setExact(event.target.value);
                setPlace('exact');
            }} />`,
        )}
        <form method="dialog" class="buttons">
            <${Button} tone="primary" onPress=${reset}
            disabled=${place === 'exact' && !exact.trim()}>Reset<//>
            <button>Cancel</button></form><//>`;
}

function Remove({ consumer, onClose }) {
    async function press() {
        await remove(`/v1/consumers/${encodeURIComponent(consumer.name)}`);
        say(`${consumer.name} is deleted.`);
        onClose();
    }
    return html`<${Dialog} title="Delete ${consumer.name}" onClose=${onClose}>
        <p>Its position, event ${count(consumer.cursor_event_id)}, is forgotten. Made again, it begins at the start of the log. No event is touched.</p>
        <form method="dialog" class="buttons">
            <${Button} tone="danger" onPress=${press}>Delete ${consumer.name}<//>
            <button>Cancel</button></form><//>`;
}
