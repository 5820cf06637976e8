// The parts pages are made of.
import { Component } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { exact, brief, relative, clock } from './format.js';
import { html } from './html.js';
import { go, to } from './router.js';
import { now, shared } from './shared.js';
import { Shape } from './status.js';

// --- words and numbers ---

export function Ago({ at, none = '–' }) {
    const time = now.use();
    if (!at) return none;
    return html`<time datetime=${at} title=${exact(at)}>${relative(at, time)}</time>`;
}

// When the next try is; "due" once that time has come.
export function Due({ at }) {
    const time = now.use();
    return !at || Date.parse(at) <= time ? 'due' : html`<${Ago} at=${at} />`;
}

export function Clock({ at, millis }) {
    if (!at) return '–';
    return html`<time datetime=${at} title=${exact(at)}>
        ${clock(at, { seconds: true, millis })}</time>`;
}

// An id is a link wherever it leads somewhere.
export function Id({ of, href }) {
    if (of == null || of === '') return '–';
    return href
        ? html`<a class="id" href=${href} title=${of}>${brief(of)}</a>`
        : html`<span class="id" title=${of}>${brief(of)}</span>`;
}

export const Destination = ({ name }) => html`<a href=${to('destinations', name)}>${name}</a>`;

export function Aggregate({ of }) {
    if (!of.aggregate_type) return '–';
    const name = `${of.aggregate_type}/${of.aggregate_id}`;
    return html`<a class="id" title="Every event of ${name}"
        href=${to('log', { aggregate: name, org_id: of.org_id })}>
            ${of.aggregate_type}/${brief(of.aggregate_id)}</a>`;
}

export function Copy({ text, what = 'Copy' }) {
    const [isDone, setDone] = useState(false);
    async function copy() {
        await copyText(typeof text === 'function' ? text() : text);
        setDone(true);
        setTimeout(() => setDone(false), 1500);
    }
    return html`<button type="button" class="quiet" onClick=${copy}>
        ${isDone ? 'Copied' : what}</button>`;
}

// navigator.clipboard is missing where the page came over plain HTTP from another machine.
async function copyText(text) {
    if (navigator.clipboard) {
        try {
            return await navigator.clipboard.writeText(text);
        } catch {
            /* not allowed: the old way */
        }
    }
    const area = document.createElement('textarea');
    area.value = text;
    (document.querySelector('dialog[open]') || document.body).append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
}

// --- a page and its four other faces: loading, failed, forbidden, empty ---

export function Page({ title, note, tools, children, wide }) {
    return html`<section class=${`page${wide ? ' wide' : ''}`}>
        <div class="heading">
            <h1 tabindex="-1">${title}</h1>
            ${note && html`<p class="note">${note}</p>`}
            ${tools && html`<div class="tools">${tools}</div>`}
        </div>
        ${children}
    </section>`;
}

// Shows data when there is some, else why not. Words come only when it takes long enough to wonder.
export function Loaded({ from, what, children, rows = 6 }) {
    if (from.data !== undefined) {
        return html`${from.error && html`<${Stale} error=${from.error} retry=${from.refresh} />`}
            ${children(from.data)}`;
    }
    if (from.error)
        return html`<${Failure} error=${from.error} what=${what} retry=${from.refresh}
        />`;
    return html`<${Loading} what=${what} rows=${rows} />`;
}

export function Loading({ what, rows }) {
    return html`<div class="loading" role="status" style=${{ minHeight: `${rows * 32}px` }}>
        <span>Loading ${what}…</span></div>`;
}

function Stale({ error, retry }) {
    return html`<p class="stale" role="status"><${Shape} name="half" tone="warn" />
        Not refreshed: ${error.message} What you see is the last answer.
        <button type="button" class="quiet" onClick=${retry}>Try again</button></p>`;
}

export function Failure({ error, what, retry }) {
    const face = faceOf(error, what);
    return html`<div class="blank" role="alert">
        <${Shape} name=${face.shape} tone=${face.tone} />
        <h2>${face.title}</h2><p>${face.advice}</p>
        ${error.request_id && html`<p class="dim">Request <code>${error.request_id}</code></p>`}
        ${face.canRetry && retry && html`<button type="button" onClick=${retry}>Try again</button>`}
    </div>`;
}

function faceOf(error, what = 'this') {
    switch (error.status) {
        case 0:
            return {
                shape: 'broken',
                tone: 'bad',
                title: 'The server does not answer',
                canRetry: true,
                advice: html`Is <code>outlog serve</code> running, and can this machine reach it? Nothing is lost: the log is in its store.`,
            };
        case 401:
            return {
                shape: 'pause',
                tone: 'calm',
                title: 'Signed out',
                advice: 'Sign in again to go on.',
            };
        case 403:
            return {
                shape: 'pause',
                tone: 'warn',
                title: 'Your token does not reach this',
                advice: html`To see ${what} one needs more than this token's scope. Sign in with an <code>admin</code> token; <code>outlog token create --scope admin</code> makes one.`,
            };
        case 404:
            return error.code === 'not_found' && error.isOne
                ? {
                      shape: 'question',
                      tone: 'calm',
                      title: `No such ${error.isOne}`,
                      advice: 'It may be of another org, or the id may be incomplete.',
                  }
                : {
                      shape: 'question',
                      tone: 'calm',
                      title: 'Not available in this version',
                      advice: `This server does not offer ${what} yet. A newer outlog does.`,
                  };
        default:
            return {
                shape: 'cross',
                tone: 'bad',
                title: `Could not load ${what}`,
                canRetry: true,
                advice: `${error.message}${error.code ? ` [${error.code}]` : ''}`,
            };
    }
}

// Says of a 404 that one thing is missing, not the whole call.
export function ofOne(result, noun) {
    if (result.error?.status === 404) result.error.isOne = noun;
    return result;
}

export function Empty({ title, children, shape = 'ring', tone = 'calm' }) {
    return html`<div class="blank"><${Shape} name=${shape} tone=${tone} /><h2>${title}</h2>
        <p>${children}</p></div>`;
}

// A page that fails must not take the others with it.
export class Fence extends Component {
    componentDidCatch(error) {
        this.setState({ error });
        console.error(error);
    }

    componentDidUpdate(previous) {
        if (previous.route !== this.props.route && this.state.error) this.setState({ error: null });
    }

    render({ children }, { error }) {
        if (!error) return children;
        return html`<div class="blank" role="alert"><${Shape} name="cross" tone="bad" />
            <h2>This page broke</h2><p>${String(error.message)}</p>
            <button type="button" onClick=${() => location.reload()}>Reload</button></div>`;
    }
}

// --- tables: columns are {label, cell(row), right?, wide?, grow?, title?} ---
//
// On a phone a row becomes a few lines and wide columns leave. The roles are spelled out because a
// table that is not displayed as one loses its own.

export function Table({ label, columns, rows, keyOf, hrefOf, empty }) {
    if (!rows.length && empty) return empty;
    return html`<div class="scroll" tabindex="-1"><table aria-label=${label} role="table">
        <thead role="rowgroup"><tr role="row">
            ${columns.map(
                (column) => html`<th scope="col" role="columnheader"
            class=${classes(column)} title=${column.title}>${column.label}</th>`,
            )}</tr></thead>
        <tbody role="rowgroup">${rows.map(
            (row) =>
                html`<${Row} key=${keyOf(row)} row=${row} columns=${columns}
            href=${hrefOf?.(row)} />`,
        )}</tbody>
    </table></div>`;
}

function Row({ row, columns, href }) {
    const open = (event) => {
        if (href && !event.target.closest('a, button, input, summary') && !String(getSelection())) {
            go(href);
        }
    };
    return html`<tr role="row" data-row tabindex="-1" class=${href ? 'leads' : ''}
        data-href=${href} onClick=${open}>
        ${columns.map(
            (column) => html`<td role="cell" class=${classes(column)}
            data-label=${typeof column.label === 'string' ? column.label : null}>
                ${column.cell(row)}</td>`,
        )}</tr>`;
}

const classes = (column) =>
    [column.right && 'right', column.wide && 'wide', column.grow && 'grow']
        .filter(Boolean)
        .join(' ');

export function Fields({ of }) {
    return html`<dl class="fields">${of
        .filter(([, value]) => value != null && value !== false)
        .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function Tabs({ label, items, current }) {
    return html`<nav class="tabs" aria-label=${label}>${items.map(
        (item) => html`
        <a href=${item.href} aria-current=${item.name === current ? 'true' : null}>
            ${item.shape}${item.label}${
                item.count != null && html` <span class="count">${item.count}</span>`
            }</a>`,
    )}</nav>`;
}

// --- acting ---

// A field whose text is the person's until they are done with it, however often the page is drawn.
export function Draft({ value = '', onCommit, ...rest }) {
    const [text, setText] = useState(value);
    useEffect(() => setText(value), [value]);
    return html`<input type="text" spellcheck="false" autocomplete="off" ...${rest} value=${text}
        onInput=${(event) => setText(event.target.value)}
        onChange=${(event) => onCommit(event.target.value.trim())} />`;
}

export function Button({ onPress, children, tone, quiet, label, disabled }) {
    const [isBusy, setBusy] = useState(false);
    const isThere = useRef(true);
    useEffect(
        () => () => {
            isThere.current = false;
        },
        [],
    );
    async function press() {
        setBusy(true);
        try {
            await onPress();
        } catch (problem) {
            say(problem.message, 'bad');
        }
        if (isThere.current) setBusy(false);
    }
    return html`<button type="button" class="${tone || ''} ${quiet ? 'quiet' : ''}"
        aria-label=${label}
        disabled=${isBusy || disabled} aria-busy=${isBusy} onClick=${press}>${children}</button>`;
}

// The end of a list that begins with the newest.
export function Older({ of }) {
    return of.next && html`<p class="gap"><${Button} onPress=${of.older}>Older<//></p>`;
}

export function Dialog({ title, onClose, children }) {
    const box = useRef();
    useEffect(() => {
        const back = document.activeElement;
        box.current.showModal();
        return () => back?.focus?.();
    }, []);
    return html`<dialog ref=${box} aria-label=${title} onClose=${onClose}
        onClick=${(event) => event.target === box.current && box.current.close()}>
        <div class="box"><h2>${title}</h2>${children}</div></dialog>`;
}

// A line at the foot of the page that goes by itself; a screen reader speaks it.
const notes = shared([]);
let noteNumber = 0;

export function say(text, tone = 'good') {
    const note = { id: ++noteNumber, text, tone };
    notes.set([...notes.get().slice(-2), note]);
    setTimeout(
        () => notes.set(notes.get().filter((one) => one !== note)),
        tone === 'bad' ? 12000 : 6000,
    );
}

export function Notes() {
    return html`<div class="notes" role="status" aria-live="polite">
        ${notes.use().map(
            (note) => html`
        <p key=${note.id} class=${note.tone}>
            <${Shape} name=${note.tone === 'bad' ? 'cross' : 'check'} tone=${note.tone} />
                ${note.text}</p>`,
        )}</div>`;
}
