"""Which tokens go to which experts while timing: several routings that follow one another in a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sgdoctor.tune.align import align
from sgdoctor.tune.space import Problem

# What the kernel is specialized on is whether a length is divisible by 16 (and whether it is 1): with every
# length a multiple of 16, one binary serves all batch sizes while exploring.
ALIGNMENT = 16
_ATTEMPTS = 24


@dataclass
class Routing:
    """One routing of a batch: expert ids and weights of shape (tokens, topk), and their alignment to blocks.

    ``exact``: aligned as SGLang does it, not padded to ALIGNMENT.
    """

    ids: Any
    weights: Any
    experts: int
    exact: bool = False
    _aligned: dict[int, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The batch size."""
        return int(self.ids.shape[0])

    @property
    def slots(self) -> int:
        """Tokens times topk: the rows of the products."""
        return int(self.ids.numel())

    @property
    def counted(self) -> Any:
        """What the launcher counts the slots of (it takes `topk_ids.numel()`)."""
        if self.exact or self.slots % ALIGNMENT == 0:
            return self.ids
        import torch

        return torch.empty(_rounded(self.slots), dtype=self.ids.dtype, device="meta")

    def aligned(self, block: int) -> Any:
        """Return (sorted_token_ids, expert_ids, num_tokens_post_padded) for blocks of ``block`` rows."""
        if block not in self._aligned:
            self._aligned[block] = self._align(block)
        return self._aligned[block]

    def _align(self, block: int) -> Any:
        if self.exact:
            return align(self.ids, block, self.experts)
        return align(
            self.ids, block, self.experts, padded_to=ALIGNMENT, sentinel=max(self.slots, _rounded(self.slots))
        )


def _rounded(slots: int) -> int:
    return -(-slots // ALIGNMENT) * ALIGNMENT


def launches(problem: Problem, gemm: str, tokens: int, *, bandwidth: float = 3e12) -> int:
    """Return how many launches one timed graph should hold, each with a routing of its own.

    Enough for some 300 µs at the pace of memory (``bandwidth`` in bytes/s), between 2 and 32; few launches of
    a large batch are long enough, and read all weights anyway.
    """
    n, k = problem.shape(gemm)
    slots = tokens * problem.topk
    active = problem.experts * (1 - (1 - 1 / problem.experts) ** slots)
    moved = active * n * k * problem.weight_bytes + slots * (n + k) * problem.operand_bytes
    operations = 2 * slots * n * k
    seconds = max(moved / bandwidth, operations / 4e14) + 2e-6
    return max(2, min(32, round(300e-6 / seconds)))


def uniform(problem: Problem, tokens: int, count: int, *, device: str, seed: int = 0) -> list[Routing]:
    """Return ``count`` uniform random routings, each sharing as few experts as possible with the one before.

    Weights are then read from memory, as in serving, where every other layer lies between two uses.
    """
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(seed * 1_000_003 + tokens)
    routings: list[Routing] = []
    recent: list[Any] = []
    for _ in range(count):
        ids = _draw(problem, tokens, recent, generator, device)
        weights = torch.rand(tokens, problem.topk, generator=generator, device=device) + 0.1
        weights /= weights.sum(dim=1, keepdim=True)
        used = torch.zeros(problem.routed_experts, dtype=torch.bool, device=device)
        used[ids.flatten().long()] = True
        recent = [used, *recent[:2]]
        if problem.absent_experts:
            ids = torch.where(ids < problem.experts, ids, -1)
        routings.append(Routing(ids.to(torch.int32), weights, problem.experts))
    return routings


def _draw(problem: Problem, tokens: int, recent: list[Any], generator: Any, device: str) -> Any:
    """Draw ids of shape (tokens, topk); of several draws keep the one that shares least with the recent."""
    import torch

    experts, topk = problem.routed_experts, problem.topk
    attempts = _ATTEMPTS if recent and tokens * topk <= experts else 1
    scores = torch.rand(attempts, tokens, experts, generator=generator, device=device)
    draws = scores.topk(topk, dim=2).indices
    if attempts == 1:
        return draws[0]
    used = torch.stack(recent).any(dim=0)
    overlap = used[draws.reshape(attempts, -1)].sum(dim=1)
    return draws[int(overlap.argmin())]


def empty(problem: Problem, tokens: int, *, exact: bool = False) -> Routing:
    """Return a routing without contents, on torch's meta device, for compiling without a GPU."""
    import torch

    ids = torch.empty(tokens, problem.topk, dtype=torch.int32, device="meta")
    weights = torch.empty(tokens, problem.topk, dtype=torch.float32, device="meta")
    return _Empty(ids, weights, problem.experts, exact=exact)


class _Empty(Routing):
    def _align(self, block: int) -> Any:
        import torch

        from sgdoctor.tune.align import capacity

        size = capacity(self.slots, self.experts, block, padded_to=1 if self.exact else ALIGNMENT)
        return (
            torch.empty(size, dtype=torch.int32, device="meta"),
            torch.empty(-(-size // block), dtype=torch.int32, device="meta"),
            torch.empty(1, dtype=torch.int32, device="meta"),
        )
