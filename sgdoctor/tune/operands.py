"""The tensors that a launch of the kernel needs, for every quantization, and what it should compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sgdoctor.tune.kernel import QUANTIZED
from sgdoctor.tune.routing import Routing
from sgdoctor.tune.space import Config, Problem

FP8_LARGEST = 448.0


@dataclass
class Matrix:
    """A quantized or plain tensor and its scales."""

    data: Any
    scale: Any = None


@dataclass
class Operands:
    """Weights of both products (copies of them, used in turn), activations for up to ``tokens`` tokens.

    ``up`` multiplies (tokens, hidden) by (experts, 2 width, hidden); ``down`` (slots, width) by
    (experts, hidden, width) and by the router's weights. With TMA, ``down`` reads its rows in the sorted
    order in which ``up_sorted`` wrote them.
    """

    problem: Problem
    device: str
    tokens: int
    weights: dict[str, list[Matrix]]
    activations: dict[str, Matrix]
    output: Any

    def arguments(self, gemm: str, config: Config, routing: Routing, turn: int = 0) -> dict[str, Any]:
        """Return what SGLang hands to its launcher for this product (fused_moe.py of 0.5.9 to 0.5.23)."""
        import triton.language as tl

        problem = self.problem
        sorted_ids, expert_ids, padded = routing.aligned(config.block_m)
        weights = self.weights[gemm.removesuffix("_sorted")]
        weight = weights[turn % len(weights)]
        down = gemm == "down"
        return {
            "A": self.activation(gemm, config, routing),
            "B": weight.data,
            "bias": None,
            "C": self.result(gemm, config, routing),
            "A_scale": None,
            "B_scale": weight.scale,
            "B_zp": None,
            "topk_weights": routing.weights,
            "topk_ids": routing.counted,
            "sorted_token_ids": sorted_ids,
            "expert_ids": expert_ids,
            "num_tokens_post_padded": padded,
            "mul_routed_weight": down,
            "top_k": 1 if down else problem.topk,
            "config": config.to_sglang(),
            "compute_type": tl.float16 if self.output.dtype == _torch().float16 else tl.bfloat16,
            "use_fp8_w8a8": problem.kind.startswith("fp8"),
            "use_int8_w8a8": problem.kind.startswith("int8"),
            "use_int8_w8a16": False,
            "use_int4_w4a16": problem.kind == "int4",
            "per_channel_quant": problem.kind.endswith("_channel"),
            "block_shape": list(problem.block) if problem.block else None,
            "a_use_tma": down and config.tma,
            "b_use_tma": config.tma,
            "c_sorted": gemm == "up_sorted",
            "filter_expert": problem.absent_experts,
            "router_topk": problem.topk if down else 1,
        }

    def rows(self, gemm: str, config: Config, routing: Routing) -> int:
        """Return how many rows the side of a product has that is laid out by slot or by sorted position."""
        if not self.in_sorted_order(gemm, config):
            return routing.slots
        # fused_moe.py: total_tokens
        return routing.slots + min(routing.slots, self.problem.experts + 1) * (config.block_m - 1)

    def in_sorted_order(self, gemm: str, config: Config) -> bool:
        """Whether that side is laid out by sorted position; the int4 kernel does not know that order."""
        wanted = gemm == "up_sorted" or (gemm == "down" and config.tma)
        return wanted and self.problem.kind != "int4"

    def activation(self, gemm: str, config: Config, routing: Routing) -> Any:
        """Return the activations as the launcher wants them, with their quantized form attached."""
        down = gemm == "down"
        rows = self.rows(gemm, config, routing) if down else routing.tokens
        matrix = self.activations["down" if down else "up"]
        data = matrix.data[:rows]
        if matrix.scale is None:
            return data
        plain = _torch().empty(data.shape, dtype=self.output.dtype, device="meta")
        per_row = matrix.scale.ndim == 2
        setattr(plain, QUANTIZED, (data, matrix.scale[:rows] if per_row else matrix.scale))
        return plain

    def result(self, gemm: str, config: Config, routing: Routing) -> Any:
        """Return the tensor that the product is written into."""
        n, _ = self.problem.shape(gemm)
        rows = routing.slots if gemm == "down" else self.rows(gemm, config, routing)
        flat = self.output[: rows * n]
        return flat.view(routing.tokens, self.problem.topk, n) if gemm == "down" else flat.view(rows, n)


def make(
    problem: Problem, tokens: int, *, device: str, copies: int = 1, seed: int = 0, half: bool = False
) -> Operands:
    """Make random operands on ``device`` (``meta``: their shapes alone).

    ``half`` computes bf16 and quantized kinds with fp16 activations: Triton's interpreter multiplies bf16
    wrongly.
    """
    torch = _torch()
    generator = None
    if device != "meta":
        generator = torch.Generator(device=device)
        generator.manual_seed(seed)
    plain = torch.float16 if half or problem.kind == "fp16" else torch.bfloat16
    maker = _Maker(problem, device, generator, plain)
    slots = tokens * problem.topk
    sorted_rows = slots + min(slots, problem.experts + 1) * 255
    weights = {g: [maker.weight(*problem.shape(g)) for _ in range(copies)] for g in ("up", "down")}
    activations = {
        "up": maker.activation(tokens, problem.hidden),
        "down": maker.activation(sorted_rows, problem.width),
    }
    elements = max(sorted_rows * 2 * problem.width, slots * problem.hidden)
    # Rows of absent experts stay unwritten in sorted order, and the activation reads them all the same.
    output = torch.zeros(elements, dtype=plain, device=device)
    return Operands(problem, device, tokens, weights, activations, output)


@dataclass
class _Maker:
    problem: Problem
    device: str
    generator: Any
    plain: Any

    def normal(self, *shape: int) -> Any:
        return _torch().randn(*shape, dtype=self.plain, device=self.device, generator=self.generator)

    def scales(self, *shape: int, largest: float) -> Any:
        """Return positive float32 scales that differ from one another by up to a factor of 4."""
        torch = _torch()
        uniform = torch.rand(*shape, dtype=torch.float32, device=self.device, generator=self.generator)
        return (uniform * 0.75 + 0.25) * largest

    def integers(self, low: int, high: int, *shape: int, dtype: Any) -> Any:
        return _torch().randint(low, high, shape, dtype=dtype, device=self.device, generator=self.generator)

    def weight(self, n: int, k: int) -> Matrix:
        experts, kind, torch = self.problem.experts, self.problem.kind, _torch()
        if kind in ("bf16", "fp16"):
            return Matrix(self.normal(experts, n, k) / math.sqrt(k))
        if kind == "int4":
            group = (self.problem.block or (0, 0))[1]
            packed = self.integers(0, 256, experts, n, k // 2, dtype=torch.uint8)
            return Matrix(packed, self.scales(experts, n, k // group, largest=0.02).to(self.plain))
        data = self._eight_bits(experts, n, k)
        largest = 0.02 / math.sqrt(k)
        if self.problem.block:
            block_n, block_k = self.problem.block
            return Matrix(data, self.scales(experts, -(-n // block_n), -(-k // block_k), largest=largest))
        if kind.endswith("_channel"):
            return Matrix(data, self.scales(experts, n, 1, largest=largest))
        return Matrix(data, self.scales(experts, largest=largest))

    def activation(self, rows: int, k: int) -> Matrix:
        if self.problem.kind in ("bf16", "fp16", "int4"):
            return Matrix(self.normal(rows, k))
        data = self._eight_bits(rows, k)
        if self.problem.block:
            return Matrix(data, self.scales(rows, -(-k // self.problem.block[1]), largest=0.05))
        if self.problem.kind.endswith("_channel"):
            return Matrix(data, self.scales(rows, 1, largest=0.05))
        return Matrix(data, self.scales(1, largest=0.05))

    def _eight_bits(self, *shape: int) -> Any:
        torch = _torch()
        if self.problem.kind.startswith("int8"):
            return self.integers(-127, 128, *shape, dtype=torch.int8)
        data = torch.empty(*shape, dtype=torch.float8_e4m3fn, device=self.device)
        if self.device != "meta":
            for part in range(shape[0]) if len(shape) == 3 else [slice(None)]:
                data[part] = (
                    (self.normal(*data[part].shape) * 30).clamp(-FP8_LARGEST, FP8_LARGEST).to(data.dtype)
                )
        return data


def _expected(
    operands: Operands, gemm: str, config: Config, routing: Routing, turn: int
) -> Iterator[tuple[Any, Any]]:
    """Yield, an expert at a time, rows of the result and what they should be: in float32, dequantized.

    One expert's rows are little beside those of a large batch: there need be no room for all in float32.
    Rows of absent experts are zero, but in sorted order: nobody reads them there, and no release writes them.
    """
    torch = _torch()
    problem = operands.problem
    n, k = problem.shape(gemm)
    weights = operands.weights[gemm.removesuffix("_sorted")]
    weight = weights[turn % len(weights)]
    ids = routing.ids.flatten().long()
    slots = torch.arange(routing.slots, device=ids.device)
    position = _positions(config, routing)
    down = gemm == "down"
    in_sorted_order = operands.in_sorted_order(gemm, config)
    source = (position if in_sorted_order else slots) if down else slots // problem.topk
    target = position if in_sorted_order and not down else slots
    activation = operands.activations["down" if down else "up"]
    for expert in ids.unique().tolist():
        here = (ids == expert).nonzero().flatten()
        if expert < 0:
            if down or not in_sorted_order:
                yield target[here], torch.zeros(len(here), n, dtype=torch.float32, device=ids.device)
            continue
        a = _dequantized(activation, source[here], k, problem, weight=False)
        b = _dequantized(weight, expert, k, problem, weight=True)
        product = a @ b.T
        if down:
            product *= routing.weights.flatten()[here][:, None].float()
        yield target[here], product


def _positions(config: Config, routing: Routing) -> Any:
    """Return where each slot lies in the sorted order."""
    torch = _torch()
    sorted_ids = routing.aligned(config.block_m)[0].long()
    positions = torch.zeros(routing.slots, dtype=torch.long, device=sorted_ids.device)
    real = (sorted_ids < routing.slots).nonzero().flatten()
    positions[sorted_ids[real]] = real
    return positions


def _dequantized(matrix: Matrix, index: Any, k: int, problem: Problem, *, weight: bool) -> Any:
    torch = _torch()
    data = matrix.data[index]
    if matrix.scale is None:
        return data.float()
    scale = matrix.scale[index] if matrix.scale.shape[0] > 1 or weight else matrix.scale
    scale = scale.float()
    if problem.kind == "int4":
        low, high = data & 0xF, data >> 4
        data = torch.stack((low, high), dim=-1).flatten(-2).float() - 8
        return data * scale.repeat_interleave((problem.block or (0, 0))[1], -1)
    data = data.float()
    if problem.block:
        block_n, block_k = problem.block
        scale = scale.repeat_interleave(block_k, -1)[..., :k]
        if weight:
            scale = scale.repeat_interleave(block_n, -2)[: data.shape[0]]
    return data * scale


def relative_error(operands: Operands, gemm: str, config: Config, routing: Routing, turn: int = 0) -> float:
    """Return ‖result - expected‖ / ‖expected‖ of what the last launch wrote; NaN results give NaN.

    Where all of a batch went to absent experts the result must be zero: then it is 0, else infinite.
    """
    n, _ = operands.problem.shape(gemm)
    got = operands.result(gemm, config, routing).view(-1, n)
    wrong = size = 0.0
    for rows, expected in _expected(operands, gemm, config, routing, turn):
        wrong += float((got[rows].float() - expected).square().sum())
        size += float(expected.square().sum())
    if size:
        return math.sqrt(wrong / size)
    return wrong if math.isnan(wrong) else math.inf if wrong else 0.0


def _torch() -> Any:
    import torch

    return torch
