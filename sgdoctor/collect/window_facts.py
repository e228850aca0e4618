"""From what a server said over a while to the facts window.*."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from sgdoctor.facts import Facts, Unknown

if TYPE_CHECKING:  # every check says what needs a window, and few have one
    from sgdoctor.collect.log_follow import Batches, Follower, Numbers
    from sgdoctor.collect.window import Histogram, Page, Window

NEEDS = "needs --watch"
_THIRDS = 3
_LEAST_PAGES = 6  # below that, the beginning and the end are not told apart
_MINUTE = 60.0
_LEAST_SECONDS = 5.0  # of a rate: one event in less would look like many
_SHARE = 0.9
_PRECISE_BELOW = 10.0  # what is larger was not measured to more than a decimal place
_SEVERAL = "several servers answered, in turn or with one page: name each by its own URL, not what they share"


def lack(facts: Facts, reason: str = NEEDS) -> None:
    """Say why the facts about a window are not known, where nothing said it before."""
    for name in facts.vocabulary.specs:
        if name.startswith("window.") and facts.get(name) == Unknown():
            facts.set_unknown(name, reason)


def set_facts(facts: Facts, window: Window) -> None:
    """Set window.* and the series from what was watched; what nothing told stays unknown."""
    from sgdoctor.collect import window_series

    place = window.place or ", ".join(log.name for log in window.logs)
    facts.notes.extend(note for log in window.logs for note in log.notes)
    if window.cut_short:
        facts.notes.append(f"{place}: interrupted; this is about the {window.seconds:.0f} s until then")
    if window.restarts:
        facts.notes.append(
            f"{window.place}: the server was started again while it was watched; its flags and its model "
            "are those from before that"
        )
    if window.several:
        facts.notes.append(f"{window.place}: {_SEVERAL}")
    if window.missed and not window.without_metrics:
        facts.notes.append(f"{window.place}: {window.missed} of {window.asked} times no page: {window.why}")
    _Setter(facts, window).all()
    facts.series = window_series.of(window)
    if said := told(facts):
        facts.notes.append(said)
    lack(facts, _why(window))


def told(facts: Facts) -> str:
    """Return the window's numbers in a line for people, as far as they are known."""
    value = facts.value
    parts = [
        words.format(number)
        for name, words in (
            ("running_requests", "{:.1f} requests running"),
            ("queued_requests", "{:.1f} waiting"),
            ("queue_growth", "the queue changed by {:+.1f}"),
            ("token_usage", "KV cache used to {:.0%}"),
            ("decode_throughput", "{:.0f} tokens/s"),
            ("throughput_trend", "at the end {:.0%} of the beginning"),
            ("retractions_per_minute", "{:.1f} retractions a minute"),
            ("cache_hit_rate", "{:.0%} of the prompt tokens from the cache"),
            ("accept_length", "{:.2f} tokens a speculative step"),
            ("first_token_seconds", "first token after {:.2f} s"),
            ("between_tokens_seconds", "{:.4f} s between tokens"),
        )
        if (number := value(f"window.{name}")) is not None
    ]
    return f"in {value('window.seconds'):.0f} s: {', '.join(parts)}" if parts else ""


def length(seconds: float) -> str:
    """Return a time as people write it: 0.6 s, 3600 s."""
    return f"{round(seconds, 1):g} s"


def _why(window: Window) -> str:
    if window.without_metrics:
        return "the server has no metrics page (--enable-metrics)"
    if window.several:
        return f"{window.place}: {_SEVERAL}"
    meanwhile = f"in {length(window.seconds)}"
    if len(window.pages) < 2:
        return f"too few metrics pages {meanwhile}" + (f": {window.last}" if window.last else "")
    return f"nothing of it happened {meanwhile}"


class _Setter:
    """Sets the facts of one window, the metrics' before the log's."""

    def __init__(self, facts: Facts, window: Window) -> None:
        self.facts = facts
        self.window = window
        self.pages = window.pages if not window.several else []
        self.seconds = self.pages[-1].at - self.pages[0].at if self.pages else 0.0
        started = max((log.since for log in window.logs), default=0.0)
        self.log_seconds = max(window.seconds - started, 0.0)

    def put(self, name: str, value: float | None, metric: str) -> None:
        if value is not None:
            place = f"{self.window.place}: sglang:{metric} over {self.seconds:.0f} s"
            self._set(name, value, "metrics", place)

    def put_log(self, name: str, value: float | None) -> None:
        if value is not None and not self.facts.known(f"window.{name}"):
            names = ", ".join(log.name for log in self.window.logs)
            self._set(name, value, "log", f"{names}: its last {self.log_seconds:.0f} s")

    def _set(self, name: str, value: float, source: str, place: str) -> None:
        spec = self.facts.vocabulary.spec(f"window.{name}")
        whole = spec is not None and spec.type == "int"
        value = round(value) if whole else round(float(value), 4 if abs(value) < _PRECISE_BELOW else 1)
        self.facts.set(f"window.{name}", value, source=source, place=place)

    def all(self) -> None:
        if len(self.pages) > 1 and self.seconds > 0:
            self.put("seconds", self.seconds, "num_running_reqs")
            self.gauges()
            self.counters(self.pages[0], self.pages[-1])
        self.log(self.window.logs)

    def gauges(self) -> None:
        used = _known(page.token_usage for page in self.pages)
        if used:
            self.put("token_usage", mean(used), "token_usage")
            self.put("token_usage_peak", max(used), "token_usage")
        running = _known(page.running for page in self.pages)
        if running:
            self.put("running_requests", mean(running), "num_running_reqs")
        queued = _known(page.queued for page in self.pages)
        if queued:
            self.put("queued_requests", mean(queued), "num_queue_reqs")
            self.put("queued_least", min(queued), "num_queue_reqs")
            self.put("queue_growth", _growth(queued), "num_queue_reqs")
        lengths = _known(page.accept_length for page in self.pages)
        if lengths:
            self.put("accept_length", mean(lengths), "spec_accept_length")

    def counters(self, first: Page, last: Page) -> None:
        retracted = last.counted("retracted", first)
        if retracted is not None:
            rate = retracted * _MINUTE / self.seconds
            self.put("retractions_per_minute", rate, "num_retracted_requests_total")
            self.put("retraction_peak", _peak(self.pages), "num_retracted_requests_total")
        self.put("finished_requests", last.counted("finished", first), "num_requests_total")
        prompts, cached = last.counted("prompt_tokens", first), last.counted("cached_tokens", first)
        self.put("prompt_tokens", prompts, "prompt_tokens_total")
        if prompts and cached is not None:
            self.put("cache_hit_rate", min(cached / prompts, 1.0), "cached_tokens_total")
        tokens, prefilled = last.counted("decoded_tokens", first), last.counted("prefilled_tokens", first)
        if tokens is not None and prefilled is not None:
            self.put("decode_throughput", tokens / self.seconds, "realtime_tokens_total")
            self.put("throughput_trend", _trend(self.pages), "realtime_tokens_total")
            self.put("worked_tokens", tokens + prefilled, "realtime_tokens_total")
        self.latency("first_token", last.first_token.since(first.first_token), "time_to_first_token_seconds")
        between = last.between_tokens.since(first.between_tokens)
        self.latency("between_tokens", between, "inter_token_latency_seconds")

    def latency(self, name: str, seen: Histogram, metric: str) -> None:
        if seen.count > 0:
            self.put(f"{name}_seconds", seen.total / seen.count, metric)
            self.put(f"{name}_p90", seen.within(_SHARE), metric)

    def log(self, logs: Sequence[Follower]) -> None:
        """Take from the logs' batch lines, one log a node, what the metrics did not tell."""
        from sgdoctor.collect import log_follow

        if logs:
            silent = not any(log.spoke for log in logs)
            self.facts.set(
                "window.log_silent", silent, source="log", place=", ".join(log.name for log in logs)
            )
        workers = log_follow.workers(logs)
        if not any(one.decode or one.new_tokens + one.cached_tokens for one in workers):
            return
        self.put_log("seconds", self.log_seconds)
        for name in ("running_requests", "queued_requests", "decode_throughput"):
            means = [_mean_of(told) for one in workers if (told := _numbers(name, [one]))]
            self.put_log(name, sum(means) if means else None)
        if used := _numbers("token_usage", workers):
            self.put_log("token_usage", _mean_of(used))
            self.put_log("token_usage_peak", max(each.largest for each in used))
        if lengths := _numbers("accept_length", workers):
            self.put_log("accept_length", _mean_of(lengths))
        if self.log_seconds >= _LEAST_SECONDS:
            self.put_log("retractions_per_minute", log_follow.retractions(logs) * _MINUTE / self.log_seconds)
        cached = sum(one.cached_tokens for one in workers)
        prompts = cached + sum(one.new_tokens for one in workers)
        self.put_log("prompt_tokens", prompts)
        self.put_log("cache_hit_rate", cached / prompts if prompts else None)


def mean(values: Sequence[float]) -> float:
    """Return the mean of ``values``, of which there is at least one."""
    return sum(values) / len(values)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _numbers(measure: str, workers: Iterable[Batches]) -> list[Numbers]:
    return [numbers for one in workers for numbers in one.decode.get(measure, {}).values()]


def _mean_of(numbers: Sequence[Numbers]) -> float:
    """Return the mean over all lines."""
    return sum(each.total for each in numbers) / sum(each.count for each in numbers)


def _growth(values: list[float]) -> float | None:
    """Return by how much the last third of the window lies above the first, in means."""
    if len(values) < _LEAST_PAGES:
        return None
    third = len(values) // _THIRDS
    return mean(values[-third:]) - mean(values[:third])


def _trend(pages: list[Page]) -> float | None:
    """Return the throughput of the window's last third as a multiple of that of its first."""
    if len(pages) < _LEAST_PAGES:
        return None
    third = len(pages) // _THIRDS
    first, last = _rate(pages[0], pages[third]), _rate(pages[-1 - third], pages[-1])
    return last / first if first else None


def _rate(before: Page, after: Page) -> float:
    return (after.counted("decoded_tokens", before) or 0.0) / max(after.at - before.at, 1e-9)


def _peak(pages: list[Page]) -> int:
    """Return on how many pages of any one minute the count of retractions had gone up."""
    times = [after.at for before, after in pairwise(pages) if after.counted("retracted", before)]
    return max((sum(0 <= other - at < _MINUTE for other in times) for at in times), default=0)
