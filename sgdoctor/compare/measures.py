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

    ``loaded``: it says as much about the load at that moment as about the server.
    """

    fact: str
    words: str
    unit: str = ""
    kind: Kind = "capacity"
    better: str = "larger"
    loaded: bool = False


MEASURES = (
    Measure("kv.max_running_requests", "Running requests at most (max_running_requests)"),
    Measure("kv.tokens", "KV cache (max_total_num_tokens)", " tokens"),
    Measure("kv.context_length", "Context length", " tokens"),
    Measure("log.decode_throughput", "Decode throughput in the log", " tokens/s", "speed", loaded=True),
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
    if measure.loaded and verdict != "changed" and not same_load(pair):
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


def same_load(pair: Pair) -> bool:
    """Whether both logs are known to be of as many running requests, with as many tokens in the cache."""
    running = pair.both("log.running_requests")
    usage, tokens = pair.both("log.token_usage"), pair.both("kv.tokens")
    if running is None or usage is None or tokens is None:
        return False
    held = (usage[0] * tokens[0], usage[1] * tokens[1])
    return _similar(*running) and _similar(*held)


def _similar(before: float, after: float) -> bool:
    return before > 0 and abs(after - before) / before * 100 <= SIMILAR


def number(value: float) -> str:
    """Return a number as people write it: 1,302,528; 412.5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0")
