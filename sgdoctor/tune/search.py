"""The search: every tile at a few batch sizes, the good ones at all, the best against one another.

Candidates are judged by what they make of the whole: a product's time plus the best of the other product
with the same BLOCK_SIZE_M, over the best such sum. So a tile stays that alone is slow but has the right
partner, and one that nothing goes with falls out.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sgdoctor.tune import prior, roofline
from sgdoctor.tune.model import Effort, Job, Pair
from sgdoctor.tune.points import EXPLORE, FINAL, RACE, SPREAD, Key
from sgdoctor.tune.run import Run, Task
from sgdoctor.tune.space import Config, candidates, takes_tma

# Where every tile is timed: these batch sizes, and those with so many tokens an expert, which is what the
# best tile's height follows.
ANCHORS = (1, 16, 4096)
TOKENS_AN_EXPERT = (2, 8, 16, 32, 128)
FIRST_GROUPS = (1, 16)
GROUPS = (1, 8, 16, 32, 64)

# From this batch size on a GPU meets its power limit: what is best is decided under that load, with batches
# of one size. Smaller ones are timed among one another.
SUSTAINED = 1024

_BATCH = 40
_NEAREST = 60
_QUICK_TILES = 64
# How far off the best a candidate may be to get into a phase, and how many of a product and batch size do.
_KEEP = {SPREAD: (1.08, 24), RACE: (1.03, 12), FINAL: (1.015, 6)}


def search(run: Run, effort: Effort) -> None:
    """Fill ``run.points`` with times; ``finalists`` tells what came of it."""
    explore(run, effort)
    spread(run, effort)
    race(run, RACE, rounds=5)
    race(run, FINAL, rounds=11)


def finalists(run: Run, tokens: int, count: int) -> list[Pair]:
    """Return the best pairs at a batch size by the sum of their products' times, with and without TMA.

    A tile that broke a worker somewhere is in none, nor a configuration whose output was wrong somewhere.
    """
    wrong = run.points.wrong()
    times = {
        gemm: sorted(
            (
                (config, time)
                for config, time in run.points.times(gemm, tokens).items()
                if (gemm, config.tile) not in run.points.broken and (gemm, config) not in wrong
            ),
            key=_time,
        )
        for gemm in ("up", "down")
    }
    pairs = [
        (first + second, Pair(up, down))
        for up, first in times["up"][:_NEAREST]
        for down, second in times["down"][:_NEAREST]
        if down.block_m == up.block_m
    ]
    pairs.sort(key=lambda each: each[0])
    chosen = [pair for _, pair in pairs[:count]]
    for tma in (False, True):
        chosen += [pair for _, pair in pairs if pair.down.tma == tma][:1]
    return list(dict.fromkeys(chosen))


def _time(each: tuple[Config, float]) -> float:
    return each[1]


def tiles(run: Run, effort: Effort) -> list[tuple[str, Config]]:
    """Return what is to be compiled: what is in use today, then the grid, the likely first."""
    job = run.job
    in_use = [pair for table in (job.today, job.default) for pair in table.values()]
    first = [("up", pair.up.tile) for pair in in_use] + [("down", pair.down.tile) for pair in in_use]
    ranked = prior.ranked(job)
    rest: list[tuple[str, Config]] = []
    for gemm in ("up", "down"):
        found = sorted(candidates(job.problem, gemm, job.capability, groups=(1,)), key=ranked[gemm])
        found = found[:_QUICK_TILES] if effort == "quick" else found
        rest += [(gemm, config) for config in found]
        if gemm == "down" and takes_tma(job.problem) and job.capability[0] >= 9:
            rest += [(gemm, dataclasses.replace(config, tma=True)) for config in found]
    rest.sort(key=lambda each: ranked[each[0]](each[1]))
    return list(dict.fromkeys(first + rest))


def explore(run: Run, effort: Effort) -> None:
    """Compile every tile and time it, as it comes out of the compiler, at the anchors (full: everywhere)."""
    wanted = tiles(run, effort)
    tokens = run.job.tokens if effort == "full" else anchors(run.job)
    groups = GROUPS if effort == "full" else FIRST_GROUPS
    queue: collections.deque[Task] = collections.deque()
    for ready in run.compile([(gemm, tile, None) for gemm, tile in wanted], "compiling and timing"):
        for gemm, tile, _ in ready:
            task = run.task(EXPLORE, _units(run, gemm, tile, tokens, groups), rounds=1)
            queue += [task] if task else []
        _step(run, queue)
    total = len(queue) + run.workers.measure.unfinished
    while queue or run.workers.measure.unfinished:
        _step(run, queue)
        left = len(queue) + run.workers.measure.unfinished
        run.say("timing what is compiled", total - left, total)
    note_best(run)


def _step(run: Run, queue: collections.deque[Task]) -> None:
    run.feed(queue)
    for outcome in run.outcomes(wait=0.02):
        queue.extend(run.take(outcome))
    if run.due():
        note_best(run)


def _units(run: Run, gemm: str, tile: Config, tokens: Iterable[int], groups: Iterable[int]) -> list[Key]:
    """Return the points of a tile: its groups at ``tokens``, and where SGLang uses it today."""
    units = [(gemm, m, dataclasses.replace(tile, group_m=group)) for m in tokens for group in groups]
    for table in (run.job.today, run.job.default):
        for m, pair in table.items():
            config = pair.up if gemm == "up" else pair.down
            if config.tile == tile and m in run.job.tokens:
                units.append((gemm, m, config))
    return list(dict.fromkeys(units))


def spread(run: Run, effort: Effort) -> None:
    """Time, at every batch size, what was good at the neighbouring anchors, with every GROUP_SIZE_M."""
    units: list[Key] = []
    if effort != "full":
        for tokens in run.job.tokens:
            near = neighbours(tokens, anchors(run.job))
            for gemm, tma in _products(run):
                found = {c.tile for a in near for c in kept(run, SPREAD, gemm, a, tma=tma)}
                units += [
                    (gemm, tokens, dataclasses.replace(tile, group_m=group))
                    for tile in sorted(found)
                    for group in GROUPS
                ]
    # Large batches one after the other would meet the power limit.
    random.Random(0).shuffle(units)  # noqa: S311
    run.time(SPREAD, _batches(units), 2, "timing the good ones at every batch size")
    note_best(run)


def race(run: Run, phase: str, *, rounds: int) -> None:
    """Time what is left again, interleaved, with more samples; large batches under sustained load."""
    small: list[Key] = []
    large: list[list[Key]] = []
    for tokens in run.job.tokens:
        if roofline.reached(run, tokens, before=phase):
            continue
        units = [
            (gemm, tokens, config)
            for gemm, tma in _products(run)
            for config in kept(run, phase, gemm, tokens, tma=tma)
        ]
        if tokens < SUSTAINED:
            small += units
        else:
            large.append(units)
    random.Random(1).shuffle(small)  # noqa: S311
    run.time(phase, [*_batches(small), *large], rounds, "timing the best against one another")
    note_best(run)


def kept(run: Run, phase: str, gemm: str, tokens: int, *, tma: bool) -> list[Config]:
    """Return a product's candidates that get into a phase: near the best of the whole, best first."""
    scores = score(run, tokens, before=phase)[gemm]
    near, count = _KEEP[phase]
    found = sorted((each, config) for config, each in scores.items() if config.tma == tma and each <= near)
    return [config for _, config in found[:count]]


def score(run: Run, tokens: int, *, before: str) -> dict[str, dict[Config, float]]:
    """Return, for both products, what each candidate makes of the whole over the best whole."""
    times = {gemm: run.points.times(gemm, tokens, before=before) for gemm in ("up", "down")}
    by_block = {gemm: _by_block(found) for gemm, found in times.items()}
    both = by_block["up"].keys() & by_block["down"].keys()
    if not both:
        return {"up": {}, "down": {}}
    best = min(by_block["up"][block] + by_block["down"][block] for block in both)
    other = {"up": by_block["down"], "down": by_block["up"]}
    return {
        gemm: {
            config: (time + other[gemm][config.block_m]) / best
            for config, time in found.items()
            if config.block_m in both
        }
        for gemm, found in times.items()
    }


def note_best(run: Run) -> None:
    """Tell, for every batch size where both are known, how much faster the best is than the default."""
    for tokens in run.job.tokens:
        least = {gemm: _by_block(run.points.times(gemm, tokens)) for gemm in ("up", "down")}
        sums = [
            least["up"][block] + least["down"][block] for block in least["up"].keys() & least["down"].keys()
        ]
        default = run.job.default[tokens]
        first = run.points.time("up", tokens, default.up)
        second = run.points.time("down", tokens, default.down)
        if sums and first and second:
            run.best[tokens] = (first + second) / min(sums)


def _by_block(times: Mapping[Config, float]) -> dict[int, float]:
    """Return the best time of each BLOCK_SIZE_M."""
    least: dict[int, float] = {}
    for config, time in times.items():
        least[config.block_m] = min(time, least.get(config.block_m, time))
    return least


def anchors(job: Job) -> list[int]:
    """Return the batch sizes, of those to tune for, at which every tile is timed."""
    an_expert = job.problem.routed_experts / job.problem.topk
    wanted = [*ANCHORS, *(count * an_expert for count in TOKENS_AN_EXPERT)]
    return sorted({min(job.tokens, key=lambda m: abs(m - each)) for each in wanted})


def neighbours(tokens: int, among: Sequence[int]) -> list[int]:
    """Return ``tokens`` itself where it is an anchor, and the anchors on both sides."""
    below = [a for a in among if a < tokens][-1:]
    above = [a for a in among if a > tokens][:1]
    return [*below, *([tokens] if tokens in among else []), *above]


def _products(run: Run) -> Iterator[tuple[str, bool]]:
    yield from (("up", False), ("down", False))
    if takes_tma(run.job.problem):
        yield "down", True


def _batches(units: Sequence[Key]) -> list[Sequence[Key]]:
    return [units[i : i + _BATCH] for i in range(0, len(units), _BATCH)]
