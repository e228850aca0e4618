"""The whole expert computation of a batch, as SGLang's fused_experts_impl does it.

That is: align, up, activation, down, sum. The products are the installed kernel with its true, constant
GROUP_SIZE_M and SGLang's true alignment. The activation and the sum are the Triton kernels of the same file.
Quantized kinds read activations that were quantized beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sgdoctor.tune import kernel, routing
from sgdoctor.tune.align_kernel import Aligned
from sgdoctor.tune.measure import Bench, Unit
from sgdoctor.tune.model import Pair
from sgdoctor.tune.operands import Matrix, Operands
from sgdoctor.tune.routing import Routing


@dataclass(frozen=True)
class WholeUnit:
    """What is timed: the whole computation at one batch size."""

    tokens: int
    pair: Pair

    @property
    def gemm(self) -> str:
        """What decides how many launches a graph holds."""
        return "up"


class Realigned(Routing):
    """A routing aligned exactly as SGLang does it, on the GPU, as often as asked."""

    def _align(self, block: int) -> Any:
        aligner = Aligned(self.ids, self.experts, block)
        aligner.run()
        self.aligners[block] = aligner
        return aligner.sorted_ids, aligner.expert_ids, aligner.padded

    @property
    def aligners(self) -> dict[int, Aligned]:
        """The buffers by BLOCK_SIZE_M."""
        found: dict[int, Aligned] = self.__dict__.setdefault("_aligners", {})
        return found


class Experts(Bench):
    """Times and checks the true kernel: whole computations (WholeUnit) and single products (Unit)."""

    def __init__(self, module: Any, bench: Bench) -> None:
        super().__init__(module, bench.clock, bench.operands, seed=bench.seed)
        self.module = module
        self.activated, self.summed = _buffers(bench.operands)

    def routings(self, gemm: str, tokens: int) -> list[Routing]:
        """Return the routings of one batch size, aligned exactly."""
        count = routing.launches(self.problem, gemm, tokens) if self.device == "cuda" else 1
        key = (tokens, count)
        if key not in self._routings:
            drawn = routing.uniform(self.problem, tokens, count, device=self.device, seed=self.seed + 1)
            self._routings[key] = [Realigned(r.ids, r.weights, r.experts, exact=True) for r in drawn]
        return self._routings[key]

    def launcher(self, unit: Any, chosen: Routing, turn: int) -> Callable[[], None]:
        """Return one launch of a product, or one whole computation."""
        if isinstance(unit, WholeUnit):
            return self._whole(unit.pair, chosen, turn)
        return super().launcher(unit, chosen, turn)

    def _whole(self, pair: Pair, chosen: Routing, turn: int) -> Callable[[], None]:
        problem, tma = self.problem, pair.down.tma
        first = "up_sorted" if tma else "up"
        up = self.operands.arguments(first, pair.up, chosen, turn)
        down = self.operands.arguments("down", pair.down, chosen, turn)
        assert isinstance(chosen, Realigned)  # noqa: S101 (routings makes no others)
        aligner = chosen.aligners[pair.up.block_m]
        rows = self.operands.rows(first, pair.up, chosen)
        gate_and_up = self.operands.result(first, pair.up, chosen)
        activated = self.activated[: rows * problem.width].view(rows, problem.width)
        if self.operands.activations["down"].scale is None:
            down["A"] = activated
        products = down["C"]
        summed = self.summed[: chosen.tokens]
        config, expert_ids = pair.up.to_sglang(), chosen.aligned(pair.up.block_m)[1]

        def run() -> None:
            aligner.run()
            self.call(up)
            self.module.act_and_mul_triton(gate_and_up, activated, config, chosen.ids, expert_ids, tma)
            self.call(down)
            self.module.moe_sum_reduce_triton(products, summed, 1.0)

        return run


def products(pair: Pair, tokens: int) -> list[Unit]:
    """Return the two products of a pair: up writes in sorted order where down reads through TMA."""
    return [
        Unit("up_sorted" if pair.down.tma else "up", tokens, pair.up),
        Unit("down", tokens, pair.down),
    ]


def load(path: Any, capability: Any, bench: Bench, *, pdl: bool | None) -> Experts:
    """Load the kernel as the server will run it, sharing the operands of ``bench``."""
    return Experts(kernel.load(path, capability, pdl=pdl), bench)


def _buffers(operands: Operands) -> tuple[Any, Any]:
    """Return room for the activated rows and for the sums."""
    import torch

    down: Matrix = operands.activations["down"]
    rows, width = down.data.shape[0], operands.problem.width
    kind = operands.output.dtype
    activated = torch.zeros(rows * width, dtype=kind, device=operands.device)
    summed = torch.zeros(operands.tokens, operands.problem.hidden, dtype=kind, device=operands.device)
    return activated, summed
