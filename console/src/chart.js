// Small charts on one time axis: pointing at one reads them all.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { clock, rate } from './format.js';
import { html } from './html.js';
import { theme } from './theme.js';

const HEIGHT = 104;

// `series` is {step_s, from, appended: […], …}; `lines` [[key, label, css colour]…].
export function Charts({ series, lines }) {
    const [at, setAt] = useState(null);
    const times = useMemo(() => {
        const from = typeof series.from === 'string' ? Date.parse(series.from) / 1000 : series.from;
        const length = Math.max(...lines.map(([key]) => series[key]?.length || 0));
        return Array.from({ length }, (_, i) => from + i * series.step_s);
    }, [series]);
    return html`<div class="charts">${lines.map(
        ([key, label, colour]) => html`
        <${Chart} key=${key} label=${label} colour=${colour} times=${times}
            values=${series[key] || []}
            at=${at} onAt=${setAt} />`,
    )}</div>`;
}

function Chart({ label, colour, times, values, at, onAt }) {
    const place = useRef();
    const plot = useRef();
    const look = theme.use();
    const highest = Math.max(0, ...values);
    const index = at ?? values.length - 1;

    useLayoutEffect(() => {
        plot.current = new uPlot(
            options(place.current, colour, onAt),
            [times, values],
            place.current,
        );
        const watch = new ResizeObserver(() =>
            plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }),
        );
        watch.observe(place.current);
        return () => {
            watch.disconnect();
            plot.current.destroy();
        };
    }, [look, colour]);
    useEffect(() => plot.current.setData([times, values]), [times, values]);

    return html`<figure>
        <figcaption><span class="key ${colour}"></span>${label}
            <strong>${rate(values[index])}/s</strong>
            <span class="dim">${
                at === null ? 'now' : clock(times[index] * 1000, { seconds: true })
            }</span></figcaption>
        <div class="plot" ref=${place} role="img"
            aria-label="${label}: now ${rate(values.at(-1))} a second, at most ${rate(highest)} in the last 15 minutes"></div>
    </figure>`;
}

function options(place, colour, onAt) {
    const css = getComputedStyle(document.documentElement);
    const ink = css.getPropertyValue(`--${colour}`).trim();
    const dim = css.getPropertyValue('--dim').trim();
    const line = css.getPropertyValue('--line').trim();
    const font = '11px system-ui, sans-serif';
    const axis = { stroke: dim, font, ticks: { show: false }, grid: { stroke: line, width: 1 } };
    return {
        width: place.clientWidth || 300,
        height: HEIGHT,
        padding: [8, 16, 0, 0],
        legend: { show: false },
        cursor: {
            sync: { key: 'overview' },
            y: false,
            drag: { x: false, y: false },
            points: { size: 6 },
        },
        scales: {
            x: { time: true },
            y: { range: (_, low, high) => [0, Math.max(high * 1.15, 1)] },
        },
        axes: [
            {
                ...axis,
                size: 20,
                gap: 4,
                space: 60,
                grid: { show: false },
                values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).slice(-5)),
            },
            { ...axis, size: 36, gap: 4, space: 32, values: (_, ticks) => ticks.map(rate) },
        ],
        series: [{}, { stroke: ink, width: 1.5, fill: `${ink}22`, points: { size: 4, space: 12 } }],
        hooks: { setCursor: [(self) => onAt(self.cursor.idx ?? null)] },
    };
}
