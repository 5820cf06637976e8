// The log: a list of which only what is seen is drawn, with a live tail that holds still while
// somebody reads.
import { useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';
import { brief, clock, exact, plural } from '../format.js';
import { html } from '../html.js';
import { go, here, refine, to } from '../router.js';
import { live, person } from '../shared.js';
import { Shape } from '../status.js';
import { useTail } from '../tail.js';
import { Draft, Empty, Failure, Loading, Page } from '../ui.js';
import { EventDetail } from './event.js';

const ROW = 32;
const OVERSCAN = 8;
const FILTERS = [
    ['event_type', 'type', 'order.created'],
    ['aggregate', 'aggregate', 'order/o-1'],
    ['correlation_id', 'correlation', 'id'],
    ['since', 'since', '1h'],
    ['until', 'until', 'time'],
];

export function Log({ query }) {
    const filters = filtersOf(query);
    const key = JSON.stringify(filters);
    return html`<${Page} title="Log" wide tools=${html`<${Filters} query=${query} />`}>
        <div class=${`split${query.event ? ' opened' : ''}`}>
            <${List} key=${key} filters=${filters} selected=${query.event} />
            ${
                query.event &&
                html`<aside class="panel" aria-label="Event ${query.event}">
                <div class="bar"><a href=${to('events', query.event)}>Event ${query.event}</a>
                    <button type="button" class="quiet" onClick=${() => refine({ event: '' })}
                        aria-label="Close event">Close</button></div>
                <${EventDetail} key=${query.event} id=${query.event} /></aside>`
            }
        </div><//>`;
}

// The filters for the server, from the address: every parameter but those of the page itself.
function filtersOf(query) {
    const { aggregate = '', event: _event, since, until, ...rest } = query;
    const slash = aggregate.indexOf('/');
    const filters = Object.fromEntries(Object.entries(rest).filter(([, value]) => value));
    if (aggregate) {
        filters.aggregate_type = slash < 0 ? aggregate : aggregate.slice(0, slash);
        if (slash >= 0) filters.aggregate_id = aggregate.slice(slash + 1);
    }
    if (since) filters.since = timeOf(since);
    if (until) filters.until = timeOf(until);
    return filters;
}

// A span back from now (15m, 1h, 7d) is kept as written in the address and counted when it is asked.
function timeOf(text) {
    const back = /^(\d+)\s*(s|m|h|d)$/.exec(text);
    if (!back) return text;
    const ms = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 }[back[2]];
    return new Date(Math.floor(Date.now() / 1e4) * 1e4 - back[1] * ms).toISOString();
}

function Filters({ query }) {
    const isFiltered = FILTERS.some(([name]) => query[name]);
    const set = (name) => (value) => refine({ [name]: value, event: '' });
    return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}
        aria-label="Filters">
        ${FILTERS.map(
            ([name, label, hint]) => html`<label>${label}
            <${Draft} value=${query[name]} placeholder=${hint} onCommit=${set(name)} /></label>`,
        )}
        <button type="button" class="quiet" disabled=${!isFiltered}
            onClick=${() => go(to('log'))}>Clear</button></form>`;
}

function List({ filters, selected }) {
    const tail = useTail(filters, Number(selected) || 0);
    const box = useRef();
    const [, redraw] = useReducer((n) => n + 1, 0);
    const [view, setView] = useState({ top: 0, height: 600 });
    const isLive = live.use();
    const isFollowing = useRef(true);
    const first = useRef();
    const wanted = useRef(Number(selected) || 0); // the event a link points at, until it was shown once

    const events = tail?.events || [];
    useLayoutEffect(() => {
        const element = box.current;
        if (!element) return;
        const at = wanted.current
            ? events.findIndex((event) => event.event_id === wanted.current)
            : -1;
        if (at >= 0) {
            element.scrollTop = at * ROW - element.clientHeight / 3;
            isFollowing.current = isAtEnd(element);
            tail.watch(isFollowing.current);
        } else if (isFollowing.current) {
            element.scrollTop = element.scrollHeight;
        } else if (events[0]?.event_id < first.current) {
            // Rows came in above and pushed the others down: the view moves with them.
            element.scrollTop +=
                events.findIndex((event) => event.event_id === first.current) * ROW;
        }
        wanted.current = 0;
        first.current = events[0]?.event_id;
        if (element.clientHeight !== view.height)
            setView({ top: element.scrollTop, height: element.clientHeight });
    });

    function scrolled() {
        if (!box.current) return; // told when the page had gone
        const { scrollTop, clientHeight } = box.current;
        isFollowing.current = isAtEnd(box.current);
        tail.watch(isFollowing.current);
        setView({ top: scrollTop, height: clientHeight });
        if (scrollTop < ROW * 20) tail.older();
    }

    function toEnd() {
        isFollowing.current = true;
        tail.toEnd();
        redraw();
    }

    if (tail?.error && !events.length)
        return html`<${Failure} error=${tail.error} what="the log"
        retry=${() => location.reload()} />`;
    if (!tail?.isLoaded) return html`<${Loading} what="the log" rows=${10} />`;
    if (!events.length) return html`<${NoEvents} isFiltered=${Object.keys(filters).length > 0} />`;

    const from = Math.max(0, Math.floor(view.top / ROW) - OVERSCAN);
    const upto = Math.min(events.length, Math.ceil((view.top + view.height) / ROW) + OVERSCAN);
    return html`<div class="loglist">
        <div class="list" role="table" aria-label="Events" aria-rowcount=${events.length}
            tabindex="0" ref=${box} onScroll=${scrolled}
            onKeyDown=${(event) => moveSelection(event, events, selected)}>
            <div class="room" role="rowgroup" style=${{ height: `${events.length * ROW}px` }}>
                ${events.slice(from, upto).map(
                    (event, i) =>
                        html`<${EventRow} key=${event.event_id} event=${event}
                    top=${(from + i) * ROW} isSelected=${String(event.event_id) === selected} />`,
                )}
            </div></div>
        <${Status} tail=${tail} isFollowing=${isFollowing.current} isLive=${isLive} toEnd=${toEnd}
            /></div>`;
}

const isAtEnd = (element) => element.scrollHeight - element.scrollTop - element.clientHeight < ROW;

// With an event open, the arrow keys open its neighbours.
function moveSelection(event, events, selected) {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    if (!selected) return;
    const at = events.findIndex((one) => String(one.event_id) === selected);
    const next = events[at + (event.key === 'ArrowDown' ? 1 : -1)];
    if (!next) return;
    event.preventDefault();
    refine({ event: next.event_id });
}

function EventRow({ event, top, isSelected }) {
    const { query } = here();
    const href = to('log', { ...query, event: event.event_id });
    return html`<div class=${`row${isSelected ? ' selected' : ''}`} role="row" data-row
        data-href=${href} tabindex="-1"
        style=${{ transform: `translateY(${top}px)` }}
        onClick=${(press) => {
            if (!press.target.closest('a') && !String(getSelection()))
                refine({ event: event.event_id }, { replace: false });
        }}>
        <span role="cell" class="number">${event.event_id}</span>
        <time role="cell" class="time" datetime=${event.occurred_at}
            title=${exact(event.occurred_at)}>${clock(event.occurred_at, { millis: true })}</time>
        <a role="cell" class="type" href=${href}>${event.event_type}</a>
        <span role="cell" class="about" title="${event.aggregate_type}/${event.aggregate_id}">
            ${event.aggregate_type}/${brief(event.aggregate_id)}</span>
        <span role="cell" class="who">${event.org_id ?? 'infrastructure'}</span>
        <span role="cell" class="said">${JSON.stringify(event.payload).slice(0, 240)}</span></div>`;
}

function Status({ tail, isFollowing, isLive, toEnd }) {
    const words = !isLive
        ? ['pause', 'calm', 'paused']
        : tail.params.until
          ? ['ring', 'calm', 'a closed stretch']
          : tail.state === 'lost'
            ? ['half', 'warn', 'reconnecting']
            : isFollowing
              ? ['dot', 'good', 'following']
              : ['pause', 'calm', 'holding still'];
    const shown = tail.events.length;
    return html`<div class="foot" role="status">
        <span class="state ${words[1]}"><${Shape} name=${words[0]} />${words[2]}</span>
        <span class="dim">${plural(shown, 'event')} here${
            tail.isStart ? ', from the first' : ''
        }</span>
        ${
            !isFollowing &&
            html`<button type="button" onClick=${toEnd}>
            ${
                tail.state === 'behind'
                    ? `more than ${plural(tail.missed - 1, 'new event')}`
                    : tail.missed
                      ? plural(tail.missed, 'new event')
                      : 'To the end'
            } ↓</button>`
        }</div>`;
}

function NoEvents({ isFiltered }) {
    if (isFiltered) {
        return html`<${Empty} title="Nothing fits these filters">New events that fit appear here by themselves. <a href=${to('log')}>Show all</a><//>`;
    }
    const who = person.use();
    return html`<${Empty} title="The log is empty">Append the first event${
        who.org_id ? ` of ${who.org_id}` : ''
    }:
        <code>outlog append --org ${
            who.org_id || 'acme'
        } --aggregate order/o-1 --type order.created --data '{"total":12}'</code><//>`;
}
