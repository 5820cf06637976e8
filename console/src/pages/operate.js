// What an operator presses at a destination.
import { post } from '../api.js';
import { span } from '../format.js';
import { html } from '../html.js';
import { Button, say } from '../ui.js';

const at = (name, verb) => `/v1/destinations/${encodeURIComponent(name)}/${verb}`;

export function Pause({ name, paused, done }) {
    async function press() {
        await post(at(name, paused ? 'resume' : 'pause'));
        say(
            paused
                ? `${name} is resumed: what waited goes out now.`
                : `${name} is paused: its messages wait, nothing is lost.`,
        );
        done?.();
    }
    return html`<${Button} onPress=${press} label="${paused ? 'Resume' : 'Pause'} ${name}">
        ${paused ? 'Resume' : 'Pause'}<//>`;
}

export function Test({ name, onResult }) {
    async function press() {
        const result = await post(at(name, 'test'));
        const took = result.duration_ms == null ? '' : ` in ${span(result.duration_ms)}`;
        if (result.outcome === 'ok')
            say(`${name} answered${result.status ? ` ${result.status}` : ''}${took}.`);
        else
            say(
                `${name}: ${result.outcome}${result.status ? `, ${result.status}` : ''}${took}${result.error ? `: ${result.error}` : ''}`,
                'bad',
            );
        onResult?.(result);
    }
    return html`<${Button} onPress=${press} label="Test ${name}">Test<//>`;
}

export function Deliver({ name, done }) {
    async function press() {
        await post(at(name, 'deliver'));
        say(`What waits for ${name} is being tried now.`);
        done?.();
    }
    return html`<${Button} onPress=${press}
        label="Deliver what waits for ${name} now">Deliver now<//>`;
}
