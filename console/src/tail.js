// The end of the log, backwards and forwards. The server reads forwards only, from any position, and
// a position costs nothing: so the end is found by stepping back over wider and wider stretches, and a
// page of a million events opens as fast as one of ten.
import { follow, get } from './api.js';

const PAGE = 200;
const MOST = 10000;   // the server's cap for one page
const KEPT = 5000;    // rows kept while the tail runs
const AHEAD = 2000;   // rows taken while nobody looks; then the stream is closed until they do

// The last `want` events below `end` that fit, ascending, and whether the log begins with them.
export async function before(end, params, want, signal) {
    let found = [];
    let upper = end;
    let width = want;
    while (upper > 1 && found.length < want) {
        const after = Math.max(0, upper - 1 - width);
        const { events } = await get('/v1/events', { ...params, after, limit: MOST }, { signal });
        const fresh = events.filter((event) => event.event_id < upper);
        if (events.length >= MOST && events.at(-1).event_id < upper - 1) {
            width = Math.ceil(width / 4); // more than a page: come closer
            continue;
        }
        found = [...fresh, ...found];
        upper = after + 1;
        width *= 4;
    }
    return { events: found, isStart: upper <= 1 };
}

// Holds what the list shows. `changed` is called after every change, at most once a frame.
export class Tail {
    constructor(params, changed) {
        Object.assign(this, { params, events: [], isStart: false, isLoaded: false, state: 'loading',
            error: null, missed: 0, shift: 0, isWatched: true, isLive: true });
        this.stop = new AbortController();
        this.changed = () => {
            this.frame ||= requestAnimationFrame(() => { this.frame = 0; changed(); });
        };
    }

    async open() {
        try {
            const { settled } = await get('/v1/events', { limit: 1, after: 0, ...this.params }, { signal: this.stop.signal });
            this.position = settled;
            Object.assign(this, await before(settled + 1, this.params, PAGE, this.stop.signal));
            this.isLoaded = true;
            this.state = 'open';
            if (this.isLive && !this.params.until) this.start();
        } catch (error) {
            if (error.name === 'AbortError') return;
            this.error = error;
        }
        this.changed();
    }

    close() {
        this.stop.abort();
        this.stream?.abort();
        cancelAnimationFrame(this.frame);
    }

    setLive(isLive) {
        this.isLive = isLive;
        if (!this.isLoaded || this.params.until) return;
        if (isLive) this.start();
        else this.stream?.abort();
    }

    start() {
        this.stream?.abort();
        this.stream = new AbortController();
        const { signal } = this.stream;
        follow(this.params, this.position, { signal,
            onState: (state, error) => { this.state = state; if (state === 'refused') this.error = error; this.changed(); },
            onEvents: (events) => { if (!signal.aborted) this.take(events); },
        });
    }

    take(events) {
        const fresh = events.filter((event) => event.event_id > this.position);
        if (!fresh.length) return;
        this.position = fresh.at(-1).event_id;
        this.events = [...this.events, ...fresh];
        if (this.isWatched) this.trim();
        else if ((this.missed += fresh.length) > AHEAD) {
            this.stream.abort();
            this.state = 'behind';
        }
        this.changed();
    }

    trim() {
        if (this.events.length <= KEPT) return;
        this.events = this.events.slice(-KEPT);
        this.isStart = false;
    }

    // Whether the person looks at the end. Coming back to it takes up the stream where it was left,
    // or begins anew at the end when too much went by.
    async watch(isWatched) {
        if (isWatched === this.isWatched) return;
        this.isWatched = isWatched;
        this.missed = 0;
        if (isWatched && this.state === 'behind') {
            this.isLoaded = false;
            await this.open();
        } else if (isWatched) {
            this.trim();
        }
        this.changed();
    }

    // How many rows came in above; 0 at the start of the log.
    async older() {
        if (this.isStart || this.isBusy || !this.isLoaded) return 0;
        this.isBusy = true;
        try {
            const end = this.events.length ? this.events[0].event_id : this.position + 1;
            const { events, isStart } = await before(end, this.params, PAGE, this.stop.signal);
            this.events = [...events, ...this.events];
            this.isStart = isStart;
            this.changed();
            return events.length;
        } catch (error) {
            if (error.name !== 'AbortError') { this.error = error; this.changed(); }
            return 0;
        } finally {
            this.isBusy = false;
        }
    }
}
