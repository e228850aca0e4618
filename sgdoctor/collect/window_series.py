"""From what a server said over a while to measures over time, few enough points each to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from sgdoctor.collect import log_follow
from sgdoctor.collect.log_follow import Batches
from sgdoctor.collect.window import Histogram, Page, Window
from sgdoctor.collect.window_facts import mean
from sgdoctor.facts import Series

MOST_POINTS = 120
_MINUTE = 60.0

Points = list[tuple[float, float]]
Item = TypeVar("Item")


def _rate(counter: str, before: Page, after: Page, per: float = 1.0) -> float | None:
    counted, seconds = after.counted(counter, before), after.at - before.at
    return counted * per / seconds if counted is not None and seconds > 0 else None


def _cached(before: Page, after: Page) -> float | None:
    prompts, cached = after.counted("prompt_tokens", before), after.counted("cached_tokens", before)
    return min(cached / prompts, 1.0) if prompts and cached is not None else None


def _latency(seen: Histogram) -> float | None:
    return seen.total / seen.count if seen.count > 0 else None


# What a page says of its moment: the measure, its unit, how it is read off the page.
_GAUGES: tuple[tuple[str, str, Callable[[Page], float | None]], ...] = (
    ("running_requests", "requests", lambda page: page.running),
    ("queued_requests", "requests", lambda page: page.queued),
    ("token_usage", "share", lambda page: page.token_usage),
    ("accept_length", "tokens", lambda page: page.accept_length),
)
# What two pages say of the time between them.
_BETWEEN: tuple[tuple[str, str, Callable[[Page, Page], float | None]], ...] = (
    ("decode_throughput", "tokens/s", lambda one, two: _rate("decoded_tokens", one, two)),
    ("prefill_throughput", "tokens/s", lambda one, two: _rate("prefilled_tokens", one, two)),
    ("retractions_per_minute", "requests/min", lambda one, two: _rate("retracted", one, two, _MINUTE)),
    ("cache_hit_rate", "share", _cached),
    ("first_token_seconds", "s", lambda one, two: _latency(two.first_token.since(one.first_token))),
    ("between_tokens_seconds", "s", lambda one, two: _latency(two.between_tokens.since(one.between_tokens))),
)
# What the decode lines of a log say, and how the DP workers are taken together.
_LINES: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
    ("running_requests", "requests", sum),
    ("queued_requests", "requests", sum),
    ("token_usage", "share", max),
    ("accept_length", "tokens", mean),
    ("decode_throughput", "tokens/s", sum),
)


def of(window: Window) -> list[Series]:
    """Return the measures of what was watched that have two points or more, `MOST_POINTS` at most each.

    They come from the metrics pages; what those do not tell comes from the decode lines of the logs.
    """
    pages = [] if window.several else window.pages
    found = [Series(name, unit, window.place, points) for name, unit, points in _of_pages(pages)]
    told = {series.name for series in found if len(series.points) > 1}
    place = ", ".join(log.name for log in window.logs)
    workers = [worker for worker in log_follow.workers(window.logs) if worker.decode]
    found += [
        Series(name, unit, place, _thinned(_points(name, workers, together)))
        for name, unit, together in _LINES
        if name not in told
    ]
    return [series for series in found if len(series.points) > 1]


def _of_pages(pages: Sequence[Page]) -> Iterator[tuple[str, str, Points]]:
    for name, unit, gauge in _GAUGES:
        told = [(page.at, value) for page in pages if (value := gauge(page)) is not None]
        yield name, unit, _thinned(told)
    bounds = _bounds(pages)
    for name, unit, between in _BETWEEN:
        told = [
            (after.at, value)
            for before, after in pairwise(bounds)
            if (value := between(before, after)) is not None
        ]
        yield name, unit, [_rounded(*point) for point in told]


def _bounds(pages: Sequence[Page]) -> list[Page]:
    """Return the pages between which is counted."""
    bounds = [run[0] for run in _runs(pages, MOST_POINTS)]
    if bounds and bounds[-1] is not pages[-1]:
        bounds.append(pages[-1])
    if len(bounds) > 2 and bounds[-1].at - bounds[-2].at < (bounds[-2].at - bounds[-3].at) / 2:
        # In a short rest before the end, little that happens looks like a peak.
        del bounds[-2]
    return bounds


def _points(measure: str, workers: Sequence[Batches], together: Callable[[list[float]], float]) -> Points:
    """Return a measure at each reading of the logs at which every worker had written of it."""
    each = [worker.decode.get(measure, {}) for worker in workers]
    times = sorted(set.intersection(*(set(told) for told in each))) if each else []
    return [(at, together([told[at].mean for told in each])) for at in times]


def _thinned(points: Points) -> Points:
    """Return means of neighbouring points where there are too many."""
    return [
        _rounded(mean([at for at, _ in run]), mean([value for _, value in run]))
        for run in _runs(points, MOST_POINTS)
    ]


def _runs(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """Return ``items`` in at most so many runs of neighbours, all but the last equally long."""
    length = max(1, -(-len(items) // most))
    return [items[start : start + length] for start in range(0, len(items), length)]


def _rounded(at: float, value: float) -> tuple[float, float]:
    return round(at, 1), round(value, 4)
