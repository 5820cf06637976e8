// Sessions: what was said, and what is owed.
import { may, post, search } from '../api.js';
import { count, firstLine } from '../format.js';
import { html } from '../html.js';
import { useNewest, useWhole } from '../load.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { State } from '../status.js';
import { Ago, Button, Empty, Id, Loaded, Older, Page, say, Table } from '../ui.js';

export function Sessions({ query }) {
    const keyOf = (one) => `${one.org_id} ${one.session_key}`;
    const sessions = useNewest('/v1/sessions', { org_id: query.org_id }, 'sessions', keyOf, {
        every: 3000,
    });
    return html`<${Page} title="Sessions" note="Conversations: userId:agentId:threadId.">
        <${Loaded} from=${sessions} what="sessions" rows=${10}>
            ${() => html`<${Table} label="Sessions" rows=${sessions.rows} keyOf=${keyOf}
            hrefOf=${(one) =>
                to('sessions', one.session_key, { org_id: query.org_id || one.org_id })}
            empty=${html`<${Empty} title="No sessions yet">A session begins when a client opens <code>/v1/sessions/USER:AGENT:THREAD/socket</code> and says something.<//>`}
            columns=${[
                {
                    label: 'session',
                    cell: (one) =>
                        html`<a class="id" href=${to('sessions', one.session_key, {
                            org_id: query.org_id || one.org_id,
                        })}>${one.session_key}</a>`,
                },
                { label: 'said', right: true, cell: (one) => count(one.last_seq) },
                {
                    label: 'unanswered',
                    right: true,
                    cell: (one) =>
                        html`<span class=${one.tries > 0 ? 'bad' : ''}>${count(
                            one.last_seq - one.done_seq,
                        )}</span>`,
                },
                { label: 'org', wide: true, cell: (one) => one.org_id },
                {
                    label: 'last',
                    right: true,
                    cell: (one) => html`<${Ago} at=${one.updated_at} />`,
                },
                {
                    label: 'error',
                    wide: true,
                    grow: true,
                    cell: (one) =>
                        html`<span class="bad" title=${one.last_error}>${firstLine(one.last_error, 80)}</span>`,
                },
            ]} /><${Older} of=${sessions} />`}<//><//>`;
}

export function Session({ id, query }) {
    const path = `/v1/sessions/${encodeURIComponent(id)}`;
    const params = { org_id: query.org_id };
    const events = useWhole(`${path}/events`, params, 'events', {
        every: 2000,
        isSettled: () => true,
        placeOf: (event) => event.event_id,
    });
    const effects = useWhole(`${path}/effects`, params, 'effects', {
        every: 2000,
        isSettled: (effect) => effect.attempts > 0 && /COMPLETED|FAILED/.test(effect.status),
        placeOf: (effect) => `${effect.created_at} ${effect.effect_id}`,
    });
    const canOperate = may.operate(person.use());
    async function deliver() {
        const { hurried } = await post(`${path}/deliver${search(params)}`);
        say(hurried ? `${count(hurried)} owed, being sent again now.` : 'Nothing is owed.');
    }
    return html`<${Page} title="Session" note=${html`<span class="id">${id}</span>`} tools=${html`
        <a class="button" href=${to('log', { aggregate: `session/${id}` })}>In the log</a>
            ${canOperate && html`<${Button} onPress=${deliver}>Deliver now<//>`}`}>
        <div class="columns even"><section aria-label="Said"><h2>Said</h2>
            <${Loaded} from=${events} what="what was said" rows=${8}>
                ${(data) =>
                    data.rows.length
                        ? html`<ol class="talk">${data.rows.map(
                              (event) => html`
                <li key=${event.event_id}><span class="number">${event.aggregate_seq}</span><div>
                    <p>${textOf(event)}</p>
                    <p class="dim"><a href=${to('events', event.event_id)}>
                        ${event.event_type}</a> <${Ago} at=${event.occurred_at}
                        /></p></div></li>`,
                          )}</ol>${data.isCut && CUT}`
                        : html`<p class="dim">Nothing yet.</p>`}<//></section>
        <section aria-label="Owed"><h2>Owed and done</h2>
            <${Loaded} from=${effects} what="effects" rows=${8}>
                ${(data) =>
                    data.rows.length
                        ? html`<ol class="talk">${data.rows.map(
                              (effect) => html`
                <li key=${effect.effect_id}><${State} of=${effect.status} /><div>
                    <p>${effect.effect_spec?.content ?? effect.effect_type}</p>
                    <p class="dim">${effect.effect_type}${answered(effect)}, <${Ago} at=${effect.created_at} />
                        ${effect.attempts > 0 ? `, ${count(effect.attempts)} sent` : ''}${
                            effect.message_id && effect.message_id !== effect.effect_id
                                ? html`, <${Id} of=${effect.message_id}
                            href=${to('messages', effect.message_id)} />`
                                : ''
                        }</p></div></li>`,
                          )}</ol>${data.isCut && CUT}`
                        : html`<p class="dim">Nothing is owed.</p>`}<//></section></div><//>`;
}

const CUT = html`<p class="dim">And more: the log has all of it.</p>`;

// Of an answer: `<session_key>#<seq>` is what it answers.
const answered = (effect) =>
    effect.checkpoint_id ? ` to ${effect.checkpoint_id.split('#').at(-1)}` : '';

const textOf = (event) => event.payload?.text ?? JSON.stringify(event.payload);
