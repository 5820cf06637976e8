// The end of the log, backwards and forwards: a page of a million events opens as fast as one of ten.
import { useEffect, useReducer, useRef } from 'preact/hooks';
import { follow, get } from './api.js';
import { live } from './shared.js';

const PAGE = 200;
const KEPT = 5000; // rows kept while the tail runs
const AHEAD = 2000; // rows taken while nobody looks; then the stream is closed until they do

// The last events below `end` that fit, ascending, and whether the log begins with them.
export async function before(end, params, want, signal) {
    const page = await get('/v1/events', { ...params, before: end, limit: want }, { signal });
    return { events: page.events.reverse(), isStart: !page.next_before, settled: page.settled };
}

// Holds what the list shows. `changed` is called after every change, at most once a frame.
export class Tail {
    constructor(params, changed) {
        Object.assign(this, {
            params,
            events: [],
            isStart: false,
            isLoaded: false,
            state: 'loading',
            error: null,
            missed: 0,
            shift: 0,
            isWatched: true,
            isLive: true,
        });
        this.stop = new AbortController();
        this.changed = () => {
            this.frame ||= requestAnimationFrame(() => {
                this.frame = 0;
                changed();
            });
        };
    }

    // At the end; or, for a link to an event further back, around that one.
    async open(around = 0) {
        const { signal } = this.stop;
        try {
            let page = await before('end', this.params, PAGE, signal);
            const isBack = around > 0 && around <= page.settled - PAGE;
            this.position = isBack ? around : page.settled;
            if (isBack) page = await before(around + 1, this.params, PAGE, signal);
            Object.assign(this, { events: page.events, isStart: page.isStart });
            this.state = isBack ? 'behind' : 'open';
            if (isBack) await this.newer(); // drawn before, a few rows would be the end of the list
            this.isLoaded = true;
            if (!isBack && this.isLive && !this.params.until) this.start();
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
        if (isLive && this.state !== 'behind') this.start();
        else if (!isLive) this.stream?.abort();
    }

    start() {
        this.stream?.abort();
        this.stream = new AbortController();
        const { signal } = this.stream;
        follow(this.params, this.position, {
            signal,
            onState: (state, error) => {
                this.state = state;
                if (error) this.error = error;
                this.changed();
            },
            onEvents: (events) => {
                if (!signal.aborted) this.take(events);
            },
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

    // Whether the person looks at the end of the list.
    watch(isWatched) {
        if (isWatched && this.state === 'behind') this.newer();
        if (isWatched === this.isWatched) return;
        this.isWatched = isWatched;
        this.missed = 0;
        if (isWatched) this.trim();
        this.changed();
    }

    // To the end of the log, whatever lies between.
    toEnd() {
        if (this.state === 'behind') this.open();
        else this.watch(true);
        this.isWatched = true;
        this.missed = 0;
    }

    // Reads on where the stream was left; takes it up again at the end.
    async newer() {
        if (this.isBusy) return;
        this.isBusy = true;
        try {
            const page = await get(
                '/v1/events',
                { ...this.params, after: this.position, limit: PAGE },
                { signal: this.stop.signal },
            );
            this.events = [...this.events, ...page.events];
            this.position = Math.max(
                this.position,
                page.next_after ?? page.events.at(-1)?.event_id ?? 0,
            );
            if (this.position >= page.settled) {
                this.state = 'open';
                if (this.isLive && !this.params.until) this.start();
            }
        } catch (error) {
            if (error.name !== 'AbortError') this.error = error;
        } finally {
            this.isBusy = false;
            this.changed();
        }
    }

    async older() {
        if (this.isStart || this.isBusy || !this.isLoaded) return;
        this.isBusy = true;
        try {
            const end = this.events.length ? this.events[0].event_id : this.position + 1;
            const { events, isStart } = await before(end, this.params, PAGE, this.stop.signal);
            this.events = [...events, ...this.events];
            this.isStart = isStart;
        } catch (error) {
            if (error.name !== 'AbortError') this.error = error;
        } finally {
            this.isBusy = false;
            this.changed();
        }
    }
}

// A tail for as long as the caller is on the screen; its params do not change (give it a key). It rests
// while the tab is hidden or the person stopped it. Null before the first draw.
export function useTail(params, around) {
    const tail = useRef(null);
    const [, redraw] = useReducer((n) => n + 1, 0);
    const isLive = live.use();
    useEffect(() => {
        tail.current = new Tail(params, redraw);
        tail.current.isLive = live.get();
        tail.current.open(around);
        const hide = () => tail.current.setLive(!document.hidden && live.get());
        document.addEventListener('visibilitychange', hide);
        return () => {
            document.removeEventListener('visibilitychange', hide);
            tail.current.close();
        };
    }, []);
    useEffect(() => {
        if (tail.current.isLive !== isLive) tail.current.setLive(isLive);
    }, [isLive]);
    return tail.current;
}
