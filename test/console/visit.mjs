// One person's visit to the console: a page of its own, what went wrong on it, and what every page owes.
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

const PATIENCE_MS = 45000;
const NAMED_ROLES = new Set([
    'link',
    'button',
    'textbox',
    'searchbox',
    'combobox',
    'checkbox',
    'radio',
    'table',
    'dialog',
    'navigation',
    'image',
    'img',
]);

export class Visit {
    constructor(browser, { base, shots }, ask) {
        Object.assign(this, { browser, base, shots, ask, errors: [], forgiven: [] });
    }

    async open({ width = 1280, height = 800, theme = 'light', scale = 1 } = {}) {
        await this.context?.close();
        this.context = await this.browser.newContext({
            viewport: { width, height },
            colorScheme: theme,
            deviceScaleFactor: scale,
        });
        this.page = await this.context.newPage();
        this.page.setDefaultTimeout(PATIENCE_MS);
        this.page.on('pageerror', (error) => this.errors.push(`page error: ${error.stack}`));
        this.page.on('console', (message) => {
            if (message.type() !== 'error' && message.type() !== 'warning') return;
            this.errors.push(`console: ${message.text()} (${message.location().url})`);
        });
        this.page.on('request', (request) => {
            if (!request.url().startsWith(`${this.base}/`) && !request.url().startsWith('data:')) {
                this.errors.push(`asked somebody else: ${request.url()}`);
            }
            assert.ok(
                !/token|bearer/i.test(new URL(request.url()).search),
                'a token in an address',
            );
        });
    }

    async close() {
        await this.context?.close();
    }

    // An answer the flow provokes on purpose is reported by the browser as an error; not by us.
    forgive(pattern) {
        this.forgiven.push(pattern);
    }

    // A page whose call this server does not have yet says so; the browser calls that an error.
    async forgiveAbsent() {
        const { paths } = await (await this.get('/openapi.json')).json();
        for (const path of ['/v1/projections', '/v1/runs', '/v1/sessions']) {
            if (!paths[path]) this.forgive(new RegExp(`status of 404 .*${path}`));
        }
    }

    checkErrors() {
        const real = this.errors.filter(
            (one) => !this.forgiven.some((pattern) => pattern.test(one)),
        );
        assert.deepEqual(real, [], 'errors in the browser');
    }

    async go(hash = '') {
        await this.page.goto(`${this.base}/#/${hash}`);
    }

    async shot(name) {
        mkdirSync(this.shots, { recursive: true });
        await this.page.screenshot({ path: join(this.shots, `${name}.png`) });
    }

    // Until it is there. `what` is a locator or a text.
    async see(what) {
        await (typeof what === 'string' ? this.page.getByText(what).first() : what).waitFor();
    }

    async until(condition, what) {
        const deadline = Date.now() + PATIENCE_MS;
        for (;;) {
            if (await condition()) return;
            assert.ok(Date.now() < deadline, `waited for ${what}`);
            await new Promise((done) => setTimeout(done, 50));
        }
    }

    role(role, name, options = {}) {
        return this.page.getByRole(role, { name, ...options });
    }

    get(path, headers = {}) {
        return fetch(this.base + path, { headers });
    }

    // What every page owes: no sideways scrolling, a name for whatever can be used, readable text.
    async checkPage(label, what = ['width', 'names', 'contrast']) {
        if (what.includes('width')) {
            const over = await this.page.evaluate(
                () => document.documentElement.scrollWidth - innerWidth,
            );
            assert.ok(over <= 0, `${label}: ${over} px wider than the screen`);
        }
        if (what.includes('names'))
            assert.deepEqual(await this.nameless(), [], `${label}: without an accessible name`);
        if (what.includes('contrast'))
            assert.deepEqual(
                await this.page.evaluate(faintTexts),
                [],
                `${label}: contrast below AA`,
            );
    }

    async nameless() {
        const cdp = await this.context.newCDPSession(this.page);
        const { nodes } = await cdp.send('Accessibility.getFullAXTree');
        await cdp.detach();
        return nodes
            .filter(
                (node) =>
                    !node.ignored && NAMED_ROLES.has(node.role?.value) && !node.name?.value?.trim(),
            )
            .map((node) => `${node.role.value} ${JSON.stringify(node.properties?.slice(0, 2))}`);
    }
}

// Runs in the page: texts whose contrast against what lies behind them is below WCAG AA.
function faintTexts() {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgba = (css) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = css;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].map((part, i) =>
            i === 3 ? part / 255 : part,
        );
    };
    const over = (top, bottom) =>
        top
            .slice(0, 3)
            .map((part, i) => part * top[3] + bottom[i] * (1 - top[3]))
            .concat(1);
    const behind = (element) => {
        const layers = [];
        for (let one = element; one; one = one.parentElement)
            layers.unshift(rgba(getComputedStyle(one).backgroundColor));
        return layers.reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
    };
    const light = (colour) => {
        const [r, g, b] = colour
            .map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (
            !texts.currentNode.data.trim() ||
            !element.checkVisibility({ opacityProperty: true }) ||
            element.closest('svg, :disabled, .loading')
        )
            continue;
        const style = getComputedStyle(element);
        const below = behind(element);
        const [a, b] = [light(over(rgba(style.color), below)), light(below)].sort((x, y) => y - x);
        const isLarge =
            parseFloat(style.fontSize) >= 24 ||
            (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < (isLarge ? 3 : 4.5))
            found.push(
                `${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${texts.currentNode.data.trim().slice(0, 40)}`,
            );
    }
    return found;
}
