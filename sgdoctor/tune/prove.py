"""Proof of a table: its outputs against float32, its times against what SGLang uses today."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from sgdoctor.tune.choose import compile_exact, relative_error
from sgdoctor.tune.model import TOLERANCE, WORTH, Line, Pair, Table, Times
from sgdoctor.tune.points import Key
from sgdoctor.tune.run import Run
from sgdoctor.tune.space import default_config

COMPARE, ENDS = "compare", "ends"

_WRONG = "relative error"

_ROUNDS = 31
_END_ROUNDS = 15
_MOST_AT_AN_END = 0.02


def wrong(run: Run, table: Table) -> dict[Pair, str]:
    """Return those pairs of a table whose output is not what float32 says, with the reason.

    Each is launched at its batch size and at a ragged one that reaches all experts; with expert parallelism
    both hold tokens of absent experts.
    """
    everything = [key for tokens, pair in table.items() for key in _checks(run, tokens, pair)]
    for _ in run.compile([(gemm, config, m) for gemm, m, config in everything], "compiling what is verified"):
        pass
    run.verify(everything, "verifying outputs against float32")
    found: dict[Pair, str] = {}
    for tokens, pair in table.items():
        for key in _checks(run, tokens, pair):
            error = run.points.errors.get(key, "was not verified")
            if isinstance(error, str):
                found.setdefault(pair, error)
            elif not error <= TOLERANCE:  # NaN is wrong, too
                found[pair] = f"{_WRONG} {error:.2g} of the {key[0]} product at {key[1]} tokens"
    return found


def _checks(run: Run, tokens: int, pair: Pair) -> list[Key]:
    up = "up_sorted" if pair.down.tma else "up"
    return [
        (gemm, m, config)
        for m in dict.fromkeys((tokens, ragged(run)))
        for gemm, config in ((up, pair.up), ("down", pair.down))
    ]


def ragged(run: Run) -> int:
    """Return an odd batch size at which every expert surely has tokens (twelve each, on average)."""
    problem = run.job.problem
    return min(-(-12 * problem.routed_experts // problem.topk) | 1, max(run.job.tokens) - 1 | 1)


def compare(run: Run, table: Mapping[int, Pair]) -> tuple[Line, ...]:
    """Time a table against today's and the built-in configurations; keep today's where it does not win.

    ``table`` holds verified pairs; batch sizes that it lacks keep today's. A pair of today's that computes
    wrong results is replaced whatever the times.
    """
    job = run.job
    # What could not be verified (no memory, say) is no candidate, but no accusation of what is in use either.
    broken = {pair: why for pair, why in wrong(run, job.today).items() if why.startswith(_WRONG)}
    units = [
        (tokens, pair)
        for tokens in job.tokens
        for pair in dict.fromkeys(
            (job.today[tokens], job.default[tokens], table.get(tokens, job.today[tokens]))
        )
    ]
    compile_exact(run, units)
    run.pairs(COMPARE, units, _ROUNDS, "timing against what SGLang uses today")
    ends = cell_ends(run, table)
    return tuple(
        line
        for tokens in job.tokens
        if (line := _line(run, tokens, table.get(tokens), ends.get(tokens, ""), broken)) is not None
    )


def _line(run: Run, tokens: int, tuned: Pair | None, slower: str, broken: Mapping[Pair, str]) -> Line | None:
    today, default = run.job.today[tokens], run.job.default[tokens]
    times = {pair: _times(run, tokens, pair) for pair in (today, default, tuned) if pair is not None}
    unknown = Times(math.nan, math.nan, math.nan, math.nan)
    new = times.get(tuned) if tuned is not None else None
    kept = _kept(run, tokens, tuned, slower)
    wrong_today = broken.get(today, "")
    if wrong_today and new is not None:
        kept = ""
    return Line(
        tokens,
        pair=today if kept or tuned is None else tuned,
        tuned=tuned or today,
        today=times.get(today) or unknown,
        default=times.get(default) or unknown,
        new=new or times.get(today) or unknown,
        kept=kept,
        wrong_today=wrong_today,
    )


def _kept(run: Run, tokens: int, tuned: Pair | None, slower: str) -> str:
    """Return why today's pair stays, nothing when the new one wins."""
    today = run.job.today[tokens]
    if tuned is None:
        return "no candidate ran and was right"
    if tuned == today:
        return "it is the best already"
    samples = run.points.pairs[COMPARE]
    before, after = samples.get((tokens, today)), samples.get((tokens, tuned))
    if after is None:
        return "the new one did not run"
    if before is None:
        # Nothing is lost where what SGLang would use today does not run at all.
        return "" if (tokens, today) in run.points.failed_pairs else "today's was not timed beside it"
    gain, error = gained(before["whole"], after["whole"])
    if gain <= WORTH:
        return f"no more than 1% faster ({gain:+.1%})"
    if gain <= 2 * error:
        return f"not faster by more than noise ({gain:+.1%}, noise {error:.1%})"
    return slower


def gained(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return by how much ``after`` is faster, and the standard error of that; samples of the same rounds."""
    ratios = [a / b for a, b in zip(before, after, strict=True)]
    middle = statistics.median(ratios)
    return middle - 1, relative_error(ratios) * middle


def cell_ends(run: Run, table: Mapping[int, Pair]) -> dict[int, str]:
    """Return the keys whose pair loses to today's at an end of the range of batch sizes that it serves."""
    job = run.job
    units: list[tuple[int, Pair]] = []
    ends = {tokens: _ends(job.tokens, tokens) for tokens in table}
    for tokens, found in ends.items():
        if table[tokens] != job.today[tokens]:
            units += [(m, pair) for m in found for pair in (table[tokens], today_at(run, m))]
    compile_exact(run, units)
    run.pairs(ENDS, units, _END_ROUNDS, "timing between the batch sizes")
    slower: dict[int, str] = {}
    for tokens, found in ends.items():
        gains = []
        for m in found:
            after = run.points.pairs[ENDS].get((m, table[tokens]))
            before = run.points.pairs[ENDS].get((m, today_at(run, m)))
            if before and after:
                gains.append((*gained(before["whole"], after["whole"]), m))
        for gain, error, m in gains:
            if gain < -_MOST_AT_AN_END and -gain > 2 * error:
                slower[tokens] = f"{-gain:.1%} slower at {m} tokens, which it would serve, too"
    return slower


def today_at(run: Run, tokens: int) -> Pair:
    """Return what SGLang uses today at a batch size between the keys."""
    job = run.job
    if job.source == "default":
        config = default_config(job.problem, tokens, low_shared_memory=job.low_shared_memory)
        return Pair(config, config)
    return job.today[min(job.today, key=lambda key: abs(key - tokens))]


def _ends(keys: Iterable[int], tokens: int) -> list[int]:
    """Return the least and the largest batch size whose nearest key is ``tokens`` (ties go to the first)."""
    order = sorted(keys)
    at = order.index(tokens)
    ends = []
    if at and (order[at - 1] + tokens) // 2 + 1 < tokens:
        ends.append((order[at - 1] + tokens) // 2 + 1)
    if at + 1 < len(order) and (tokens + order[at + 1]) // 2 > tokens:
        ends.append((tokens + order[at + 1]) // 2)
    return ends


def _times(run: Run, tokens: int, pair: Pair) -> Times | None:
    samples = run.points.pairs[COMPARE].get((tokens, pair))
    if samples is None:
        return None
    whole = statistics.median(samples["whole"])
    parts = [statistics.median(samples.get(name, [math.nan])) for name in ("up", "down")]
    return Times(whole, relative_error(samples["whole"]) * whole, *parts)
