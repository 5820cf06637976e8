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
