// The keyboard: / searches, g and a letter goes somewhere, j and k move over rows, enter opens, esc
// goes back, ? explains. Keys typed into a field stay there.
import { useEffect } from 'preact/hooks';
import { go, here, refine, to } from './router.js';

export const PLACES = {
    o: ['', 'Overview'],
    l: ['log', 'Log'],
    t: ['traces', 'Traces'],
    b: ['outbox', 'Outbox'],
    d: ['dead', 'Dead letters'],
    e: ['destinations', 'Destinations'],
    c: ['consumers', 'Consumers'],
    v: ['views', 'Views'],
    r: ['runs', 'Runs'],
    s: ['sessions', 'Sessions'],
    n: ['notices', 'Notices'],
    k: ['tokens', 'Tokens'],
};
const CHORD_MS = 1200;

export function useKeys({ onHelp, onTheme }) {
    useEffect(() => {
        let chordAt = -Infinity; // when g was pressed
        function press(event) {
            if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
            if (document.querySelector('dialog[open]')) return;
            if (event.target.closest('input, textarea, select')) {
                if (event.key === 'Escape') event.target.blur();
                return;
            }
            if (event.timeStamp - chordAt < CHORD_MS && PLACES[event.key]) {
                chordAt = -Infinity;
                event.preventDefault();
                go(to(...PLACES[event.key][0].split('/')));
                return;
            }
            chordAt = -Infinity;
            if (
                act(event, {
                    onHelp,
                    onTheme,
                    startChord: () => {
                        chordAt = event.timeStamp;
                    },
                })
            ) {
                event.preventDefault();
            }
        }
        addEventListener('keydown', press);
        return () => removeEventListener('keydown', press);
    }, [onHelp, onTheme]);
}

function act(event, { onHelp, onTheme, startChord }) {
    switch (event.key) {
        case '/':
            document.querySelector('#search').focus();
            return true;
        case 'g':
            startChord();
            return true;
        case 'j':
            return moveRow(1);
        case 'k':
            return moveRow(-1);
        case 'Enter':
            return openRow(event.target);
        case 'Escape':
            return back();
        case '?':
            onHelp();
            return true;
        case 'T':
            onTheme();
            return true;
        default:
            return false;
    }
}

// Close what is open beside the list; else one page back, but never out of the console.
let steps = 0;
addEventListener('hashchange', (event) => {
    if (event.isTrusted) steps++;
});

function back() {
    if (here().query.event) {
        refine({ event: '' });
    } else if (steps > 0) {
        steps -= 2; // going back is a change of the hash too
        history.back();
    } else {
        go(to(''));
    }
    return true;
}

function moveRow(step) {
    const rows = [...document.querySelectorAll('main [data-row]')];
    if (!rows.length) return false;
    const at = rows.indexOf(document.activeElement?.closest('[data-row]'));
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step;
    rows[Math.max(0, Math.min(rows.length - 1, next))].focus();
    return true;
}

function openRow(target) {
    if (target.closest('a, button, summary')) return false;
    const row = target.closest('[data-row]');
    if (!row?.dataset.href) return false;
    go(row.dataset.href);
    return true;
}
