"""Numbers that are better or worse: capacity, memory, speed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sgdoctor.compare import causes
from sgdoctor.compare.model import Difference, Kind, Verdict
from sgdoctor.compare.values import Pair

SIMILAR = 10  # percent by which two loads may differ and still be one


class Measure(msgspec.Struct, frozen=True):
    """A fact with a number, in words. ``better``: larger, smaller, or neither of them.

    ``load``: it says as much about the load as about the server, which facts of this family tell.
    """

    fact: str
    words: str
    unit: str = ""
    kind: Kind = "capacity"
    better: str = "larger"
    load: str | None = None


MEASURES = (
    Measure("kv.max_running_requests", "Running requests at most (max_running_requests)"),
    Measure("kv.tokens", "KV cache (max_total_num_tokens)", " tokens"),
    Measure("kv.context_length", "Context length", " tokens"),
    Measure("log.decode_throughput", "Decode throughput in the log", " tokens/s", "speed", load="log"),
    Measure("window.decode_throughput", "Decode throughput", " tokens/s", "speed", load="window"),
    Measure("window.first_token_seconds", "Time to the first token", " s", "speed", "smaller", "window"),
    Measure("window.between_tokens_seconds", "Time between tokens", " s", "speed", "smaller", "window"),
    Measure(
        "server.decode_throughput", "Decode throughput at the last report", " tokens/s", "speed", "neither"
    ),
    Measure("log.accept_length", "Tokens accepted per speculative step", "", "speed", "neither"),
    Measure("memory.weights_gb", "Weights on a GPU", " GB", "memory", "neither"),
    Measure("memory.available_gb", "GPU memory left after the start", " GB", "memory", "neither"),
)


def differences(pair: Pair, tolerance: float) -> Iterator[Difference]:
    """Yield the measures that differ; those within ``tolerance`` percent are minor."""
    for measure in MEASURES:
        both = pair.both(measure.fact)
        if both is None or None in both or both[0] == both[1]:
            continue
        yield _difference(pair, measure, float(both[0]), float(both[1]), tolerance)


def _difference(pair: Pair, measure: Measure, before: float, after: float, tolerance: float) -> Difference:
    percent = (after - before) / before * 100 if before else None
    minor = percent is not None and abs(percent) <= tolerance
    verdict = _verdict(measure, after > before)
    doubt = ""
    if measure.load and verdict != "changed" and not same_load(pair, measure.load):
        verdict, doubt = "changed", "; the load was not the same, or is not known"
    told = f" ({percent:+.1f}%)" if percent is not None else ""
    return Difference(
        kind=measure.kind,
        subject=measure.fact,
        before=number(before),
        after=number(after),
        verdict="changed" if minor else verdict,
        message=f"{measure.words}: {number(before)} to {number(after)}{measure.unit}{told}{doubt}.",
        percent=None if percent is None else round(percent, 2),
        together_with=causes.of_measure(pair, measure.fact),
        minor=minor,
    )


def _verdict(measure: Measure, grew: bool) -> Verdict:  # noqa: FBT001
    if measure.better == "neither":
        return "changed"
    return "better" if grew == (measure.better == "larger") else "worse"


def same_load(pair: Pair, family: str) -> bool:
    """Whether both are known to be of as many running requests, with as many tokens in the KV cache.

    ``family`` is where that is told: log (its last decode batches) or window (what was watched, of which the
    prompts must be as long, too).
    """
    running = pair.both(f"{family}.running_requests")
    held = _products(pair, f"{family}.token_usage", "kv.tokens")
    loads = [running, held]
    if family == "window":
        loads.append(_prompts(pair))
    return all(load is not None and _similar(*load) for load in loads)


def _products(pair: Pair, one: str, other: str) -> tuple[float, float] | None:
    ones, others = pair.both(one), pair.both(other)
    return None if ones is None or others is None else (ones[0] * others[0], ones[1] * others[1])


def _prompts(pair: Pair) -> tuple[float, float] | None:
    """Return the mean length of the prompts."""
    tokens, requests = pair.both("window.prompt_tokens"), pair.both("window.finished_requests")
    if tokens is None or requests is None or 0 in requests:
        return None
    return tokens[0] / requests[0], tokens[1] / requests[1]


def _similar(before: float, after: float) -> bool:
    return before > 0 and abs(after - before) / before * 100 <= SIMILAR


def number(value: float) -> str:
    """Return a number as people write it: 1,302,528; 412.5; 0.0123."""
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.2f}".rstrip("0") if abs(value) >= 1 else f"{value:.3g}"
