// A browser for test/e2e/test_console.py and test_chat.py. Each line on standard input names a flow and where to run it:
//
//     {"flow": "dead", "base": "http://127.0.0.1:7400", "shots": DIR, "args": {…}}
//
// It is answered by one line, {"ok": true} or {"ok": false, "error": …}. Before that a flow may ask
// the test for something only it can do, {"ask": "heal", …}; the next line on standard input is the answer.
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import * as chat from './chat.mjs';
import * as flows from './flows.mjs';
import { Visit } from './visit.mjs';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const put = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);

async function ask(what, args = {}) {
    put({ ask: what, ...args });
    return JSON.parse((await lines.next()).value);
}

const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
});
for (let next = await lines.next(); !next.done; next = await lines.next()) {
    const order = JSON.parse(next.value);
    const visit = new Visit(browser, order, ask);
    try {
        await visit.open();
        await { ...flows, ...chat }[order.flow](visit, order.args || {});
        visit.checkErrors();
        put({ ok: true });
    } catch (error) {
        await visit.shot(`failed-${order.flow}`).catch(() => {});
        put({
            ok: false,
            error: `${error.stack}\nat ${visit.page?.url()}\n${visit.errors.join('\n')}`,
        });
    }
    await visit.close();
}
await browser.close();
