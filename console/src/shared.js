// Values that several parts of the page watch: a value, its setter, and a hook.
import { useEffect, useState } from 'preact/hooks';

export function shared(value) {
    const watchers = new Set();
    const self = {
        get: () => value,
        set(next) {
            if (next === value) return;
            value = next;
            watchers.forEach((watch) => watch(value));
        },
        watch(watcher) {
            watchers.add(watcher);
            return () => watchers.delete(watcher);
        },
        use() {
            const [, redraw] = useState(0);
            useEffect(() => self.watch(() => redraw((n) => n + 1)), []);
            return value;
        },
    };
    return self;
}

// Whether pages refresh by themselves; the person can stop it, a hidden tab does.
export const live = shared(true);

// `null` until /v1/whoami answered; {dev: true}, or {id, scope, org_id}; 'nobody' without a token.
export const person = shared(null);

// The newest /v1/stats any page got: the dead-letter count of title and navigation.
export const dead = shared(0);

export const isReachable = shared(true);

// One clock for every relative time on the page.
export const now = shared(Date.now());
setInterval(() => {
    if (!document.hidden) now.set(Date.now());
}, 1000);
document.addEventListener('visibilitychange', () => now.set(Date.now()));
