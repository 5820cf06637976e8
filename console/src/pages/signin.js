// The interface: a token, kept for this tab only.
import { useState } from 'preact/hooks';
import { signIn, signOut } from '../api.js';
import { html } from '../html.js';
import { person } from '../shared.js';

export function SignIn() {
    const [problem, setProblem] = useState(null);
    async function submit(event) {
        event.preventDefault();
        const form = event.currentTarget;
        setProblem(null);
        try {
            await signIn(form.token.value);
            if (person.get() === 'nobody')
                setProblem('This server does not know that token, or it was revoked.');
        } catch (reason) {
            signOut();
            setProblem(reason.message);
        }
    }
    return html`<main class="alone"><form class="signin" onSubmit=${submit}>
        <h1>outlog</h1>
        <label>Token<input name="token" type="password" required autofocus autocomplete="off"
            spellcheck="false" aria-describedby="token-help" /></label>
        ${problem && html`<p class="bad" role="alert">${problem}</p>`}
        <button class="primary">Sign in</button>
        <p class="dim" id="token-help">It stays in this tab and is gone when you close it. To make one:
            <code>outlog token create --scope admin</code></p>
    </form></main>`;
}
