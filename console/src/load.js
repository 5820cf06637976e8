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

// A list that begins with the newest: {rows, next, older, …}. Its first page stays fresh; `older` puts the next one
// behind it, while there is a `next`.
export function useNewest(path, params, name, idOf, { every } = {}) {
    const key = path + search(params);
    const first = useLoad(key, (signal) => get(path, { ...params, limit: PAGE }, { signal }), { every });
    const [more, setMore] = useState({ key, rows: [], next: undefined });
    const rest = more.key === key ? more : { rows: [], next: undefined };
    const newest = first.data?.[name] || [];
    const known = new Set(newest.map(idOf));
    const next = rest.next === undefined ? first.data?.next_after : rest.next;

    async function older() {
        const page = await get(path, { ...params, limit: PAGE, after: next });
        setMore({ key, rows: [...rest.rows, ...page[name]], next: page.next_after || null });
    }
    return { ...first, rows: [...newest, ...rest.rows.filter((one) => !known.has(idOf(one)))], next, older, more };
}

const MOST = 5000;

// A list that begins with the oldest, to its end, or so many of it. It is read page by page, and after that from the
// first one that may still change.
export function useWhole(path, params, name, { every, isSettled, placeOf }) {
    const key = path + search(params);
    const known = useRef({ key: null, rows: [] });
    return useLoad(key, async (signal) => {
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
    }, { every });
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
        let isBusy = false;
        let isRefused = false; // forbidden or not there: asking again by itself would be noise

        async function turn() {
            clearTimeout(timer);
            if (isBusy) return;
            isBusy = true;
            try {
                const data = await loader.current(stop.signal);
                isRefused = false;
                if (!stop.signal.aborted) setState({ key, data });
            } catch (error) {
                isRefused = error.status === 403 || error.status === 404;
                if (!stop.signal.aborted) {
                    setState((old) => ({ key, error,
                        data: old.key === key ? old.data : undefined }));
                }
            }
            isBusy = false;
            if (every && isLive && !isRefused && !document.hidden && !stop.signal.aborted) {
                timer = setTimeout(turn, every);
            }
        }
        const shown = () => { if (!document.hidden && every && isLive) turn(); };

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
    return { data: isCurrent ? state.data : undefined, error: isCurrent ? state.error : undefined,
        refresh };
}
