// What people do at the chat page of examples/. test_chat.py cuts cables and kills daemons when asked to.
import assert from 'node:assert/strict';

const TEXT = 'tell me everything about the sea, the sky and all that lies between them';
const WHOLE = (text, number) => `You said: ${text} (this was your message number ${number})`;

// Lines that the browser writes when a server is away.
function forgiveOutages(visit) {
    visit.forgive(/WebSocket connection to .* failed/);
    visit.forgive(/status of 503/);
}

async function say(visit, text) {
    await visit.role('textbox', 'Message').fill(text);
    await visit.page.keyboard.press('Enter');
}

// The answers on the screen that are whole, in order.
function answers({ page }) {
    return page
        .locator('.answer:not(.streams)')
        .evaluateAll((all) => all.map((one) => one.textContent.trim()).filter(Boolean));
}

async function seeAnswers(visit, ...wanted) {
    await visit.until(
        async () =>
            (await answers(visit)).length >= wanted.length &&
            (await visit.page.locator('.streams').count()) === 0,
        `${wanted.length} answers`,
    );
    assert.deepEqual(await answers(visit), wanted);
}

async function seeStream(visit) {
    await visit.until(
        async () =>
            /You said: tell/.test(
                await visit.page
                    .locator('.streams')
                    .textContent()
                    .catch(() => ''),
            ),
        'tokens',
    );
}

// The connection is cut in mid-answer; a message said meanwhile waits. Back again: each answer whole, once.
export async function chatCut(visit) {
    const { page } = visit;
    forgiveOutages(visit);
    await page.goto(`${visit.base}/#cut`);
    await visit.see('connected');
    await visit.shot('chat-0-empty');
    await say(visit, TEXT);
    await seeStream(visit);
    await visit.shot('chat-1-streams');
    await visit.checkPage('chat');

    await visit.ask('cut');
    await visit.see('reconnecting');
    await say(visit, 'are you there?');
    await visit.see('sending');
    await visit.shot('chat-2-cut');
    await page.reload();
    await visit.see('are you there?');

    await visit.ask('mend');
    await visit.see('connected');
    await seeAnswers(visit, WHOLE(TEXT, 1), WHOLE('are you there?', 2));
    await visit.ask('settled', { count: 2 });
    await visit.shot('chat-3-back');

    await page.reload();
    await visit.see('connected');
    await seeAnswers(visit, WHOLE(TEXT, 1), WHOLE('are you there?', 2));
    assert.equal(await page.locator('.said').count(), 2);

    await visit.open({ width: 390, height: 700, theme: 'dark' });
    await visit.page.goto(`${visit.base}/#cut`);
    await seeAnswers(visit, WHOLE(TEXT, 1), WHOLE('are you there?', 2));
    await visit.checkPage('chat, small and dark');
    await visit.shot('chat-4-dark');
}

// The daemon is killed while an answer streams and started again; the page is loaded anew.
export async function chatKill(visit) {
    const { page } = visit;
    forgiveOutages(visit);
    await page.goto(`${visit.base}/#kill`);
    await visit.see('connected');
    await say(visit, TEXT);
    await seeStream(visit);
    await visit.ask('kill');
    await visit.see('reconnecting');
    await visit.ask('start');
    await page.reload();
    await visit.see('connected');
    await seeAnswers(visit, WHOLE(TEXT, 1));
    await visit.ask('settled', { count: 1 });
    await page.reload();
    await visit.see('connected');
    await seeAnswers(visit, WHOLE(TEXT, 1));
}

// Two windows, and somebody who speaks by other interfaces: everybody sees all of it, once.
export async function chatTwo(visit) {
    const { page } = visit;
    await page.goto(`${visit.base}/#two`);
    await visit.see('connected');
    const other = await page.context().newPage();
    const second = { page: other, until: visit.until };
    await other.goto(`${visit.base}/#two`);
    await other.getByText('connected').waitFor();
    await say(visit, TEXT);
    await seeStream(second);
    await other.locator('.said', { hasText: TEXT }).waitFor();
    await seeAnswers(visit, WHOLE(TEXT, 1));
    await seeAnswers(second, WHOLE(TEXT, 1));
    assert.deepEqual(await other.locator('.turn > *').allTextContents(), [
        TEXT,
        'stored · no. 1',
        `${WHOLE(TEXT, 1)} `,
    ]);
    await other.screenshot({ path: `${visit.shots}/chat-5-other-window.png` });
    await other.close();

    await visit.ask('elsewhere');
    await page.reload();
    await seeAnswers(visit, WHOLE(TEXT, 1), WHOLE('from the shell', 2));
    assert.deepEqual(await page.locator('.said').allTextContents(), [TEXT, 'from the shell']);
}

// The store is away for a moment: what is said is said again, and nobody calls it refused.
export async function chatAway(visit) {
    const { page } = visit;
    let refused = 0;
    await page.routeWebSocket(/socket/, (socket) => {
        const server = socket.connectToServer();
        socket.onMessage((text) => {
            const { type, requestId } = JSON.parse(text);
            if (type !== 'user_message' || refused === 2) return server.send(text);
            const code = ['unavailable', 'outcome_unknown'][refused++];
            return socket.send(
                JSON.stringify({ type: 'error', code, requestId, detail: 'try again' }),
            );
        });
    });
    await page.goto(`${visit.base}/#away`);
    await visit.see('connected');
    await say(visit, TEXT);
    await visit.see('sending');
    await seeAnswers(visit, WHOLE(TEXT, 1));
    assert.equal(refused, 2);
    await visit.ask('settled', { count: 1 });
}

// An address that names no session: the page says so, asks nobody again, and has a way on.
export async function chatRefused(visit) {
    const { page } = visit;
    visit.forgive(/status of 4\d\d/);
    await page.clock.install();
    for (const thread of ['a:b', 'two words', 'x'.repeat(200), 'ü']) {
        const asked = [];
        const note = (request) => /ticket|history/.test(request.url()) && asked.push(request.url());
        await page.goto('about:blank');
        page.on('request', note);
        await page.goto(`${visit.base}/#${thread}`);
        const alert = page.getByRole('alert');
        await visit.see(alert.getByText('userId:agentId:threadId'));
        await visit.see('not connected');
        assert.equal(await visit.role('textbox', 'Message').isDisabled(), true);
        await page.clock.runFor(60_000);
        await page.evaluate(() => dispatchEvent(new Event('online')));
        await page.clock.runFor(60_000);
        assert.equal(asked.length, 1, `asked of ${thread}`);
        page.off('request', note);
    }
    await visit.checkPage('chat, refused');
    await visit.shot('chat-6-refused');
    await visit.role('link', 'Begin a new one').click();
    await visit.see(page.getByText('connected', { exact: true }));
    await say(visit, TEXT);
    await seeAnswers(visit, WHOLE(TEXT, 1));
    await page.goto(`${visit.base}/#a:b`);
    await visit.see('not connected');
    await page.route(
        '**/ticket?*',
        (route) =>
            route.fulfill({ status: 401, json: { code: 'unauthorized', detail: 'no token' } }),
        { times: 1 },
    );
    await page.goto(`${visit.base}/#mended`);
    await visit.see('The server says: no token.');
    await visit.role('link', 'Try again').click();
    await visit.see(page.getByText('connected', { exact: true }));
    assert.equal(new URL(page.url()).hash, '#mended');

    await visit.open({ width: 390, height: 700, theme: 'dark' });
    await visit.page.goto(`${visit.base}/#${'x'.repeat(200)}`);
    await visit.see('not connected');
    await visit.checkPage('chat, refused, small and dark');
    await visit.shot('chat-7-refused-dark');
}

// A page whose origin nobody named cannot open a socket.
export async function chatForeign(visit) {
    forgiveOutages(visit);
    await visit.page.goto(`${visit.base}/#foreign`);
    await visit.see('reconnecting');
    await visit.ask('name');
    await visit.see('connected');
}
