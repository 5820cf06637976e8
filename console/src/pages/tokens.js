// Tokens: made, shown once, revoked.
import { useState } from 'preact/hooks';
import { post, remove } from '../api.js';
import { html } from '../html.js';
import { useGet } from '../load.js';
import { State } from '../status.js';
import { Ago, Button, Copy, Dialog, Empty, Id, Loaded, Page, say, Table } from '../ui.js';

const SCOPES = [
    ['append', 'append events and messages'],
    ['read', 'read the log'],
    ['admin', 'everything, and operate'],
];

export function Tokens() {
    const tokens = useGet('/v1/tokens', {}, { every: 5000 });
    const [doing, setDoing] = useState(null);
    const close = () => {
        setDoing(null);
        tokens.refresh();
    };
    return html`<${Page} title="Tokens"
        tools=${html`<button type="button" class="primary"
        onClick=${() => setDoing({ create: true })}>New token</button>`}>
        <${Loaded} from=${tokens} what="tokens" rows=${6}>
            ${(data) => html`<${Table} label="Tokens" keyOf=${(one) => one.id}
            rows=${[...data.tokens].sort(
                (a, b) =>
                    Boolean(a.revoked_at) - Boolean(b.revoked_at) ||
                    b.created_at.localeCompare(a.created_at),
            )}
            empty=${html`<${Empty} title="No tokens yet">Without one only <code>--dev</code> on this machine gets in.<//>`}
            columns=${[
                {
                    label: 'state',
                    cell: (one) => html`<${State} of=${one.revoked_at ? 'revoked' : 'active'} />`,
                },
                { label: 'token', cell: (one) => html`<${Id} of=${one.id} />` },
                { label: 'scope', cell: (one) => one.scope },
                { label: 'org', cell: (one) => one.org_id ?? html`<span class="dim">all</span>` },
                {
                    label: 'made',
                    right: true,
                    wide: true,
                    cell: (one) => html`<${Ago} at=${one.created_at} />`,
                },
                {
                    label: 'last used',
                    right: true,
                    cell: (one) => html`<${Ago} at=${one.last_used_at} none="never" />`,
                },
                {
                    label: html`<span class="unseen">actions</span>`,
                    right: true,
                    grow: true,
                    cell: (one) =>
                        one.revoked_at
                            ? html`<span class="dim">revoked <${Ago} at=${one.revoked_at} /></span>`
                            : html`<button type="button" class="danger" aria-label="Revoke ${one.id}"
                        onClick=${() => setDoing({ revoke: one })}>Revoke…</button>`,
                },
            ]} />`}<//>
        ${doing?.create && html`<${Create} onClose=${close} />`}
        ${doing?.revoke && html`<${Revoke} token=${doing.revoke} onClose=${close} />`}<//>`;
}

function Create({ onClose }) {
    const [scope, setScope] = useState('read');
    const [org, setOrg] = useState('');
    const [made, setMade] = useState(null);
    if (made) {
        return html`<${Dialog} title="Your new token" onClose=${onClose}>
            <p>It is shown this once; only its hash is kept.</p>
            <p class="secret"><code tabindex="0">${made.token}</code></p>
            <form method="dialog" class="buttons">
                <${Copy} text=${made.token} what="Copy the token" />
                <button class="primary">Done</button></form><//>`;
    }
    const create = async () =>
        setMade(await post('/v1/tokens', { scope, ...(org.trim() ? { org_id: org.trim() } : {}) }));
    return html`<${Dialog} title="New token" onClose=${onClose}>
        <fieldset><legend>What may it do?</legend>
            ${SCOPES.map(
                ([name, means]) => html`<label class="choice">
            <input type="radio" name="scope" value=${name}
            checked=${scope === name} onChange=${() => setScope(name)} />
                <strong>${name}</strong> <span class="dim">${means}</span></label>`,
            )}</fieldset>
        <label class="field">Org <input type="text" value=${org} placeholder="all orgs"
            autocomplete="off" onInput=${(event) => setOrg(event.target.value)} /></label>
        <form method="dialog" class="buttons">
            <${Button} tone="primary" onPress=${create}>Make it<//>
            <button>Cancel</button></form><//>`;
}

function Revoke({ token, onClose }) {
    async function press() {
        await remove(`/v1/tokens/${encodeURIComponent(token.id)}`);
        say('The token is revoked; it stops working within 5 seconds.');
        onClose();
    }
    return html`<${Dialog} title="Revoke token" onClose=${onClose}>
        <p>Whoever uses <${Id} of=${token.id}
            /> (${token.scope}${
                token.org_id ? `, ${token.org_id}` : ''
            }) is refused within 5 seconds. This cannot be undone; a new one can be made.</p>
        <form method="dialog" class="buttons"><${Button} tone="danger" onPress=${press}>Revoke<//>
            <button>Cancel</button></form><//>`;
}
