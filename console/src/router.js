// Where the person is: the hash, as a path and its filters. All that a colleague needs to see the
// same view stands in it, and nothing secret does.
import { useEffect, useState } from 'preact/hooks';

export function here(hash = location.hash) {
    const text = hash.replace(/^#/, '');
    const mark = text.indexOf('?');
    const path = mark < 0 ? text : text.slice(0, mark);
    return {
        parts: path.split('/').filter(Boolean).map(decode),
        query: mark < 0 ? {} : Object.fromEntries(new URLSearchParams(text.slice(mark + 1))),
    };
}

function decode(part) {
    try {
        return decodeURIComponent(part);
    } catch {
        return part; // somebody typed a lone %
    }
}

// The address of a page: to('events', 12), to('log', {event_type: 'order.paid'}). The org a person
// looks at comes along.
export function to(...parts) {
    const query = typeof parts.at(-1) === 'object' ? parts.pop() : {};
    const all = { org_id: here().query.org_id, ...query };
    const search = new URLSearchParams(
        Object.entries(all).filter(([, value]) => value != null && value !== ''),
    );
    const path = parts.map((part) => encodeURIComponent(part)).join('/');
    return `#/${path}${search.size ? `?${search}` : ''}`;
}

export function go(address) {
    location.hash = address;
}

// Change filters of this page; a key without value leaves. Typing in a filter makes no history.
export function refine(changes, { replace = true } = {}) {
    const { parts, query } = here();
    const address = to(...parts, { ...query, ...changes });
    if (replace) {
        history.replaceState(null, '', address);
        dispatchEvent(new HashChangeEvent('hashchange'));
    } else {
        go(address);
    }
}

export function useRoute() {
    const [route, setRoute] = useState(here);
    useEffect(() => {
        const change = () =>
            setRoute((old) => (JSON.stringify(old) === JSON.stringify(here()) ? old : here()));
        addEventListener('hashchange', change);
        change(); // it may have changed before we listened
        return () => removeEventListener('hashchange', change);
    }, []);
    return route;
}
