// Dead letters: by destination and error first, then one by one. Beside them what is still being
// retried, and can be ended.
import { useState } from 'preact/hooks';
import { may } from '../api.js';
import { count, firstLine, plural } from '../format.js';
import { html } from '../html.js';
import { useGet } from '../load.js';
import { refine, to } from '../router.js';
import { person } from '../shared.js';
import { Shape } from '../status.js';
import { Ago, Destination, Due, Empty, Id, Loaded, Page, Table, Tabs } from '../ui.js';
import { useWaiting } from './message.js';
import { DestinationFilter, Messages, ofOrg } from './outbox.js';
import { each, killAll, one, Operation, requeueAll } from './requeue.js';

export function Dead({ query }) {
    const stats = useGet('/v1/stats', {}, { every: 3000 });
    const canOperate = may.operate(person.use());
    const isRetrying = query.tab === 'retrying';
    const tabs = [
        {
            name: 'dead',
            label: 'Dead',
            count: count(stats.data?.dead),
            href: to('dead', { destination: query.destination }),
            shape: html`<${Shape} name="cross" tone="bad" />`,
        },
        {
            name: 'retrying',
            label: 'Still retrying',
            count: count(stats.data?.retrying),
            href: to('dead', { destination: query.destination, tab: 'retrying' }),
            shape: html`<${Shape} name="again" tone="warn" />`,
        },
    ];
    return html`<${Page} title="Dead letters"
        note=${
            isRetrying
                ? 'Failed at least once, will be tried again. Kill what nobody wants delivered any more.'
                : 'Given up: out of attempts, or refused for good. They wait for a person.'
        }
        tools=${html`<${DestinationFilter} value=${query.destination}
            all=${stats.data?.destinations} />`}>
        <${Tabs} label="Which" items=${tabs} current=${isRetrying ? 'retrying' : 'dead'} />
        ${
            isRetrying
                ? html`<${Retrying} query=${query} canOperate=${canOperate} />`
                : html`<${DeadLetters} query=${query} canOperate=${canOperate}
                destinations=${stats.data?.destinations || []} />`
        }<//>`;
}

function DeadLetters({ query, canOperate, destinations }) {
    const [doing, setDoing] = useState(null);
    const [said, hear] = useSaid();
    const groups = useGet('/v1/dead/groups', {}, { every: 3000 });
    const held =
        destinations.find((one) => one.name === query.destination && one.held > 0) ||
        destinations.find((one) => one.held > 0);
    const waiting = useWaiting(held?.name);
    const close = () => {
        setDoing(null);
        groups.refresh();
        doing.refresh?.();
    };
    const all = {
        of: requeueAll(clean({ destination: query.destination })),
        what: query.destination ? `everything of ${query.destination}` : 'every dead letter',
    };
    const isOfError = (message) =>
        ofOrg(query)(message) && (!query.error || sameError(message.last_error, query.error));

    return html`<${Loaded} from=${groups} what="dead letters" rows=${8}>${(data) => {
        const shown = data.groups.filter(
            (group) => !query.destination || group.destination === query.destination,
        );
        if (!shown.length) return html`<${NoneDead} destination=${query.destination} />`;
        return html`<${Groups} groups=${shown} said=${said} query=${query}
            canOperate=${canOperate} act=${setDoing} />
            <div class="bar gap"><h2>
                ${
                    query.error
                        ? html`With “${firstLine(
                              spell({ destination: query.destination, error: query.error }, said),
                              90,
                          )}”`
                        : 'One by one'
                }</h2>
                ${
                    query.error &&
                    html`<button type="button" class="quiet"
                    onClick=${() => refine({ error: '' })}>Show all</button>`
                }
                ${
                    canOperate &&
                    !query.error &&
                    html`<button type="button" onClick=${() => setDoing(all)}>
                    Requeue all${query.destination ? ` of ${query.destination}` : ''}…</button>`
                }</div>
            <${Messages} params=${{ state: 'DEAD', destination: query.destination }}
                fits=${isOfError} onShown=${hear}
                columns=${(refresh) =>
                    columns(
                        (one) => one.destination === held?.name && waiting[one.ordering_key],
                        canOperate,
                        (of, what) => setDoing({ of, what, refresh }),
                    )} />`;
    }}<//>
    ${doing && html`<${Operation} of=${doing.of} what=${doing.what} onClose=${close} />`}`;
}

const clean = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value));

// The server groups errors that differ in numbers only, but for a status, and writes # for those. What they
// really said is known of the messages that are loaded, and shown instead.
const general = (error) =>
    String(error ?? '').replace(/(HTTP \d+)|\d+/g, (_, status) => status ?? '#');
const sameError = (error, wanted) => general(error) === general(wanted);
const groupKey = (one, error) => `${one.destination} ${general(error)}`;

function spell(group, said) {
    const errors = [...(said[groupKey(group, group.error)] || [])];
    return errors.length > 0 && errors.length <= 3
        ? errors.map((error) => firstLine(error, 110)).join(' · ')
        : firstLine(group.error || 'no error kept', 110);
}

function useSaid() {
    const [said, setSaid] = useState({});
    const hear = (messages) => {
        const next = { ...said };
        for (const one of messages) {
            const errors = (next[groupKey(one, one.last_error)] ||= new Set());
            errors.add(one.last_error ?? '');
        }
        setSaid(next);
    };
    return [said, hear];
}

function Groups({ groups, said, query, canOperate, act }) {
    const plan = (group) =>
        group.error
            ? requeueAll({ destination: group.destination, error: group.error })
            : each('requeue', { state: 'DEAD', destination: group.destination }, (message) =>
                  sameError(message.last_error, group.error),
              );
    return html`<${Table} label="Dead letters by destination and error" rows=${groups}
        keyOf=${(group) => `${group.destination} ${group.error}`}
        hrefOf=${(group) =>
            to('dead', {
                ...query,
                destination: group.destination,
                error: group.error,
            })} columns=${[
            {
                label: 'how many',
                right: true,
                cell: (group) => html`<strong>${count(group.count)}</strong> ×`,
            },
            {
                label: 'error',
                grow: true,
                cell: (group) => html`<a
                href=${to('dead', {
                    ...query,
                    destination: group.destination,
                    error: group.error,
                })} title=${group.error}>${spell(group, said)}</a>`,
            },
            { label: 'from', cell: (group) => html`<${Destination} name=${group.destination} />` },
            {
                label: 'oldest',
                right: true,
                wide: true,
                cell: (group) => html`<${Ago} at=${group.oldest} />`,
            },
            {
                label: 'newest',
                right: true,
                wide: true,
                cell: (group) => html`<${Ago} at=${group.newest} />`,
            },
            ...(canOperate
                ? [
                      {
                          label: html`<span class="unseen">actions</span>`,
                          right: true,
                          cell: (group) => html`<button type="button"
                aria-label="Requeue ${plural(group.count, 'message')} of ${group.destination}"
                onClick=${() =>
                    act({
                        of: plan(group),
                        what: `“${firstLine(spell(group, said), 60)}” of ${group.destination}`,
                    })}>Requeue…</button>`,
                      },
                  ]
                : []),
        ]} />`;
}

function columns(queue, canOperate, act) {
    return [
        {
            label: 'message',
            cell: (one) => html`<${Id} of=${one.event_id} href=${to('messages', one.event_id)} />`,
        },
        { label: 'to', cell: (one) => html`<${Destination} name=${one.destination} />` },
        { label: 'type', cell: (one) => one.event_type },
        {
            label: 'key',
            wide: true,
            cell: (one) => html`<span class="id clip" title=${one.ordering_key}>
            ${one.ordering_key ?? ''}</span>
            ${
                queue(one) &&
                html` <span class="state warn">
                <${Shape} name="pause" />held: ${count(queue(one).count)} wait, <${Ago}
                at=${queue(one).oldest} /></span>`
            }`,
        },
        { label: 'attempts', right: true, wide: true, cell: (one) => count(one.attempts) },
        { label: 'died', right: true, cell: (one) => html`<${Ago} at=${one.updated_at} />` },
        {
            label: 'error',
            wide: true,
            grow: true,
            cell: (one) => html`<span class="dim" title=${one.last_error}>
            ${firstLine(one.last_error, 70)}</span>`,
        },
        ...(canOperate
            ? [
                  {
                      label: html`<span class="unseen">actions</span>`,
                      right: true,
                      cell: (message) => html`<button type="button"
            aria-label="Requeue ${message.event_id}"
                onClick=${() => act(one('requeue', message), 'this message')}>Requeue…</button>`,
                  },
              ]
            : []),
    ];
}

function NoneDead({ destination }) {
    return html`<${Empty} title=${
        destination ? `No dead letters of ${destination}` : 'No dead letters'
    } shape="check" tone="good">
        ${
            destination
                ? html`<a href=${to('dead')}>Look at all destinations</a>`
                : 'Every message was delivered or is still being tried. There is nothing to do here.'
        }<//>`;
}

function Retrying({ query, canOperate }) {
    const [doing, setDoing] = useState(null);
    const params = { retrying: true, destination: query.destination };
    const close = () => {
        doing.refresh?.();
        setDoing(null);
    };
    const [shown, setShown] = useState({ messages: [] });
    const list = (refresh) => [
        {
            label: 'message',
            cell: (one) => html`<${Id} of=${one.event_id} href=${to('messages', one.event_id)} />`,
        },
        { label: 'to', cell: (one) => html`<${Destination} name=${one.destination} />` },
        { label: 'type', cell: (one) => one.event_type },
        {
            label: 'attempts',
            right: true,
            cell: (one) => html`${count(one.attempts)}
            <span class="dim">${one.max_attempts ? ` / ${one.max_attempts}` : ''}</span>`,
        },
        { label: 'next try', right: true, cell: (one) => html`<${Due} at=${one.available_at} />` },
        {
            label: 'error',
            wide: true,
            grow: true,
            cell: (one) => html`<span class="dim" title=${one.last_error}>
            ${firstLine(one.last_error, 80)}</span>`,
        },
        ...(canOperate
            ? [
                  {
                      label: html`<span class="unseen">actions</span>`,
                      right: true,
                      cell: (message) => html`<button type="button" class="danger"
            aria-label="Kill ${message.event_id}"
                onClick=${() =>
                    setDoing({
                        of: one('kill', message),
                        what: 'this message',
                        refresh,
                    })}>Kill…</button>`,
                  },
              ]
            : []),
    ];
    return html`${
        canOperate &&
        shown.messages.length > 0 &&
        html`<div class="bar gap">
        <h2>One by one</h2><button type="button" class="danger"
            onClick=${() =>
                setDoing({
                    of: killAll(clean(params)),
                    what: query.destination
                        ? `what ${query.destination} retries`
                        : 'everything that retries',
                    refresh: shown.refresh,
                })}>
            Kill all${query.destination ? ` of ${query.destination}` : ''}…</button></div>`
    }
        <${Messages} params=${params} fits=${ofOrg(query)} columns=${list}
            onShown=${(messages, refresh) => setShown({ messages, refresh })}
            empty=${html`<${Empty} title="Nothing is being retried" shape="check"
                tone="good">Each message was taken at the first try, or is dead.<//>`} />
        ${doing && html`<${Operation} of=${doing.of} what=${doing.what} onClose=${close} />`}`;
}
