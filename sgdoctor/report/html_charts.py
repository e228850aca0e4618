"""Measures over time as small charts: inline SVG that takes the page's colours and runs nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from sgdoctor.facts import Series
from sgdoctor.report.layout import printable

# In units that are about a pixel on a phone.
WIDTH, HEIGHT = 340, 160
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 20, 36
_INTERVALS = 4
# Where points are further apart than so many times the usual, nothing is known of what is between them.
_GAP = 3.0
_MINUTES_FROM = 300.0  # seconds
_LEAST = 1e-9  # below it, nothing is to be seen on an axis

STYLE = """
:root { --line1: #14699a; --line2: #a8480a; }
@media (prefers-color-scheme: dark) { :root { --line1: #6fc1ea; --line2: #f0b357; } }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1rem; }
figure { margin: 0; }
figcaption { font-size: 0.95rem; }
.key { margin-left: 0.8rem; color: var(--dim); white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: 1.4rem; margin-right: 0.3rem; }
.key::before { vertical-align: middle; }
.key1::before { border-top: 2px solid var(--line1); }
.key2::before { border-top: 2px dashed var(--line2); }
svg { display: block; width: 100%; height: auto; color: var(--dim); }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
svg .line1 { stroke: var(--line1); }
svg .line2 { stroke: var(--line2); stroke-dasharray: 5 4; }
@media (max-width: 36rem) { .numbers td + td { display: inline-block; margin-right: 1rem; } }
""".strip()


class Chart(NamedTuple):
    """What a chart shows: its title, the unit of its axis, and the name of each measure in it."""

    title: str
    unit: str
    measures: dict[str, str]  # its name in words, where the title does not say it


CHARTS = (
    Chart("Generated tokens", "tokens/s", {"decode_throughput": ""}),
    Chart("Computed prompt tokens", "tokens/s", {"prefill_throughput": ""}),
    Chart("Requests", "requests", {"running_requests": "running", "queued_requests": "waiting"}),
    Chart("KV cache in use", "%", {"token_usage": ""}),
    Chart("Prompt tokens from the prefix cache", "%", {"cache_hit_rate": ""}),
    Chart("Retracted requests", "a minute", {"retractions_per_minute": ""}),
    Chart("Tokens a speculative step", "tokens", {"accept_length": ""}),
    Chart("Time to the first token", "s", {"first_token_seconds": ""}),
    Chart("Time between tokens", "ms", {"between_tokens_seconds": ""}),
)
_FACTORS = {"%": 100.0, "ms": 1000.0}


class Drawn(NamedTuple):
    """A measure as it is drawn: its name in words, its unit and its points in that unit."""

    name: str
    unit: str
    points: list[tuple[float, float]]

    @property
    def values(self) -> list[float]:
        """The values, without their times."""
        return [value for _, value in self.points]


def drawn(series: Sequence[Series]) -> list[tuple[Chart, list[Drawn]]]:
    """Return what there is to draw, a chart each."""
    by_name = {each.name: each for each in series}
    charts = []
    for chart in CHARTS:
        measures = [
            Drawn(words, chart.unit, points)
            for name, words in chart.measures.items()
            if name in by_name and (points := _points(by_name[name], chart.unit))
        ]
        if measures:
            charts.append((chart, measures))
    return charts


def _points(series: Series, unit: str) -> list[tuple[float, float]]:
    """Return what can be drawn of a measure: a snapshot may hold one without points, or with any number."""
    factor = _FACTORS.get(unit, 1.0)
    points = [(at, value * factor) for at, value in series.points]
    return [(at, value) for at, value in points if math.isfinite(at) and math.isfinite(value)]


def figures(series: Sequence[Series]) -> str:
    """Return the charts of ``series`` as HTML; what was 0 all the time has none."""
    charts = [
        _figure(chart, measures) for chart, measures in drawn(series) if any(any(m.values) for m in measures)
    ]
    return "\n".join(['<div class="charts">', *charts, "</div>"]) if charts else ""


def rows(series: Sequence[Series]) -> list[tuple[str, ...]]:
    """Return the numbers of the charts, a row a measure: name and unit, first, least, most and last value."""
    table = []
    for chart, measures in drawn(series):
        for each in measures:
            values = each.values
            name = f"{chart.title}, {each.name}" if each.name else f"{chart.title}, {chart.unit}"
            numbers = (values[0], min(values), max(values), values[-1])
            table.append((name, *(number(value) for value in numbers)))
    return table


def number(value: float) -> str:
    """Return a number as people write it: three digits count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1g}"


def _figure(chart: Chart, measures: Sequence[Drawn]) -> str:
    keys = [
        f'<span class="key key{place}">{_text(each.name)}</span>'
        for place, each in enumerate(measures, 1)
        if each.name
    ]
    told = "; ".join(
        f"{each.name} {number(min(each.values))} to {number(max(each.values))} {chart.unit}".strip()
        for each in measures
    )
    label = _text(f"{chart.title} over time: {told}")
    drawing = "\n".join(_drawing(chart, measures))
    return (
        f"<figure>\n<figcaption>{_text(chart.title)}{''.join(keys)}</figcaption>\n"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">\n'
        f"<title>{label}</title>\n{drawing}\n</svg>\n</figure>"
    )


def _drawing(chart: Chart, measures: Sequence[Drawn]) -> list[str]:
    seconds = max(at for each in measures for at, _ in each.points)
    most = 100.0 if chart.unit == "%" else max(value for each in measures for value in each.values)
    unit, length = ("minutes", 60.0) if seconds >= _MINUTES_FROM else ("seconds", 1.0)
    end = seconds / length
    across = [tick for tick in ticks(end) if tick <= end]
    ups = ticks(most)
    top = ups[-1]
    parts = []
    for tick in ups:
        y = _y(tick, top)
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{_short(tick)}</text>')
    for tick in across:
        x = _x(tick, end)
        parts.append(f'<path class="grid" d="M{x} {HEIGHT - BOTTOM}v4"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(tick)}</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{TOP - 9}" text-anchor="start">{_text(chart.unit)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{unit}</text>')
    for place, each in enumerate(measures, 1):
        points = [(_x(at / length, end), _y(value, top)) for at, value in each.points]
        parts.append(f'<path class="line line{place}" d="{_path(points)}"/>')
    return parts


def ticks(most: float) -> list[float]:
    """Return round numbers from 0 on that divide an axis; the last one is the first not below ``most``."""
    if most < _LEAST:
        return [0.0, 1.0]
    rough = most / _INTERVALS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return [float(f"{step * count:.6g}") for count in range(math.ceil(most / step - 1e-9) + 1)]


def _short(tick: float) -> str:
    """Return a tick's number in few characters."""
    if tick >= 1e6:
        return f"{tick / 1e6:g}M"
    return f"{tick / 1e3:g}k" if tick >= 1e4 else f"{tick:g}"


def _x(value: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * value / end, 1) if end > 0 else LEFT


def _y(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(value / top, 1.0), 1)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a line through the points, interrupted where some are missing; one alone is a dot."""
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    widest = _GAP * median(steps) if steps else 0.0
    parts = []
    last: float | None = None
    for x, y in points:
        joined = last is not None and x - last <= widest
        parts.append(f"L{x} {y}" if joined else f"M{x} {y}h0")
        last = x
    return "".join(parts)


def _text(text: str) -> str:
    return escape(printable(text))
