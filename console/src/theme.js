// Light or dark: what the system says until the person says otherwise, then that.
import { shared } from './shared.js';

const KEPT_AS = 'outlog.theme';
const system = matchMedia('(prefers-color-scheme: dark)');

export const theme = shared(null);

function show() {
    const chosen = localStorage.getItem(KEPT_AS);
    const isDark = chosen ? chosen === 'dark' : system.matches;
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
    theme.set(isDark ? 'dark' : 'light');
}

export function switchTheme() {
    const next = theme.get() === 'dark' ? 'light' : 'dark';
    if ((next === 'dark') === system.matches) localStorage.removeItem(KEPT_AS);
    else localStorage.setItem(KEPT_AS, next);
    show();
}

system.addEventListener('change', show);
show();
