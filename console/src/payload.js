// A payload, twice: as a tree that folds, and as the bytes it is.
import { useMemo, useState } from 'preact/hooks';
import { plural } from './format.js';
import { html } from './html.js';
import { parse } from './json.js';
import { Copy } from './ui.js';

const OPEN_DEPTH = 2;
const OPEN_ITEMS = 20;
const SHOWN_ITEMS = 200;

// `text` is what was stored; `base64` says that it is bytes that are not text.
export function Payload({ text, base64, label = 'Payload' }) {
    const [isRaw, setRaw] = useState(Boolean(base64));
    const node = useMemo(() => tree(text, base64), [text, base64]);
    const bytes = useMemo(
        () => (base64 ? fromBase64(base64) : new TextEncoder().encode(text)),
        [text, base64],
    );
    return html`<section class="payload" aria-label=${label}>
        <div class="bar"><h2>${label}</h2><span class="dim">${plural(bytes.length, 'byte')}</span>
            ${
                node &&
                html`<div class="switch" role="group"
                aria-label="Show ${label.toLowerCase()} as">
                <button type="button" aria-pressed=${!isRaw}
                    onClick=${() => setRaw(false)}>Tree</button>
                <button type="button" aria-pressed=${isRaw}
                    onClick=${() => setRaw(true)}>Raw</button></div>`
            }
            <${Copy} text=${text ?? base64} /></div>
        ${
            node && !isRaw
                ? html`<div class="tree">
            <${Node} text=${text} node=${node} depth=${0} /></div>`
                : html`<pre class="raw" tabindex="0">${base64 ? hexDump(bytes) : text}</pre>`
        }
    </section>`;
}

function tree(text, base64) {
    try {
        return base64 ? null : parse(text);
    } catch {
        return null;
    }
}

function Node({ text, node, name, depth }) {
    const label =
        name === undefined
            ? null
            : html`<span class=${typeof name === 'number' ? 'index' : 'name'}>${name}</span>`;
    if (!node.items) {
        return html`<div class="leaf">${label}
            <span class=${node.kind}>${text.slice(node.from, node.to)}</span></div>`;
    }
    if (!node.items.length) {
        return html`<div class="leaf">${label}
            <span class="dim">${node.kind === 'array' ? '[]' : '{}'}</span></div>`;
    }
    const isOpen = depth < OPEN_DEPTH && node.items.length <= OPEN_ITEMS;
    return html`<${Branch} label=${label} isOpen=${isOpen}
        about=${
            node.kind === 'array'
                ? plural(node.items.length, 'item')
                : plural(node.items.length, 'field')
        }>
        ${() =>
            node.items.slice(0, SHOWN_ITEMS).map(
                (item, i) => html`
            <${Node} text=${text} node=${item.node} name=${item.name ?? i} depth=${depth + 1} />`,
            )}
        ${() =>
            node.items.length > SHOWN_ITEMS &&
            html`<div class="leaf dim">
                ${plural(node.items.length - SHOWN_ITEMS, 'more item')}: see Raw</div>`}
    <//>`;
}

// What is folded is not built: a payload of 256 KiB opens as fast as a small one.
function Branch({ label, about, isOpen, children }) {
    const [open, setOpen] = useState(isOpen);
    return html`<details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
        <summary>${label}<span class="dim">${about}</span></summary>
        ${open && html`<div class="inner">${children.map((child) => child())}</div>`}</details>`;
}

function fromBase64(base64) {
    return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
}

function hexDump(bytes) {
    const lines = [];
    for (let at = 0; at < Math.min(bytes.length, 4096); at += 16) {
        const row = [...bytes.slice(at, at + 16)];
        lines.push(
            `${at.toString(16).padStart(6, '0')}  ` +
                `${row
                    .map((byte) => byte.toString(16).padStart(2, '0'))
                    .join(' ')
                    .padEnd(49)} ` +
                row
                    .map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.'))
                    .join(''),
        );
    }
    if (bytes.length > 4096) lines.push(`… ${bytes.length - 4096} more bytes`);
    return lines.join('\n');
}
