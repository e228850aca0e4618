"""A running server over a while (--watch): its metrics page again and again, its log from the end on.

What is counted (tokens, retractions, latencies) comes from the difference of two pages, so that it is about
the window and not about all the time since the start.
"""

from __future__ import annotations

import functools
import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sgdoctor.collect import http_get, metrics
from sgdoctor.collect.http_get import Target
from sgdoctor.collect.log_follow import Follower
from sgdoctor.collect.metrics import Sample

PERIOD = 2.0  # seconds between two pages
_NAP = 0.2
REQUEST_SECONDS = 5.0

# Histograms whose differences are kept: all in 0.5.7 to 0.5.23 (the tokenizer's metrics collector).
FIRST_TOKEN, BETWEEN_TOKENS = "time_to_first_token_seconds", "inter_token_latency_seconds"
_READ = (
    "token_usage",
    "num_running_reqs",
    "num_queue_reqs",
    "spec_accept_length",
    "num_retracted_requests_total",
    "num_requests_total",
    "prompt_tokens_total",
    "cached_tokens_total",
    "realtime_tokens_total",
    *(f"{name}_{part}" for name in (FIRST_TOKEN, BETWEEN_TOKENS) for part in ("bucket", "sum")),
)

Tick = Callable[[float], None]


class Histogram(msgspec.Struct, frozen=True):
    """What a histogram has counted: observations up to each bound, all bounds included, and their sum.

    A window holds two of them a page, hence the arrays; the bounds are the same ones each time.
    """

    bounds: tuple[float, ...] = ()
    counts: Sequence[float] = ()
    total: float = 0.0

    @classmethod
    def of(cls, buckets: Mapping[float, float], total: float) -> Histogram:
        """Make one of the number of observations up to each bound, and their sum."""
        bounds = _one(tuple(sorted(buckets)))
        return cls(bounds, array("d", (buckets[bound] for bound in bounds)), total)

    @property
    def count(self) -> float:
        """The number of observations."""
        return self.counts[-1] if self.bounds and math.isinf(self.bounds[-1]) else 0.0

    def since(self, before: Histogram) -> Histogram:
        """Return what was observed after ``before``."""
        earlier = dict(zip(before.bounds, before.counts, strict=True))
        now = zip(self.bounds, self.counts, strict=True)
        return Histogram.of(
            {bound: number - earlier.get(bound, 0.0) for bound, number in now}, self.total - before.total
        )

    def within(self, share: float) -> float | None:
        """Return the lowest bound that ``share`` of the observations keep to; null above the last."""
        enough = share * self.count
        kept = (bound for bound, number in zip(self.bounds, self.counts, strict=True) if number >= enough)
        bound = next(kept, math.inf)
        return bound if math.isfinite(bound) else None


@functools.lru_cache(maxsize=16)
def _one(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """Return the first of equal bounds."""
    return bounds


class Page(msgspec.Struct, frozen=True):
    """What one metrics page says: gauges of that moment, counters since the start (all DP ranks).

    None: it does not say. A counter is on the page from its first event on.
    """

    at: float
    model: str | None = None
    mixed: bool = False
    token_usage: float | None = None
    running: float | None = None
    queued: float | None = None
    accept_length: float | None = None
    retracted: float | None = None
    finished: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    decoded_tokens: float | None = None
    prefilled_tokens: float | None = None
    first_token: Histogram = Histogram()
    between_tokens: Histogram = Histogram()

    def counted(self, name: str, before: Page) -> float | None:
        """Return what the counter ``name`` has counted since ``before``, a page of the same process."""
        after = getattr(self, name)
        return None if after is None else after - (getattr(before, name) or 0.0)

    def of_another(self, before: Page) -> bool:
        """Whether it is another process's page than ``before``: lower counters, or another model."""
        counters = ("retracted", "finished", "prompt_tokens", "decoded_tokens", "prefilled_tokens")
        lower = any((getattr(self, name) or 0.0) < (getattr(before, name) or 0.0) for name in counters)
        return lower or (None not in (self.model, before.model) and self.model != before.model)


class Window(msgspec.Struct):
    """What came of watching a server for ``seconds``.

    ``pages`` are those since the last restart, the oldest first; ``missed`` counts the questions that got no
    page, ``in_a_row`` those at the end; ``why`` the last of these did not, ``last`` the same of the last
    question (empty: it did).
    ``several``: pages of more than one server came in turn, or one page of several. ``cut_short``: it was
    ended before its time. ``logs`` read on meanwhile.
    """

    seconds: float
    place: str = ""
    pages: list[Page] = []
    asked: int = 0
    missed: int = 0
    in_a_row: int = 0
    why: str = ""
    last: str = ""
    last_kind: str = ""
    restarts: int = 0
    several: bool = False
    without_metrics: bool = False
    cut_short: bool = False
    logs: Sequence[Follower] = ()

    def miss(self, why: str, kind: str = "") -> None:
        """Note that a question got no page."""
        self.missed += 1
        self.in_a_row += 1
        self.why = self.last = why
        self.last_kind = kind


def watch(
    where: Target | None,
    seconds: float,
    logs: Sequence[Follower] = (),
    tick: Tick | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Window:
    """Watch a server for ``seconds``, or until ``ended``, and return what it said; never raises.

    ``where`` is asked for its metrics page every `PERIOD` seconds, ``logs`` are read on as they grow;
    ``tick`` gets the share of the time that is over. It takes no longer than ``seconds`` and one request.
    """
    window = Window(seconds, f"{where.url}/metrics" if where is not None else "", logs=logs)
    began = time.monotonic()
    while True:
        due = time.monotonic()
        if where is not None and not window.without_metrics:
            _ask(where, window, began)
        for log in logs:
            log.read_on(time.monotonic() - began)
        over = time.monotonic() - began
        if tick is not None:
            tick(min(over / seconds, 1.0))
        if over >= seconds or (window.without_metrics and not logs):
            return window
        _sleep(min(due + PERIOD, began + seconds), ended)
        if ended():
            window.cut_short = True
            window.seconds = time.monotonic() - began
            return window


def _sleep(until: float, ended: Callable[[], bool]) -> None:
    while (left := until - time.monotonic()) > 0 and not ended():
        time.sleep(min(left, _NAP))


def _ask(where: Target, window: Window, began: float) -> None:
    answer = http_get.get(where, "/metrics", REQUEST_SECONDS)
    without_gap = not window.last
    window.asked += 1
    window.last, window.last_kind = "", ""
    text = answer.body.decode(errors="replace") if answer.ok else ""
    if not metrics.is_sglang(text):
        # Not switched on: it will not be there later either.
        window.without_metrics = answer.status == 404 and not window.pages and not window.restarts
        window.miss(answer.said if not answer.ok else "an answer without SGLang's metrics", answer.kind)
        return
    page = read_page(text, time.monotonic() - began)
    if window.pages and page.running is None and window.pages[-1].running is not None:
        window.miss("a page without the scheduler's numbers")  # a server before its first batch, too
        return
    window.in_a_row = 0
    window.several |= page.mixed
    if window.pages and page.of_another(window.pages[-1]):
        # A server that is started again answers nothing for longer than a period.
        window.several |= without_gap
        window.restarts += not without_gap
        window.pages.clear()
    window.pages.append(page)


def read_page(text: str, at: float) -> Page:
    """Return what a metrics page says, ``at`` seconds after the beginning."""
    samples = metrics.page_of(text, _READ)

    def ranks(name: str, **labels: str) -> list[float]:
        found = [
            each
            for each in samples.get(name, [])
            if all(each.labels.get(key) == value for key, value in labels.items())
        ]
        return metrics.by_rank(found)

    def counted(name: str) -> float | None:
        values = [each.value for each in samples.get(name, [])]
        return sum(values) if values else None

    def tokens(mode: str) -> float | None:
        return sum(ranks("realtime_tokens_total", mode=mode)) if "realtime_tokens_total" in samples else None

    usage, accepted = ranks("token_usage"), [value for value in ranks("spec_accept_length") if value > 0]
    running, queued = ranks("num_running_reqs"), ranks("num_queue_reqs")
    retracted, prompts = ranks("num_retracted_requests_total"), counted("prompt_tokens_total")
    cached = counted("cached_tokens_total")
    return Page(
        at,
        mixed=metrics.mixed(samples) is not None,
        model=next((each.labels.get("model_name") for each in samples.get("num_running_reqs", [])), None),
        token_usage=max(usage) if usage else None,
        running=sum(running) if running else None,
        queued=sum(queued) if queued else None,
        accept_length=sum(accepted) / len(accepted) if accepted else None,
        # Beside the gauges of their collectors, counters that are not there have counted nothing.
        retracted=sum(retracted) if retracted or running else None,
        finished=counted("num_requests_total"),
        prompt_tokens=prompts,
        cached_tokens=cached if cached is not None or prompts is None else 0.0,
        decoded_tokens=tokens("decode"),
        prefilled_tokens=tokens("prefill_compute"),
        first_token=_histogram(samples, FIRST_TOKEN),
        between_tokens=_histogram(samples, BETWEEN_TOKENS),
    )


def _histogram(samples: dict[str, list[Sample]], name: str) -> Histogram:
    buckets: dict[float, float] = {}
    for each in samples.get(f"{name}_bucket", []):
        try:
            bound = float(each.labels.get("le", ""))
        except ValueError:
            continue
        buckets[bound] = buckets.get(bound, 0.0) + each.value
    return Histogram.of(buckets, sum(each.value for each in samples.get(f"{name}_sum", [])))
