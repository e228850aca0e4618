"""How fast a batch could be at most: nobody needs to search on where that is reached."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sgdoctor.tune.space import Problem

if TYPE_CHECKING:
    from sgdoctor.tune.run import Run

NEAR = 1.03


def microseconds(problem: Problem, tokens: int, *, bandwidth: float, flops: float) -> float:
    """Return a lower bound of both products under uniform routing.

    Of each product the larger of what memory and what the tensor cores need: ``bandwidth`` in bytes/s,
    ``flops`` in FLOP/s for bf16; eight-bit kinds compute twice as fast.
    """
    slots = tokens * problem.topk * problem.experts / problem.routed_experts
    active = problem.experts * (1 - (1 - 1 / problem.experts) ** slots)
    rate = flops * (2 if problem.operand_bytes == 1 else 1)
    total = 0.0
    for gemm in ("up", "down"):
        n, k = problem.shape(gemm)
        rows_read = tokens if gemm == "up" else slots
        moved = active * n * k * problem.weight_bytes + rows_read * k * problem.operand_bytes + slots * n * 2
        total += max(moved / bandwidth, 2 * slots * n * k / rate)
    return total * 1e6


def reached(run: Run, tokens: int, *, before: str) -> bool:
    """Whether the best pair found before a phase is within 3% of the bound; false where that is not known."""
    about = run.about()
    if not about.get("bandwidth") or not about.get("flops"):
        return False
    up, down = (run.points.times(gemm, tokens, before=before) for gemm in ("up", "down"))
    best = min(
        (
            first + second
            for one, first in up.items()
            for other, second in down.items()
            if one.block_m == other.block_m
        ),
        default=math.inf,
    )
    bound = microseconds(run.job.problem, tokens, bandwidth=about["bandwidth"], flops=about["flops"])
    return best <= NEAR * bound
