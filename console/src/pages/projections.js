// Views: projections, how far each is, and what stopped one.
import { useState } from 'preact/hooks';
import { may, post } from '../api.js';
import { count, plural, span } from '../format.js';
import { html } from '../html.js';
import { useGet } from '../load.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { State } from '../status.js';
import { Ago, Button, Dialog, Empty, Loaded, Page, say, Table } from '../ui.js';

const ORDER = ['stopped', 'rebuilding', 'running'];

export function Projections() {
    const views = useGet('/v1/projections', {}, { every: 2000 });
    const canOperate = may.operate(person.use());
    const [rebuild, setRebuild] = useState(null);
    const close = () => {
        setRebuild(null);
        views.refresh();
    };
    const at = (one, verb) => `/v1/projections/${encodeURIComponent(one.name)}/${verb}`;
    const retry = (one) => async () => {
        await post(at(one, 'retry'));
        say(`${one.name} tries the event again.`);
        views.refresh();
    };
    const skip = (one) => async () => {
        await post(at(one, 'skip'), { event_id: poison(one) });
        say(`${one.name} goes on without event ${poison(one)}.`);
        views.refresh();
    };
    const cancel = (one) => async () => {
        await post(at(one, 'cancel'));
        say(`The rebuild of ${one.name} is cancelled.`);
        views.refresh();
    };
    const actions = (one) => html`
        ${
            one.status === 'stopped' &&
            html`<${Button} onPress=${retry(one)} label="Retry ${one.name}">Retry<//>
            ${
                poison(one) &&
                html`<${Button} tone="danger" onPress=${skip(one)}
                label="Skip the event that stopped ${one.name}">Skip ${poison(one)}<//>`
            }`
        }
        ${
            one.rebuild &&
            html`<${Button} onPress=${cancel(one)}
            label="Cancel the rebuild of ${one.name}">Cancel rebuild<//>`
        }
        <button type="button" aria-label="Rebuild ${one.name}"
            onClick=${() => setRebuild(one)}>Rebuild…</button>`;
    return html`<${Page} title="Views" note="Tables kept up to date from the log.">
        <${Loaded} from=${views} what="views" rows=${6}>
            ${(data) => html`<${Table} label="Views" keyOf=${(one) => one.name}
            rows=${[...data.projections].sort(
                (a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status) || b.lag - a.lag,
            )}
            empty=${html`<${Empty} title="No views yet">Name them under <code>projections:</code> in <code>outlog.yaml</code>, then <code>outlog apply -f outlog.yaml</code>.<//>`}
            columns=${[
                {
                    label: 'view',
                    cell: (one) => html`<strong>
                    ${one.name}</strong> <span class="dim">version ${one.version}</span>`,
                },
                { label: 'state', cell: (one) => html`<${State} of=${one.status} />` },
                {
                    label: 'behind',
                    right: true,
                    cell: (one) => (one.lag > 0 ? plural(one.lag, 'event') : 'up to date'),
                },
                {
                    label: 'at event',
                    right: true,
                    cell: (one) =>
                        one.last_applied_event_id
                            ? html`<a class="id" href=${to('events', one.last_applied_event_id)}>
                    ${count(one.last_applied_event_id)}</a>`
                            : 'the start',
                },
                {
                    label: 'moved',
                    right: true,
                    wide: true,
                    cell: (one) => html`<${Ago} at=${one.updated_at} />`,
                },
                { label: 'what', grow: true, cell: (one) => html`<${What} view=${one} />` },
                ...(canOperate
                    ? [
                          {
                              label: html`<span class="unseen">actions</span>`,
                              right: true,
                              cell: actions,
                          },
                      ]
                    : []),
            ]} />`}<//>
        ${
            rebuild &&
            html`<${Rebuild} view=${rebuild} path=${at(rebuild, 'rebuild')}
            onClose=${close} />`
        }<//>`;
}

// The event that stopped a view; none where it could not even be made.
const poison = (one) => one.error?.event_id;

// Why it stopped, or how far its rebuild is.
function What({ view: { error, rebuild } }) {
    const why = error || rebuild?.error;
    if (why) {
        return html`<span class="bad wrap" title=${why.statement}>
            ${
                why.event_id &&
                html`<a
            href=${to('events', why.event_id)}>event ${why.event_id}</a> (${why.event_type}): `
            }${why.message}</span>`;
    }
    if (!rebuild) return html`<span></span>`;
    const where = rebuild.kind === 'aside' ? ' beside it' : '';
    const left = rebuild.eta_s == null ? '' : `, ${span(rebuild.eta_s * 1000)} left`;
    return html`<span class="dim wrap">${
        `version ${rebuild.version}${where}: ` +
        `${count(rebuild.event_id)} of ${plural(rebuild.upto, 'event')}, ` +
        `${count(rebuild.events_per_s)}/s${left}`
    }</span>`;
}

function Rebuild({ view, path, onClose }) {
    const [isAside, setAside] = useState(true);
    async function press() {
        await post(path, { aside: isAside });
        say(`${view.name} is being rebuilt${isAside ? ' beside the one in use' : ''}.`);
        onClose();
    }
    return html`<${Dialog} title="Rebuild ${view.name}" onClose=${onClose}>
        <p>Every event is applied again from the first on. The log itself is only read.</p>
        <label class="choice"><input type="checkbox" checked=${isAside}
            onChange=${(event) => setAside(event.target.checked)} />
            beside the one in use, then swap: readers never see a half-built view</label>
        <form method="dialog" class="buttons">
            <${Button} tone="primary" onPress=${press}>Rebuild<//>
            <button>Cancel</button></form><//>`;
}
