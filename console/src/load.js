// What a page shows, loaded and kept fresh: nothing while the tab is hidden, and what is on the
// screen stays there while newer data is on its way.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { get, search } from './api.js';
import { live } from './shared.js';

// {data, error, refresh}. `path` null loads nothing. `every` ms, while live and visible.
export function useGet(path, params, { every } = {}) {
    const address = path === null ? null : path + search(params);
    return useLoad(address, (signal) => get(address, undefined, { signal }), { every });
}

const PAGE = 100;

// A list that begins with the newest: {rows, next, older, …}. `older` shows a page more, while there is a `next`. Every
// look reads all pages that are shown: what moves from one to the next is not lost between them.
export function useNewest(path, params, name, idOf, { every } = {}) {
    const key = path + search(params);
    const shown = useRef({ key, pages: 1 });
    if (shown.current.key !== key) shown.current = { key, pages: 1 };
    const list = useLoad(
        key,
        async (signal) => {
            const rows = new Map();
            let next;
            for (let i = 0; i < shown.current.pages && next !== null; i++) {
                const page = await get(path, { ...params, limit: PAGE, after: next }, { signal });
                for (const one of page[name]) rows.set(idOf(one), one);
                next = page.next_after || null;
            }
            return { rows: [...rows.values()], next };
        },
        { every },
    );

    function older() {
        shown.current.pages++;
        return list.refresh();
    }
    return { ...list, rows: list.data?.rows || [], next: list.data?.next, older };
}

const MOST = 5000;

// A list that begins with the oldest, to its end, or so many of it. It is read page by page, and after that from the
// first one that may still change.
export function useWhole(path, params, name, { every, isSettled, placeOf }) {
    const key = path + search(params);
    const known = useRef({ key: null, rows: [] });
    return useLoad(
        key,
        async (signal) => {
            const before = known.current.key === key ? known.current.rows : [];
            const open = before.findIndex((one) => !isSettled(one));
            const rows = open < 0 ? [...before] : before.slice(0, open);
            let after = rows.length ? placeOf(rows.at(-1)) : undefined;
            while (rows.length < MOST) {
                const page = await get(path, { ...params, limit: 1000, after }, { signal });
                rows.push(...page[name]);
                if (!page[name].length || page.next_after === null) break;
                after = page.next_after;
            }
            known.current = { key, rows };
            return { rows, isCut: rows.length >= MOST };
        },
        { every },
    );
}

export function useLoad(key, load, { every } = {}) {
    const [state, setState] = useState({ key: null });
    const isLive = live.use();
    const again = useRef(() => {});
    const loader = useRef(load);
    loader.current = load;

    useEffect(() => {
        if (key === null) return undefined;
        const stop = new AbortController();
        let timer = 0;
        let isRefused = false; // forbidden or not there: asking again by itself would be noise
        let last = Promise.resolve();

        async function look() {
            clearTimeout(timer);
            if (stop.signal.aborted) return;
            try {
                const data = await loader.current(stop.signal);
                isRefused = false;
                if (!stop.signal.aborted) setState({ key, data });
            } catch (error) {
                isRefused = error.status === 403 || error.status === 404;
                if (!stop.signal.aborted) {
                    setState((old) => ({
                        key,
                        error,
                        data: old.key === key ? old.data : undefined,
                    }));
                }
            }
            if (every && isLive && !isRefused && !document.hidden && !stop.signal.aborted) {
                timer = setTimeout(turn, every);
            }
        }
        const turn = () => (last = last.then(look)); // one at a time
        const shown = () => {
            if (!document.hidden && every && isLive) turn();
        };

        again.current = turn;
        turn();
        document.addEventListener('visibilitychange', shown);
        return () => {
            stop.abort();
            clearTimeout(timer);
            document.removeEventListener('visibilitychange', shown);
        };
    }, [key, every, isLive]);

    const refresh = useCallback(() => again.current(), []);
    const isCurrent = state.key === key;
    return {
        data: isCurrent ? state.data : undefined,
        error: isCurrent ? state.error : undefined,
        refresh,
    };
}
