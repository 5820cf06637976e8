// What people do at the console. Each flow is a fresh browser page on a fresh server; test_console.py
// says what stands in its store.
import assert from 'node:assert/strict';

// A person was paged: what hurts, why, the one message, its attempts, requeue, delivered.
export async function dead(visit, { message }) {
    const { page } = visit;
    await visit.go();
    await visit.see(visit.role('row', /partner-api/));
    await visit.until(async () => /^\(1\) /.test(await page.title()), 'the count in the title');
    assert.match(await page.locator('link[rel=icon]').getAttribute('href'), /^data:image\/svg/);
    await visit.see('1 dead letter of partner-api waits for your decision');
    await visit.shot('flow-dead-1-overview');

    await visit
        .role('table', 'Destinations, worst first')
        .getByRole('link', { name: 'partner-api' })
        .click();
    await visit.see(visit.role('heading', 'partner-api'));
    await page.locator('dl').getByRole('link', { name: '1', exact: true }).last().click();
    await visit.see(visit.role('heading', 'Dead letters'));
    const groups = visit.role('table', 'Dead letters by destination and error');
    await visit.see(groups.getByRole('row', { name: /1 × .*503.* partner-api/ }));
    await visit.shot('flow-dead-2-groups');

    await page.getByTitle(message).first().click();
    await visit.see(visit.role('heading', 'Message'));
    const attempts = page.getByRole('region', { name: 'Attempts' });
    await visit.see(attempts.locator('summary').first());
    assert.equal(await attempts.getByRole('listitem').count(), 2);
    await attempts.locator('summary').first().click();
    await visit.see(attempts.getByText('upstream is down').first());
    await visit.shot('flow-dead-3-attempt');

    await visit.ask('heal');
    await visit.role('button', 'Requeue').click();
    const dialog = visit.role('dialog', 'Requeue this message');
    await visit.see(dialog.getByText('1 message to partner-api will be requeued.'));
    await visit.shot('flow-dead-4-preview');
    await dialog.getByRole('button', { name: 'Requeue 1 message' }).click();
    await visit.see(dialog.getByText('1 message requeued.'));
    await visit.see(dialog.getByText('PUBLISHED'));
    await visit.shot('flow-dead-5-result');
    await dialog.getByRole('button', { name: 'Close' }).click();
    await visit.see(page.getByText(/delivered .* after 3 attempts/));
    await visit.until(async () => !/^\(/.test(await page.title()), 'the count to leave the title');
    await visit.shot('flow-dead-6-delivered');
}

// Many at once: a group with its preview, and what is still retried, killed.
export async function group(visit) {
    const { page } = visit;
    await visit.go('dead');
    await visit.role('button', 'Requeue 3 messages of partner-api').first().waitFor();
    await visit.ask('heal');
    await visit.role('button', 'Requeue 3 messages of partner-api').click();
    const dialog = page.getByRole('dialog');
    await visit.see(dialog.getByText('3 messages to partner-api will be requeued.'));
    await dialog.getByRole('button', { name: 'Requeue 3 messages' }).click();
    await visit.see(dialog.getByText('3 messages requeued.'));
    await visit.see(dialog.getByRole('listitem').filter({ hasText: /PUBLISHED.*3/ }));
    await dialog.getByRole('button', { name: 'Close' }).click();
    await visit.see('No dead letters');

    await visit.go('dead?tab=retrying');
    await visit.role('button', 'Kill all…').click();
    await visit.see(dialog.getByText(/2 messages.* will be killed/));
    await dialog.getByRole('button', { name: 'Kill 2 messages' }).click();
    await visit.see(dialog.getByText('2 messages killed.'));
    await dialog.getByRole('button', { name: 'Close' }).click();
    await visit.see('Nothing is being retried');
}

// A dead head holds its key; the queue behind it is shown, and let go without it.
export async function held(visit) {
    const { page } = visit;
    await visit.go();
    await visit.see(page.getByText(/holds 1 key behind a dead letter/));
    await visit
        .role('region', 'Right now, in words')
        .getByRole('link', { name: 'Dead letters' })
        .first()
        .click();
    await visit.see(page.getByText(/held: 2 wait/));
    await visit.shot('flow-held-1');
    await page.getByRole('table', { name: 'Messages' }).getByRole('link').first().click();
    await visit.see(page.getByText(/is held by this message: 2 messages wait behind it/));
    await visit.role('button', 'Release its key').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Release 1 message' }).click();
    await visit.see(dialog.getByText('1 message released.'));
    await dialog.getByRole('button', { name: 'Close' }).click();
    await visit.until(
        async () => (await visit.role('button', 'Release its key').count()) === 0,
        'the key to be free',
    );
}

// From a filter to a trace to the cause.
export async function trace(visit) {
    const { page } = visit;
    await visit.go('log');
    await page.getByLabel('type').fill('order.shipped');
    await visit.ask('append', { type: 'order.seen', aggregate: 'order/o-9' });
    await visit.see(page.locator('.list .row').filter({ hasText: 'order.seen' }));
    assert.equal(
        await page.getByLabel('type').inputValue(),
        'order.shipped',
        'what is typed stays',
    );
    await page.getByLabel('type').press('Enter');
    await visit.until(
        async () => (await page.locator('.list .row').count()) === 1,
        'the filter to leave one row',
    );
    assert.match(page.url(), /event_type=order\.shipped/);
    await page.locator('.list .row').getByRole('cell', { name: 'order.shipped' }).click();
    const panel = page.getByRole('complementary');
    await visit.see(panel.getByText('"tracked"'));
    await panel.getByRole('button', { name: 'Raw' }).click();
    assert.equal(
        await panel.locator('pre.raw').innerText(),
        '{"parcel":"P-1", "weight":12345678901234567890.10,"how":"tracked"}',
    );
    await visit.shot('flow-trace-1-log');

    await panel.getByRole('link', { name: 'Trace' }).click();
    const nodes = page.getByRole('list', { name: /Trace/ }).getByRole('listitem');
    await visit.see(nodes.filter({ hasText: 'attempt 1' }).first());
    await nodes.filter({ hasText: 'order.shipped' }).first().hover();
    const lit = await page.locator('.labels li.on').allInnerTexts();
    assert.deepEqual(
        lit.map((text) => text.split(' ')[0]),
        ['order.created', 'order.paid', 'order.shipped'],
    );
    await visit.shot('flow-trace-2-lit');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Copy as text' }).click();
    const text = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(text, /order\.created .*\n(.*\n)*.*└─ order\.paid .*\n(.*\n)* +└─ order\.shipped/);

    await nodes.getByRole('link', { name: 'order.shipped', exact: true }).click();
    await visit.see(visit.role('heading', /Event \d/));
    await visit.role('link', 'Cause').click();
    await visit.see(page.locator('.lead').getByText('order.paid'));
    await visit.role('link', 'Cause').click();
    await visit.see(page.locator('.lead').getByText('order.created'));
    assert.equal(await visit.role('link', 'Cause').count(), 0, 'the root has no cause');
}

export async function pause(visit) {
    const { page } = visit;
    await visit.go('destinations/billing');
    await visit.role('button', 'Pause billing').click();
    await visit.see('billing is paused: its messages wait, nothing is lost.');
    await visit.see(page.locator('.lead .state').getByText('paused'));
    // What the relay had read before it heard of the pause still goes out.
    const waits = page.locator('.lead').getByText(/messages? waits? until somebody resumes it/);
    await visit.until(async () => {
        await visit.ask('append', { type: 'order.created', aggregate: 'order/o-2' });
        return waits.waitFor({ timeout: 2500 }).then(
            () => true,
            () => false,
        );
    }, 'a message to wait');
    await visit.shot('flow-pause-1-paused');
    await visit.role('button', 'Resume billing').click();
    await visit.see('billing is resumed: what waited goes out now.');
    await visit.see(page.locator('.lead').getByText(/takes messages/));
    await visit.role('button', 'Test billing').click();
    await visit.see(page.getByText(/billing answered 200/));
    await visit.role('button', 'Deliver what waits for billing now').click();
    await visit.see('What waits for billing is being tried now.');
}

// Without --dev: a token gets in, makes another, which reaches less, and is revoked.
export async function tokens(visit, { admin }) {
    const { page } = visit;
    visit.forgive(/status of 40[13]/);
    const addresses = [];
    page.on('request', (request) => addresses.push(request.url()));
    page.on('framenavigated', (frame) => addresses.push(frame.url()));
    const signIn = async (token) => {
        await page.getByLabel('Token').fill(token);
        await visit.role('button', 'Sign in').click();
    };
    await visit.go('tokens');
    await visit.see(visit.role('button', 'Sign in'));
    await visit.checkPage('sign in');
    await visit.shot('flow-tokens-1-signin');
    await signIn('not a token');
    await visit.see('This server does not know that token, or it was revoked.');
    await signIn(admin);
    await visit.role('button', 'New token').click();
    await page.getByRole('radio', { name: /^read/ }).check();
    await page.getByLabel('Org', { exact: true }).fill('acme');
    await visit.role('button', 'Make it').click();
    const secret = await page.locator('.secret code').innerText();
    await visit.shot('flow-tokens-2-made');
    await visit.role('button', 'Done').click();
    await visit.until(
        async () => (await page.getByText(secret).count()) === 0,
        'the token to go: it is shown once',
    );
    const bearer = { Authorization: `Bearer ${secret}` };
    assert.equal((await visit.get('/v1/events', bearer)).status, 200);
    assert.deepEqual(
        await page.evaluate(() => Object.keys(localStorage)),
        [],
        'nothing outlives the tab',
    );

    await visit.role('button', 'Sign out').click();
    await signIn(secret);
    await visit.see(page.locator('.org').getByText('acme'));
    await visit.go('outbox');
    await visit.see('Your token does not reach this');
    await visit.shot('flow-tokens-3-forbidden');
    await visit.go('log');
    await visit.see(page.locator('.list .row').first());

    await visit.role('button', 'Sign out').click();
    await signIn(admin);
    await visit.go('tokens');
    const row = visit.role('row', /active .* read acme/);
    await row.getByRole('button', { name: /^Revoke/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await visit.see(visit.role('row', /revoked .* read acme/));
    await visit.until(
        async () => (await visit.get('/v1/events', bearer)).status === 401,
        'the token to be refused',
    );
    const said = addresses.filter((url) => url.includes(secret) || url.includes(admin));
    assert.ok(addresses.length > 20);
    assert.deepEqual(said, [], 'no address holds a token');
    await visit.role('button', 'Sign out').click();
    await signIn(secret);
    await visit.see('This server does not know that token, or it was revoked.');
}

// A view that an event stopped: skipped, rebuilt. A consumer: reset, deleted.
export async function readers(visit) {
    const { page } = visit;
    await visit.go('views');
    const view = visit.role('row', /totals/);
    await visit.see(view.getByText('stopped'));
    await visit.see(view.getByText(/event \d+ \(order\.paid\): .*NULL/i));
    await visit.shot('flow-readers-1-stopped');
    await visit.role('button', 'Skip the event that stopped totals').click();
    await visit.see(view.getByText('running'));
    await visit.see(view.getByText('up to date'));
    await visit.role('button', 'Rebuild totals').click();
    await visit.role('dialog', 'Rebuild totals').getByRole('button', { name: 'Rebuild' }).click();
    await visit.see('totals is being rebuilt beside the one in use.');

    await visit.go('consumers');
    const consumer = visit.role('row', /search/);
    await visit.see(consumer.getByText(/\d+ events/));
    await visit.role('button', 'Reset search').click();
    await visit.shot('flow-readers-2-reset');
    await page.getByRole('dialog').getByRole('button', { name: 'Reset' }).click();
    await visit.see(consumer.getByText(/up to date|^1 event\b/));
    await visit.role('button', 'Delete search').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete search' }).click();
    await visit.see('No consumers yet');
}

// A run: its steps in time, what the events say, and a row that somebody changed behind their back.
export async function run(visit, { run: id }) {
    const { page } = visit;
    await visit.go('runs');
    await page.getByRole('table', { name: 'Runs' }).getByTitle(id).click();
    const timeline = page.getByRole('region', { name: 'Timeline' });
    await visit.see(timeline.getByText('1 classify'));
    await visit.see(timeline.getByText('effect SEND_EMAIL'));
    await visit.see(timeline.getByText('attempt 1: ok 200'));
    await visit.see(timeline.getByText('2 file'));
    await visit.see(timeline.getByText(/^\w+: no folder fits$/));
    await timeline.getByRole('button', { name: /2 file/ }).click();
    await visit.see(timeline.getByText('"no folder fits"'));
    await visit.role('button', 'Verify against its events').click();
    await visit.see('The stored state is what the events say.');
    await visit.shot('flow-run-1-verified');
    await visit.ask('tamper');
    await visit.role('button', 'Verify against its events').click();
    await visit.see(visit.role('row', /runs .* total_steps 5 1/));
    await visit.shot('flow-run-2-differs');
}

// A client speaks and does not acknowledge the answer: it is owed, until it does.
export async function session(visit) {
    const { page } = visit;
    await visit.go('sessions');
    await visit.see('No sessions yet');
    await page.evaluate(
        () =>
            new Promise((done, fail) => {
                window.socket = new WebSocket(
                    `ws://${location.host}/v1/sessions/u-7:helper:t-1/socket?org_id=acme`,
                );
                window.socket.onopen = () =>
                    window.socket.send(
                        JSON.stringify({
                            type: 'user_message',
                            requestId: 'r-1',
                            text: 'Where is my tea?',
                        }),
                    );
                window.socket.onmessage = ({ data }) => {
                    window.owed = JSON.parse(data);
                    if (window.owed.type === 'send_message') done();
                };
                window.socket.onerror = () => fail(new Error('no socket'));
            }),
    );
    await page.getByRole('table', { name: 'Sessions' }).getByRole('link').first().click();
    await visit.see('Where is my tea?');
    const owed = page.getByRole('region', { name: 'Owed' }).getByRole('listitem');
    await visit.see(owed.filter({ hasText: 'You said: Where is my tea?' }));
    await visit.see(owed.getByText(/PENDING|EXECUTING/));
    await visit.shot('flow-session-owed');
    await page.evaluate(() => {
        window.again = new Promise((done) => {
            window.socket.onmessage = done;
        });
    });
    await visit.role('button', 'Deliver now').click();
    await visit.see('1 owed, being sent again now.');
    assert.equal(
        await page.evaluate(
            async () => JSON.parse((await window.again).data).effect_id === window.owed.effect_id,
        ),
        true,
    );
    await page.evaluate(() =>
        window.socket.send(JSON.stringify({ type: 'ack', effect_id: window.owed.effect_id })),
    );
    await visit.see(owed.getByText('COMPLETED'));
    await visit.role('button', 'Deliver now').click();
    await visit.see('Nothing is owed.');
}

// More runs than a page of them, also of one status.
export async function longRuns(visit, { count, completed }) {
    const rows = visit.page.locator('tbody tr');
    const older = visit.role('button', 'Older');
    for (const [hash, all] of [
        ['runs', count],
        ['runs?status=COMPLETED', completed],
    ]) {
        await visit.go(hash);
        for (let shown = 100; shown < all; shown += 100) {
            await visit.until(async () => (await rows.count()) === shown, `${shown} of ${hash}`);
            await older.click();
        }
        await visit.until(async () => (await rows.count()) === all, `all of ${hash}`);
        assert.equal(await older.count(), 0);
        const links = await rows
            .locator('a.id[href^="#/runs/"]')
            .evaluateAll((ids) => ids.map((id) => id.href));
        assert.equal(new Set(links).size, all, 'each once');
    }
    await rows.last().scrollIntoViewIfNeeded();
    await visit.shot('flow-long-runs');

    await visit.go('runs'); // what new ones push off the first page is on the second
    await visit.until(async () => (await rows.count()) === 100, 'a page of runs');
    await older.click();
    await visit.until(async () => (await rows.count()) === 200, 'two pages');
    const idsOf = () =>
        rows.locator('a.id[href^="#/runs/"]').evaluateAll((ids) => ids.map((id) => id.href));
    const before = await idsOf();
    await visit.page.evaluate(async () => {
        const body = JSON.stringify({
            org_id: 'acme',
            run_type: 'late',
            orchestrator_version: '1',
        });
        for (let i = 0; i < 30; i++) {
            const answer = await fetch('/v1/runs', {
                method: 'POST',
                body,
                headers: { 'content-type': 'application/json' },
            });
            if (!answer.ok) throw new Error(await answer.text());
        }
    });
    await visit.until(
        async () => (await rows.filter({ hasText: 'late' }).count()) === 30,
        'the new ones',
    );
    assert.deepEqual((await idsOf()).slice(30), before.slice(0, 170));
    await visit.go('runs?status=RUNNING');
    await visit.until(async () => (await rows.count()) === 100, 'a page of those that run');
    await older.scrollIntoViewIfNeeded();
    await visit.shot('flow-long-runs-older');
    await visit.go('runs?status=FAILED');
    await visit.see('No run has this status');
    assert.equal(await older.count(), 0);
}

// More than one page of everything: a session is shown to its end, and lists go on where a page of them ends.
export async function longSession(visit, { key, count }) {
    const { page } = visit;
    const rows = page.locator('tbody tr');
    for (const [name, all] of [
        ['sessions', 111],
        ['notices', 110],
    ]) {
        await visit.go(name);
        await visit.until(async () => (await rows.count()) === 100, `a page of ${name}`);
        await visit.role('button', 'Older').click();
        await visit.until(async () => (await rows.count()) === all, `all ${name}`);
        assert.equal(await visit.role('button', 'Older').count(), 0);
    }
    await rows.last().locator('summary').click();
    await visit.see(rows.last().getByText('It says what was said.'));
    await rows.last().getByRole('button', { name: 'Mark as read' }).click();
    await visit.until(
        async () => /now|ago/.test(await rows.last().locator('td').last().textContent()),
        'it to be read',
    );
    await visit.shot('flow-long-notices');

    await visit.go(`sessions/${key}?org_id=acme`);
    const said = page.getByRole('region', { name: 'Said' }).getByRole('listitem');
    const owed = page.getByRole('region', { name: 'Owed' }).getByRole('listitem');
    await visit.see(said.getByText(`word ${count - 1}`, { exact: true }));
    await visit.until(
        async () => (await said.count()) === count && (await owed.count()) === count,
        'all of it',
    );
    await visit.ask('acknowledge', { number: count - 2 });
    await visit.see(owed.nth(count - 2).getByText('COMPLETED'));
    await visit.ask('say', { text: 'one more' });
    await visit.see(said.getByText('one more'));
    assert.equal(await said.count(), count + 1);
    await visit.shot('flow-long-session');
}

export async function dark(visit) {
    const theme = () => visit.page.evaluate(() => document.documentElement.dataset.theme);
    await visit.open({ theme: 'dark' });
    await visit.go();
    await visit.see(visit.role('table', /Destinations/));
    assert.equal(await theme(), 'dark', 'as the system says');
    await visit.role('button', 'Light colours').click();
    assert.equal(await theme(), 'light');
    await visit.page.reload();
    await visit.see(visit.role('button', 'Dark colours'));
    assert.equal(await theme(), 'light', 'the choice is kept');
    await visit.see(visit.role('table', /Destinations/)); // the page listens to keys by then
    await visit.page.keyboard.press('Shift+T');
    await visit.see(visit.role('button', 'Light colours'));
    assert.equal(await theme(), 'dark');
}

// A window of 1280 x 800 at 200 %: half the room, twice the pixels.
export async function zoomed(visit, { pages }) {
    await visit.forgiveAbsent();
    await visit.open({ width: 640, height: 400, scale: 2 });
    for (const [name, hash] of Object.entries(pages)) {
        await visit.go(hash);
        await settled(visit);
        await visit.checkPage(`${name} at 200 %`, ['width']);
        await visit.shot(`zoomed-${name}`);
    }
}

export async function narrow(visit, { pages }) {
    await visit.forgiveAbsent();
    await visit.open({ width: 360, height: 740 });
    for (const [name, hash] of Object.entries(pages)) {
        await visit.go(hash);
        await settled(visit);
        await visit.checkPage(`${name} at 360 px`, ['width']);
        await visit.shot(`narrow-${name}`);
    }
    await visit.go();
    await visit.page
        .getByRole('navigation', { name: 'Pages' })
        .getByRole('link', { name: /^Dead letters/ })
        .click();
    await visit.page.getByRole('table', { name: 'Messages' }).getByRole('link').first().click();
    await visit.see(visit.role('heading', 'Attempts'));
}

// No mouse: to the dead letter, its requeue, and back.
export async function keyboard(visit) {
    const { page } = visit;
    const { keyboard: keys } = page;
    await visit.go();
    await visit.see(visit.role('table', /Destinations/));
    await keys.press('?');
    await visit.see(visit.role('dialog', 'Keys'));
    await visit.shot('flow-keyboard-help');
    await keys.press('Escape');
    await visit.until(
        async () => (await page.getByRole('dialog').count()) === 0,
        'the help to close',
    );
    await keys.type('gl');
    await visit.see(visit.role('heading', 'Log'));
    await keys.type('gd');
    await visit.see(visit.role('heading', 'Dead letters'));
    await visit.see(visit.role('table', 'Messages'));
    await keys.press('j');
    await keys.press('j');
    assert.ok(await page.locator('tr:focus').innerText(), 'a row has the focus');
    await keys.press('k');
    await keys.press('j');
    await keys.press('Enter');
    await visit.see(visit.role('heading', 'Message'));
    await tabTo(visit, 'Requeue');
    await keys.press('Enter');
    const dialog = page.getByRole('dialog');
    await visit.see(dialog.getByText('1 message to partner-api will be requeued.'));
    await keys.press('Escape');
    await visit.until(async () => (await dialog.count()) === 0, 'the dialog to close');
    assert.equal(await page.locator(':focus').innerText(), 'Requeue', 'the focus comes back');
    await keys.press('Escape');
    await visit.see(visit.role('heading', 'Dead letters'));
    await keys.press('/');
    await keys.type('order/o-1');
    await keys.press('Enter');
    await visit.see(visit.role('heading', 'Log'));
    assert.match(page.url(), /aggregate=order%2Fo-1/);
}

async function tabTo(visit, name) {
    for (let i = 0; i < 60; i++) {
        await visit.page.keyboard.press('Tab');
        if ((await visit.page.evaluate(() => document.activeElement.textContent)) === name) return;
    }
    assert.fail(`${name} cannot be reached with the tab key`);
}

// A long log: only what is seen is drawn; the tail follows, holds still while one reads, and goes on.
export async function tail(visit, { count }) {
    const { page } = visit;
    const list = page.locator('.list');
    const rows = page.locator('.list .row');
    await visit.go('log');
    await visit.see(rows.filter({ hasText: String(count) }).first());
    assert.ok((await rows.count()) < 80, 'rows that nobody sees are not drawn');
    await visit.ask('append', { type: 'live.first', aggregate: 'visit/v-1' });
    await visit.see(rows.filter({ hasText: 'live.first' }));
    await list.hover();
    await page.mouse.wheel(0, -900);
    await visit.see('holding still');
    const top = () => rows.first().innerText();
    await visit.until(async () => {
        const one = await top();
        await page.waitForTimeout(100);
        return one === (await top());
    }, 'the list to rest');
    const before = await top();
    await visit.ask('append', { type: 'live.second', aggregate: 'visit/v-1' });
    await visit.role('button', '1 new event ↓').waitFor();
    assert.equal(await top(), before, 'the view holds still');
    await visit.role('button', '1 new event ↓').click();
    await visit.see(rows.filter({ hasText: 'live.second' }));
    await visit.see('following');

    await list.hover();
    await visit.until(async () => {
        await page.mouse.wheel(0, -40000);
        return Number(await rows.first().locator('.number').innerText()) < count - 600;
    }, 'older events');
    await visit.shot('flow-tail-older');

    await page.goto('about:blank');
    let release;
    const isDrawn = new Promise((done) => {
        release = done;
    });
    const newer = /\/v1\/events\?.*after=7\b/;
    await page.route(newer, async (route) => {
        await isDrawn;
        await route.continue();
    });
    const asked = page.waitForRequest(newer);
    await visit.go('log?event=7');
    await asked;
    for (let i = 0; i < 2; i++) {
        // the page is drawn again while the rest is on its way
        await page.locator('button.status').click();
        await page.evaluate(
            () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
        );
    }
    release();
    await visit.see(page.locator('.foot').getByText('207 events here'));
    await visit.see(page.locator('.list .row.selected').getByText('7', { exact: true }));
}

// A log of many events and an outbox of many messages: every page, and then what one does there. What
// it cost is said to the test, page by page.
export async function long(visit, { pages, count, dead: deadCount }) {
    const { page } = visit;
    let answers = [];
    page.on('requestfinished', (request) => {
        const { pathname, search } = new URL(request.url());
        if (!pathname.startsWith('/v1/') || request.method() !== 'GET') return;
        answers.push(
            request
                .response()
                .then((answer) => answer.body())
                .then(
                    (body) => [pathname + search, body.length],
                    () => [pathname + search, 0],
                ),
        ); // the page was left
    });
    const seen = async (name) => {
        const asked = await Promise.all(answers);
        answers = [];
        const [rows, nodes] = await page.evaluate(() =>
            ['tbody tr, .list .row, li', '*'].map((what) => document.querySelectorAll(what).length),
        );
        await visit.ask('seen', { name, asked, rows, nodes });
    };
    for (const [name, hash] of Object.entries(pages)) {
        await visit.go(hash);
        await settled(visit);
        await seen(name);
        await visit.shot(`long-${name.replaceAll(' ', '-')}`);
    }

    const rows = page.locator('.list .row');
    const first = async () => Number(await rows.first().locator('.number').innerText());
    await visit.go('log');
    await visit.see(rows.first());
    const end = await first();
    await page.locator('.list').hover();
    await visit.until(async () => {
        await page.mouse.wheel(0, -40000);
        return (await first()) < end - 1000;
    }, 'older events');
    await seen('scrolled back');
    await page.getByLabel('type', { exact: true }).fill('order.refused');
    await page.keyboard.press('Enter');
    await visit.until(async () => {
        const all = await rows.allInnerTexts();
        return all.length > 5 && all.every((one) => one.includes('order.refused'));
    }, 'the refused alone');
    await page.locator('.list').hover();
    const newest = await first();
    await visit.until(async () => {
        await page.mouse.wheel(0, -40000);
        return (await first()) < newest - count / 3;
    }, 'older ones of them');
    await seen('filtered and scrolled');
    await visit.go(`log?event=${count / 2}`);
    await visit.see(
        page.locator('.list .row.selected').getByText(String(count / 2), { exact: true }),
    );
    await seen('in the middle');

    await visit.go('outbox?state=PENDING');
    const table = visit.role('table', 'Messages').locator('tbody tr');
    await visit.until(async () => (await table.count()) === 100, 'a page of messages');
    await visit.role('button', 'Older').click();
    await visit.until(async () => (await table.count()) === 200, 'the next page');
    await seen('older messages');
    await visit.go('dead');
    await visit
        .role('button', new RegExp(`Requeue ${deadCount.toLocaleString('en')} messages of partner`))
        .first()
        .click();
    const dialog = page.getByRole('dialog');
    await visit.see(
        dialog.getByText(
            new RegExp(`${deadCount.toLocaleString('en')} messages to partner will be requeued`),
        ),
    );
    await seen('preview');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
}

export async function empty(visit, { pages }) {
    await visit.forgiveAbsent();
    for (const [name, hash] of Object.entries(pages)) {
        await visit.go(hash);
        await settled(visit);
        await visit.checkPage(`${name}, empty`);
        await visit.shot(`empty-${name}`);
    }
    await visit.go();
    await visit.see('Nothing has been appended yet.');
    await visit.go('log');
    await visit.see('The log is empty');
    await visit.go('dead');
    await visit.see('No dead letters');
}

// The server goes away and comes back: what was seen stays, and is said to be old.
export async function away(visit) {
    visit.forgive(/Failed to load resource|ERR_CONNECTION/);
    await visit.go('destinations');
    await visit.see(visit.role('row', /billing/));
    await visit.ask('stop');
    await visit.see('Not refreshed: The server does not answer.');
    await visit.see('offline');
    await visit.see(visit.role('row', /billing/));
    await visit.shot('flow-away');
    await visit.ask('start');
    await visit.role('button', 'Try again').click();
    await visit.see(visit.page.locator('.status').getByText('live'));
    await visit.until(
        async () => (await visit.page.getByText('Not refreshed').count()) === 0,
        'fresh data',
    );
}

// Every page in both colours: pictures to look at, and what every page owes.
export async function every(visit, { pages }) {
    await visit.forgiveAbsent();
    for (const theme of ['light', 'dark']) {
        await visit.open({ theme, width: 1360, height: 860 });
        for (const [name, hash] of Object.entries(pages)) {
            await visit.go(hash);
            await settled(visit);
            await visit.checkPage(
                `${name}, ${theme}`,
                theme === 'light' ? undefined : ['contrast'],
            );
            await visit.shot(`${name}-${theme}`);
        }
    }
}

async function settled(visit) {
    await visit.page.locator('main h1').first().waitFor({ state: 'attached' });
    await visit.until(
        async () => (await visit.page.locator('.loading').count()) === 0,
        'the page to load',
    );
    await visit.page.waitForTimeout(120); // fonts, charts, a second look at what just came
}

// A rebuild whose worker was lost on the way: how far it is, how fast it was, how long it still takes.
export async function rebuilding(visit, { done, upto }) {
    const count = (n) => n.toLocaleString('en');
    await visit.go('views');
    const view = visit.role('row', /totals/);
    await visit.see(view.getByText('rebuilding'));
    const progress = view.getByText(/version 1 beside it/);
    const said = await progress.innerText();
    assert.match(
        said,
        new RegExp(`: ${count(done)} of ${count(upto)} events, [\\d,]+/s, [\\d.]+ \\w+ left$`),
    );
    assert.ok(
        await progress.evaluate(
            (it) =>
                it.getBoundingClientRect().right <= it.closest('td').getBoundingClientRect().right,
        ),
        'all of it can be read',
    );
    await visit.shot('flow-rebuilding');
}

// A broker that nobody answers for: since when, what it said, when it last took something.
export async function broker(visit) {
    await visit.go('destinations');
    const row = visit.role('row', /stream nats/);
    await visit.see(row.getByText(/^(half )?open$/));
    await visit.see(row.getByText(/^nats localhost:\d+: /));
    const sink = visit.page
        .getByRole('table', { name: 'Sinks' })
        .getByRole('row', { name: /^copy stream/ });
    await visit.see(sink.getByText(/^\d+ events$/));
    await visit.shot('flow-broker-1');
    await row.getByRole('link', { name: 'stream' }).click();
    await visit.see(
        visit.page.getByText(/does not take messages: nats localhost.* since \d\d:\d\d/),
    );
    const facts = Object.fromEntries(
        await visit.page
            .locator('dl.fields > div')
            .evaluateAll((all) =>
                all.map((one) => [
                    one.querySelector('dt').innerText,
                    one.querySelector('dd').innerText,
                ]),
            ),
    );
    assert.match(facts.breaker, /^(half_)?open$/);
    assert.match(facts.since, /\d\d:\d\d/);
    assert.match(facts['last success'], /\d\d:\d\d/);
    assert.match(facts['last error'], /^nats localhost:\d+: /);
    assert.match(facts.pending, /^[12]\d$/); // but for those on their way
    await visit.shot('flow-broker-2');
}
