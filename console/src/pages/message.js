// One message, with every attempt: the request as it went out, the answer as it came.
import { useState } from 'preact/hooks';
import { getText, may } from '../api.js';
import { plural, span } from '../format.js';
import { html } from '../html.js';
import { field } from '../json.js';
import { useGet, useLoad } from '../load.js';
import { Payload } from '../payload.js';
import { to } from '../router.js';
import { person } from '../shared.js';
import { messageState, State } from '../status.js';
import {
    Aggregate,
    Ago,
    Clock,
    Copy,
    Destination,
    Due,
    Fields,
    Id,
    Loaded,
    ofOne,
    Page,
} from '../ui.js';
import { one, Operation } from './requeue.js';

export function Message({ id, rest }) {
    const path = `/v1/messages/${encodeURIComponent(id)}`;
    const text = ofOne(
        useLoad(path, (signal) => getText(path, { signal }), { every: 2000 }),
        'message',
    );
    const raw = text.data;
    const message = raw && JSON.parse(raw);
    return html`<${Page} title="Message" note=${html`<${Id} of=${id} />`}
        tools=${message && html`<${Acts} message=${message} raw=${raw} refresh=${text.refresh} />`}>
        <${Loaded} from=${text} what="the message" rows=${14}>${() => html`
            <p class="lead"><${State} of=${messageState(message)} /> <strong>
                ${message.event_type}</strong> to <${Destination} name=${message.destination} />
                ${describeState(message)}</p>
            <${Held} message=${message} />
            <div class="columns"><div>
                <${Attempts} message=${message}
                    open=${rest[0] === 'attempts' ? Number(rest[1]) : null} />
                <${Payload} text=${
                    field(raw, 'payload') ?? (message.payload_base64 ? undefined : 'null')
                }
                    base64=${message.payload_base64} />
            </div><div><${Fields} of=${fieldsOf(message)} />
                ${
                    has(message.headers) &&
                    html`<${Payload} label="Headers"
                    text=${field(raw, 'headers')} />`
                }
                ${
                    has(message.metadata) &&
                    html`<${Payload} label="Metadata"
                    text=${field(raw, 'metadata')} />`
                }
                ${
                    message.result != null &&
                    html`<${Payload} label="Result" text=${field(raw, 'result')}
                    />`
                }</div></div>`}<//><//>`;
}

const has = (object) => object && Object.keys(object).length > 0;

function describeState(message) {
    switch (messageState(message)) {
        case 'PUBLISHED':
            return html`, delivered <${Ago} at=${message.published_at}
        /> after ${plural(message.attempts, 'attempt')}`;
        case 'DEAD':
            return html`, given up <${Ago} at=${message.updated_at}
        /> after ${plural(message.attempts, 'attempt')}`;
        case 'RETRYING':
            return html`, next try <${Due} at=${message.available_at} />`;
        case 'CLAIMED':
            return html`, on its way by ${message.claimed_by} since <${Ago}
        at=${message.claimed_at} />`;
        default:
            return html`, waiting since <${Ago} at=${message.created_at} />`;
    }
}

function Acts({ message, raw, refresh }) {
    const [doing, setDoing] = useState(null);
    const canOperate = may.operate(person.use());
    const close = () => {
        setDoing(null);
        refresh();
    };
    return html`<a class="button" href=${to('traces', message.correlation_id)}>Trace</a>
        <${Copy} text=${raw} what="Copy JSON" />
        ${
            canOperate &&
            ['DEAD', 'PUBLISHED'].includes(message.state) &&
            html`<button type="button" class="primary"
            onClick=${() => setDoing('requeue')}>Requeue</button>`
        }
        ${
            canOperate &&
            message.state === 'PENDING' &&
            html`<button type="button" class="danger"
            onClick=${() => setDoing('kill')}>Kill</button>`
        }
        ${
            canOperate &&
            message.held &&
            html`<button type="button"
            onClick=${() => setDoing('release')}>Release its key</button>`
        }
        ${
            doing &&
            html`<${Operation} of=${one(doing, message)} what="this message"
            onClose=${close} />`
        }`;
}

// The queue behind a dead head: how long it is, and how old.
function Held({ message }) {
    const isHead = message.state === 'DEAD' && message.held;
    const waiting = useWaiting(isHead ? message.destination : null);
    if (!isHead) return null;
    const queue = waiting[message.ordering_key];
    return html`<p class="heldline warn">The key <span class="id">
        ${message.ordering_key}</span> is held by this message${
            queue
                ? html`: ${plural(queue.count, 'message')} ${
                      queue.count === 1 ? 'waits' : 'wait'
                  } behind it, the oldest since <${Ago} at=${queue.oldest} />`
                : ''
        }.
        Requeue it, or release the key to go on without it.</p>`;
}

// ordering_key → {count, oldest} of what waits for a destination.
export function useWaiting(destination) {
    const pending = useGet(destination ? '/v1/messages' : null, {
        state: 'PENDING',
        destination,
        limit: 1000,
    });
    const keys = {};
    for (const message of pending.data?.messages || []) {
        if (!message.ordering_key) continue;
        const key = (keys[message.ordering_key] ||= { count: 0, oldest: message.created_at });
        key.count++;
        if (message.created_at < key.oldest) key.oldest = message.created_at;
    }
    return keys;
}

function fieldsOf(message) {
    return [
        ['event_id', html`<span class="id">${message.event_id}</span>`],
        ['org_id', message.org_id],
        ['state', message.state],
        [
            'attempts',
            `${message.attempts}${message.max_attempts ? ` of ${message.max_attempts}` : ''}`,
        ],
        ['created_at', html`<${Clock} at=${message.created_at} millis />`],
        [
            'available_at',
            message.available_at && html`<${Clock} at=${message.available_at} millis />`,
        ],
        ['claimed_by', message.claimed_by],
        [
            'published_at',
            message.published_at && html`<${Clock} at=${message.published_at} millis />`,
        ],
        [
            'last_error',
            message.last_error && html`<span class="bad wrap">${message.last_error}</span>`,
        ],
        ['ordering_key', message.ordering_key],
        ['partition_key', message.partition_key],
        [
            'idempotency_key',
            message.idempotency_key && html`<${Id} of=${message.idempotency_key} />`,
        ],
        ['content_type', message.content_type],
        [
            'correlation_id',
            message.correlation_id &&
                html`<${Id} of=${message.correlation_id}
            href=${to('traces', message.correlation_id)} />`,
        ],
        [
            'causation_id',
            message.causation_id &&
                html`<${Id} of=${message.causation_id} href=${to('events', message.causation_id)}
            />`,
        ],
        ['aggregate', message.aggregate_type && html`<${Aggregate} of=${message} />`],
    ];
}

function Attempts({ message, open }) {
    const log = message.attempts_log || [];
    return html`<section aria-label="Attempts"><h2>Attempts</h2>
        ${
            log.length === 0 &&
            html`<p class="dim">
            ${
                message.attempts > 0
                    ? 'This destination keeps no record of single attempts.'
                    : 'None yet.'
            }</p>`
        }
        <ol class="attempts">${[...log]
            .sort((a, b) => b.attempt - a.attempt)
            .map(
                (attempt) => html`
            <${Attempt} key=${attempt.attempt} attempt=${attempt} message=${message}
                isOpen=${open === attempt.attempt} />`,
            )}</ol></section>`;
}

function Attempt({ attempt, message, isOpen }) {
    const has = attempt.response != null || attempt.error != null;
    const response =
        typeof attempt.response === 'string'
            ? attempt.response
            : attempt.response == null
              ? null
              : JSON.stringify(attempt.response, null, 2);
    return html`<li><details open=${isOpen} data-row tabindex="-1"><summary>
            <span class="number">${attempt.attempt}</span>
                <${State} of="attempt.${attempt.outcome}" />
            <span>${attempt.status ?? ''}</span>
                <span class="dim">${span(attempt.duration_ms)}</span>
            <span class="clip grow dim">${attempt.error ?? ''}</span>
                <${Ago} at=${attempt.started_at} /></summary>
        <div class="inner"><${Fields} of=${[
            ['started_at', html`<${Clock} at=${attempt.started_at} millis />`],
            ['duration', span(attempt.duration_ms)],
            [
                'sent',
                html`the payload below${
                    message.content_type ? ` as ${message.content_type}` : ''
                }, key <${Id} of=${message.idempotency_key ?? message.event_id} />`,
            ],
            ['by', attempt.claimed_by],
            ['status', attempt.status],
            ['error', attempt.error && html`<span class="bad wrap">${attempt.error}</span>`],
            ['final', attempt.permanent ? 'yes: not worth another try' : undefined],
        ]} />${response != null && html`<${Payload} label="Response" text=${response} />`}
        ${!has && html`<p class="dim">No answer was kept.</p>`}</div></details></li>`;
}
