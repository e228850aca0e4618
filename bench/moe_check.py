"""What `moe_matrix.py --check` does: outputs against float32, the cache, the run-time group's cost."""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moe_fixture import Points

from sgdoctor.tune.pool import Outcome, Pool

ROUNDS = 11
TURNS = 3


def check(
    points: Points, measure: Pool, exact: Callable[[], Pool], cache: Path, *, tokens: list[int], gpu: bool
) -> dict[str, Any]:
    """Return what was found; ``exact`` starts a worker whose kernel has a constant GROUP_SIZE_M."""
    units = chosen(points, tokens)
    measure.submit({"do": "verify", "units": units})
    outcome = wait_for(measure, 120)
    errors = outcome.value if outcome.ending == "done" else [outcome.text]
    found: dict[str, Any] = {
        "verified": len(errors),
        "largest_error": max((e for e in errors if not isinstance(e, str)), default=None),
        "wrong": [(u, e) for u, e in zip(units, errors, strict=False) if isinstance(e, str) or not e < 0.01],
    }
    if not gpu:
        return found
    without_gpu = {result["hash"] for result in points.compiled.values()}
    found["compiled_without_gpu"] = len(without_gpu)
    found["in_cache_after_launches"] = len(kernels_in(cache))
    tiles = [unit for unit in units if unit[1] == tokens[-1]]
    with exact() as other:
        found["runtime_over_constant_group"] = compare(
            measure, other, {"do": "time", "units": tiles, "rounds": ROUNDS}
        )
    return found


def chosen(points: Points, tokens: list[int]) -> list[tuple[str, int, list[int]]]:
    """Return random points to verify: up, down and down through TMA."""
    draw = random.Random(1)  # noqa: S311
    timed = {(k[0], k[2].tile) for k in points.samples}
    units = []
    for gemm, tma in (("up", False), ("down", False), ("down", True)):
        configs = [c for (g, c) in points.compiled if g == gemm and c.tma == tma and (g, c) in timed]
        for config in draw.sample(configs, min(8, len(configs))):
            grouped = dataclasses.replace(config, group_m=draw.choice((1, 8, 16)))
            units += [(gemm, m, grouped.to_list()) for m in tokens]
    return units


def compare(one: Pool, other: Pool, batch: dict[str, Any]) -> list[float]:
    """Return the ratios of the times of two workers that take turns, sorted."""
    other.submit(batch)  # compiles what is missing
    wait_for(other, 240)
    medians: dict[int, list[list[float]]] = {0: [], 1: []}
    for _ in range(TURNS):
        for side, pool in enumerate((one, other)):
            pool.submit(batch)
            result = wait_for(pool, 120)
            if result.ending == "done":
                medians[side].append(
                    [0.0 if isinstance(r, str) else statistics.median(r) for r in result.value]
                )
    pairs = [
        (statistics.median(a), statistics.median(b))
        for a, b in zip(zip(*medians[0], strict=True), zip(*medians[1], strict=True), strict=True)
    ]
    return sorted(round(a / b, 4) for a, b in pairs if a and b)


def kernels_in(cache: Path) -> list[Path]:
    """Return the compiled kernels in Triton's cache."""
    return list(cache.glob("*/fused_moe_kernel*.cubin"))


def wait_for(pool: Pool, seconds: float) -> Outcome:
    """Return the outcome of the one task that the pool has."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for outcome in pool.outcomes(wait=1.0):
            return outcome
    return Outcome(None, "timeout", text="no outcome")
