// Numbers and times as people read them.

const plain = new Intl.NumberFormat('en');
const one = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export function count(n) {
    return n == null ? '–' : plain.format(n);
}

/* Of destinations and of all: long backlogs are projected, and counted to a bound. */
export function about(n, { is_estimate }) {
    return is_estimate && n > 0 ? `≈ ${count(n)}` : count(n);
}

export function plural(n, noun, nouns = `${noun}s`) {
    return `${count(n)} ${n === 1 ? noun : nouns}`;
}

// 0, 0.4, 12, 1,204, 31k
export function rate(n) {
    if (n == null) return '–';
    if (n >= 10000) return `${one.format(n / 1000)}k`;
    return n < 10 ? one.format(n) : plain.format(Math.round(n));
}

// A span of milliseconds: 0.8 ms, 41 ms, 3 s, 4 min, 2 h, 3 d
export function span(ms) {
    if (ms == null) return '–';
    if (ms < 10) return `${one.format(ms)} ms`;
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 10e3) return `${one.format(ms / 1000)} s`;
    if (ms < 120e3) return `${Math.round(ms / 1000)} s`;
    if (ms < 120 * 60e3) return `${Math.round(ms / 60e3)} min`;
    if (ms < 48 * 3600e3) return `${Math.round(ms / 3600e3)} h`;
    return `${Math.round(ms / 86400e3)} d`;
}

// "3 s ago", "in 4 min"
export function relative(time, now) {
    const ms = now - Date.parse(time);
    if (Math.abs(ms) < 1000) return 'now';
    return ms > 0 ? `${span(whole(ms))} ago` : `in ${span(whole(-ms))}`;
}

const whole = (ms) => (ms < 10e3 ? Math.floor(ms / 1000) * 1000 : ms);

// 12:04 today, 14 Nov 12:04 else; with seconds where they matter.
export function clock(time, { seconds = false, millis = false } = {}) {
    const at = new Date(time);
    const two = (n) => String(n).padStart(2, '0');
    let text = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (seconds || millis) text += `:${two(at.getSeconds())}`;
    if (millis) text += `.${String(at.getMilliseconds()).padStart(3, '0')}`;
    const isToday = at.toDateString() === new Date().toDateString();
    return isToday
        ? text
        : `${at.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })} ${text}`;
}

export function exact(time) {
    return `${time} · ${new Date(time).toLocaleString()} here`;
}

// A UUID by its ends; whatever is short stays as it is.
export function brief(id) {
    const text = String(id);
    return text.length > 20 && /^[0-9a-f-]{36}$/.test(text)
        ? `${text.slice(0, 8)}…${text.slice(-6)}`
        : text;
}

export function firstLine(text, most = 160) {
    const line = String(text ?? '').split('\n')[0];
    return line.length > most ? `${line.slice(0, most)}…` : line;
}
