"""Which pair goes into the file at each batch size: whole computations on the true kernel decide."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sgdoctor.tune.model import Pair
from sgdoctor.tune.run import Run
from sgdoctor.tune.search import finalists
from sgdoctor.tune.space import Config

CONTEST, AGAIN = "contest", "again"

_FINALISTS = 5
_SURVIVORS = 4
# Pairs this near the best, or within twice the noise, are equally good: then the one that also serves the
# next batch size is taken, so that the server compiles fewer kernels.
_EQUAL = 0.005


@dataclass(frozen=True)
class Candidate:
    """A pair at a batch size, µs for the whole computation, and its loss against the best one there."""

    pair: Pair
    time: float
    loss: float


def choose(run: Run, rejected: Collection[Pair] = ()) -> dict[int, Pair]:
    """Return the best pair for every batch size, ``rejected`` ones aside.

    Batch sizes for which nothing ran are left out.
    """
    first = {tokens: finalists(run, tokens, _FINALISTS) for tokens in run.job.tokens}
    contest(run, CONTEST, first, rounds=9)
    ranks = {tokens: ranked(run, CONTEST, tokens) for tokens in first}
    second = {
        tokens: [c.pair for c in found if c.pair not in rejected][:_SURVIVORS]
        for tokens, found in ranks.items()
    }
    wider = {tokens: [*found, *_beside(second, tokens)] for tokens, found in second.items()}
    contest(run, AGAIN, wider, rounds=15)
    return assign({tokens: equals(run, tokens, rejected) for tokens in run.job.tokens})


def contest(run: Run, phase: str, pairs: Mapping[int, Sequence[Pair]], *, rounds: int) -> None:
    """Time whole computations with ``pairs``, those of one batch size against one another."""
    units = [(tokens, pair) for tokens, each in pairs.items() for pair in dict.fromkeys(each)]
    compile_exact(run, units)
    run.pairs(phase, units, rounds, "timing whole expert computations")


def compile_exact(run: Run, units: Iterable[tuple[int, Pair]]) -> None:
    """Compile what whole computations will launch, as the server will."""
    wanted: list[tuple[str, Config, int | None]] = []
    for tokens, pair in units:
        up = "up_sorted" if pair.down.tma else "up"
        wanted += [(up, pair.up, tokens), ("down", pair.down, tokens)]
    for _ in run.compile(wanted, "compiling the true kernels"):
        pass


def ranked(run: Run, phase: str, tokens: int) -> list[Candidate]:
    """Return the pairs of a batch size timed in a phase, best first."""
    times = [
        (statistics.median(samples["whole"]), pair)
        for (m, pair), samples in run.points.pairs[phase].items()
        if m == tokens
    ]
    times.sort(key=lambda each: each[0])
    return [Candidate(pair, time, time / times[0][0] - 1) for time, pair in times]


def equals(run: Run, tokens: int, rejected: Collection[Pair] = ()) -> list[Candidate]:
    """Return the best pair of a batch size and those that cannot be told from it, ``rejected`` ones aside."""
    found = [
        candidate
        for candidate in ranked(run, AGAIN, tokens) or ranked(run, CONTEST, tokens)
        if candidate.pair not in rejected
    ]
    if not found:
        return []
    found = [replace(each, loss=each.time / found[0].time - 1) for each in found]
    samples = run.points.pairs[AGAIN].get((tokens, found[0].pair), {}).get("whole", [])
    near = max(_EQUAL, 2 * relative_error(samples))
    return [candidate for candidate in found if candidate.loss <= near]


def relative_error(samples: Sequence[float]) -> float:
    """Return the standard error of the samples' median over the median; from their absolute deviations."""
    if len(samples) < 2:
        return 0.0
    middle = statistics.median(samples)
    spread = 1.4826 * statistics.median(abs(sample - middle) for sample in samples)
    return 1.2533 * spread / middle / math.sqrt(len(samples))


def assign(choices: Mapping[int, Sequence[Candidate]]) -> dict[int, Pair]:
    """Choose one candidate a batch size: least loss, and few changes from one batch size to the next.

    A change costs as much as the loss that makes two pairs equal (dynamic programming over batch sizes).
    """
    columns = [(tokens, found) for tokens, found in sorted(choices.items()) if found]
    if not columns:
        return {}
    costs = [[candidate.loss for candidate in columns[0][1]]]
    backs: list[list[int]] = [[0] * len(columns[0][1])]
    for (_, before), (_, here) in itertools.pairwise(columns):
        row, back = [], []
        for candidate in here:
            ways = [
                cost + (0.0 if other.pair == candidate.pair else _EQUAL)
                for cost, other in zip(costs[-1], before, strict=True)
            ]
            least = min(range(len(ways)), key=ways.__getitem__)
            row.append(ways[least] + candidate.loss)
            back.append(least)
        costs.append(row)
        backs.append(back)
    at = min(range(len(costs[-1])), key=costs[-1].__getitem__)
    chosen: dict[int, Pair] = {}
    for (tokens, found), back in zip(reversed(columns), reversed(backs), strict=True):
        chosen[tokens] = found[at].pair
        at = back[at]
    return dict(sorted(chosen.items()))


def _beside(pairs: Mapping[int, Sequence[Pair]], tokens: int) -> list[Pair]:
    """Return the best pairs of the batch sizes on both sides."""
    order = sorted(pairs)
    at = order.index(tokens)
    near = order[max(0, at - 1) : at] + order[at + 1 : at + 2]
    return [pair for m in near for pair in pairs[m][:1]]
