"""The candidates: launch configurations of SGLang's fused-MoE kernel, and which of them cannot work.

The rules were fitted to sweeps compiled with Triton 3.6.0 for compute capability 8.0, 8.9, 9.0, 10.0 and 12.0
(``tests/tune/sweeps.json``); what they let through is still compiled and judged by what the compiler says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["bf16", "fp16", "fp8_tensor", "fp8_channel", "fp8_block", "int8_channel", "int8_block", "int4"]
Capability = tuple[int, int]

KINDS: tuple[Kind, ...] = (
    "bf16",
    "fp16",
    "fp8_tensor",
    "fp8_channel",
    "fp8_block",
    "int8_channel",
    "int8_block",
    "int4",
)

# benchmark/kernels/fused_moe_triton/common_utils.py: get_configs_compute_bound and the batch sizes of the
# tuner
BATCH_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
BLOCKS_M = (16, 32, 64, 128, 256)
BLOCKS_N = (32, 64, 128, 256)
BLOCKS_K = (64, 128, 256)
GROUPS = (1, 16, 32, 64)
WARPS = (4, 8)
STAGES = (2, 3, 4, 5)

# cudaDevAttrMaxSharedMemoryPerBlockOptin, bytes
SHARED_MEMORY: Mapping[Capability, int] = {
    (7, 5): 65536,
    (8, 0): 166912,
    (8, 6): 101376,
    (8, 7): 166912,
    (8, 9): 101376,
    (9, 0): 232448,
    (10, 0): 232448,
    (10, 3): 232448,
    (11, 0): 232448,
    (12, 0): 101376,
    (12, 1): 101376,
}
_SMALLEST_SHARED_MEMORY = 65536


@dataclass(frozen=True, order=True)
class Config:
    """One launch configuration; ``tma`` is the file's USE_TMA."""

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 1
    warps: int = 4
    stages: int = 3
    tma: bool = False

    def to_sglang(self) -> dict[str, int]:
        """Return the entry of a config file, without USE_TMA (which SGLang does not hand to the kernel)."""
        return {
            "BLOCK_SIZE_M": self.block_m,
            "BLOCK_SIZE_N": self.block_n,
            "BLOCK_SIZE_K": self.block_k,
            "GROUP_SIZE_M": self.group_m,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }

    @classmethod
    def from_sglang(cls, entry: Mapping[str, Any]) -> Config:
        """Read an entry of a config file; what it does not name are Triton's defaults (4 warps, 3 stages)."""
        return cls(
            block_m=entry["BLOCK_SIZE_M"],
            block_n=entry["BLOCK_SIZE_N"],
            block_k=entry["BLOCK_SIZE_K"],
            group_m=entry["GROUP_SIZE_M"],
            warps=entry.get("num_warps", 4),
            stages=entry.get("num_stages", 3),
            tma=bool(entry.get("USE_TMA", False)),
        )

    @property
    def tile(self) -> Config:
        """This configuration without its GROUP_SIZE_M: while exploring, what one binary serves."""
        return replace(self, group_m=1)

    def to_list(self) -> list[int]:
        """Return the fields as JSON takes them; ``Config(*list)`` reads them back."""
        return [
            self.block_m,
            self.block_n,
            self.block_k,
            self.group_m,
            self.warps,
            self.stages,
            int(self.tma),
        ]

    @classmethod
    def from_list(cls, fields: Iterable[int]) -> Config:
        """Read what ``to_list`` wrote."""
        block_m, block_n, block_k, group_m, warps, stages, tma = fields
        return cls(block_m, block_n, block_k, group_m, warps, stages, bool(tma))

    def __str__(self) -> str:
        tma = " TMA" if self.tma else ""
        return (
            f"{self.block_m}x{self.block_n}x{self.block_k} group {self.group_m}, "
            f"{self.warps} warps, {self.stages} stages{tma}"
        )


@dataclass(frozen=True)
class Problem:
    """The experts of one GPU: what the kernel computes, for any number of tokens.

    ``experts`` are the local ones, ``width`` is the intermediate size on this GPU (N of the file name),
    ``hidden`` the model's. ``routed`` is the number of experts that tokens are routed over (more than
    ``experts`` with expert parallelism). ``block`` is (block_n, block_k) of the quantization, (0, group size)
    for int4.
    """

    experts: int
    width: int
    hidden: int
    topk: int
    kind: Kind = "bf16"
    block: tuple[int, int] | None = None
    routed: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind} is none of {', '.join(KINDS)}")
        if (self.kind.endswith("_block") or self.kind == "int4") != (self.block is not None):
            raise ValueError(f"kind {self.kind} and block {self.block} do not belong together")

    @property
    def routed_experts(self) -> int:
        """The experts that the router chooses from."""
        return self.routed or self.experts

    @property
    def absent_experts(self) -> bool:
        """Whether tokens are routed to experts of other GPUs (SGLang's filter_expert)."""
        return self.routed_experts != self.experts

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight."""
        return {"bf16": 2, "fp16": 2, "int4": 0.5}.get(self.kind, 1)

    @property
    def operand_bytes(self) -> int:
        """Bytes of one element of an operand in shared memory, activations and weights alike."""
        return 2 if self.kind in ("bf16", "fp16") else 1

    def shape(self, gemm: str) -> tuple[int, int]:
        """Return (N, K) of a matrix product: ``up`` (gate and up together) or ``down``."""
        return (2 * self.width, self.hidden) if gemm.startswith("up") else (self.hidden, self.width)


def grid(groups: Iterable[int] = GROUPS, blocks_k: Iterable[int] = BLOCKS_K) -> list[Config]:
    """Return upstream's search space for NVIDIA GPUs: 480 tiles times the groups."""
    return [
        Config(m, n, k, g, w, s)
        for s, m, k, n, w, g in itertools.product(STAGES, BLOCKS_M, blocks_k, BLOCKS_N, WARPS, groups)
    ]


def swaps_operands(config: Config, problem: Problem, capability: Capability) -> bool:
    """Whether SGLang computes the transposed product (should_enable_swap_ab, 0.5.9 to 0.5.23)."""
    fp8 = problem.kind.startswith("fp8")
    return fp8 and capability == (9, 0) and config.block_m < 64 and config.block_n >= 64


def shared_memory(config: Config, problem: Problem, capability: Capability) -> int:
    """Return the bytes of shared memory that the kernel takes; for int4, a lower bound.

    Exact for Triton 3.6.0 with bf16, fp16 and block-wise fp8 up to 16 bytes. Where the tensor cores read
    their operands from shared memory (9.0 and 10.x, tiles of 64 rows and more) every stage is a buffer,
    elsewhere one stage lives in registers. Block-wise scales pass through shared memory for tiles with many
    rows or columns.
    """
    rows = config.block_n if swaps_operands(config, problem, capability) else config.block_m
    from_shared = capability[0] in (9, 10) and rows >= 64
    buffers = config.stages if from_shared else config.stages - 1
    if problem.kind == "int4":  # the weights' last stage lives in registers everywhere
        weights = (config.stages - 1) * config.block_n * config.block_k // 2
        return buffers * config.block_m * 2 * config.block_k + weights
    size = buffers * (config.block_m + config.block_n) * config.block_k * problem.operand_bytes
    if problem.kind.endswith("_block"):
        size += 4 * max(
            config.block_m if config.block_m >= 32 * config.warps else 0,
            config.block_n if config.block_n > 128 else 0,
        )
    return size


def shared_memory_limit(capability: Capability) -> int:
    """Return how much shared memory one block may take, in bytes; for a GPU not known here, the least."""
    return SHARED_MEMORY.get(capability, _SMALLEST_SHARED_MEMORY)


def spills(config: Config, problem: Problem, capability: Capability) -> bool:
    """Whether the accumulators alone are sure to overflow the registers.

    256 float32 accumulators a thread always spilt in the sweeps; with block-wise scales, which need a second
    set, 128 did. Fewer may spill as well: only the compiler knows.
    """
    accumulators = config.block_m * config.block_n // (32 * config.warps)
    if problem.kind.endswith("_block") and capability >= (8, 9):
        return accumulators >= 128
    return accumulators >= 256


def fits_quantization(config: Config, problem: Problem) -> bool:
    """Whether every step of the kernel stays within one scale of the quantization.

    The kernel loads one scale a step along K: a BLOCK_SIZE_K larger than the block reads wrong scales,
    silently (fused_moe_kernel, all releases to 0.5.23). A tile along N must divide the block or be a multiple
    of it. The int4 kernel loads a scale for every element along K.
    """
    if problem.block is None or problem.kind == "int4":
        return True
    block_n, block_k = problem.block
    if block_k % config.block_k:
        return False
    return block_n % config.block_n == 0 or config.block_n % block_n == 0


def takes_tma(problem: Problem) -> bool:
    """Whether the down product may read its operands through TMA (USE_TMA of a `_down` file).

    Rows are then in sorted order, but the kernel looks for scales a token at the token's own place: right for
    one scale a tensor or a block, wrong for one a token. The int4 kernel has no TMA. With experts on other
    GPUs, kernels before 0.5.23 write the zeros of absent slots to rows of the sorted buffer that belong to
    others: right or wrong is a matter of which block comes first.
    """
    if problem.absent_experts:
        return False
    return problem.kind != "int4" and not problem.kind.endswith("_channel")


def is_redundant(config: Config, problem: Problem, gemm: str) -> bool:
    """Whether a smaller tile does the same with less padding: it is larger than the padded N or K."""
    n, k = problem.shape(gemm)
    smallest_n, smallest_k = BLOCKS_N[0], BLOCKS_K[0]
    return (config.block_n >= 2 * n and config.block_n > smallest_n) or (
        config.block_k >= 2 * k and config.block_k > smallest_k
    )


def why_not(config: Config, problem: Problem, gemm: str, capability: Capability) -> str | None:
    """Return why a candidate need not even be compiled; null when it should be."""
    limit = shared_memory_limit(capability)
    needed = shared_memory(config, problem, capability)
    if needed > limit:
        return f"needs {needed} bytes of shared memory, this GPU has {limit}"
    if spills(config, problem, capability):
        return "its accumulators do not fit into the registers"
    if not fits_quantization(config, problem):
        return f"its tile does not fit the quantization block {list(problem.block or ())}"
    if is_redundant(config, problem, gemm):
        return "its tile is larger than the matrix"
    return None


def candidates(
    problem: Problem, gemm: str, capability: Capability, groups: Iterable[int] = GROUPS
) -> list[Config]:
    """Return the grid without what cannot work on this GPU; int4 has shallow tiles as well."""
    blocks_k = (32, *BLOCKS_K) if problem.kind == "int4" else BLOCKS_K
    return [c for c in grid(groups, blocks_k) if why_not(c, problem, gemm, capability) is None]


def default_config(problem: Problem, tokens: int, *, low_shared_memory: bool = False) -> Config:
    """Return what SGLang uses when it finds no file (get_default_config, 0.5.9 to 0.5.23).

    ``low_shared_memory``: from 0.5.14 on, GPUs that let a block have less than 128 KiB have another default
    for fp8 that is not block-wise.
    """
    few = tokens <= problem.experts
    if not problem.kind.startswith("fp8"):
        return Config(16, 32, 64, 1) if few else Config(64, 64, 32, 8)
    if problem.block:
        return Config(64, problem.block[0], problem.block[1], 32, 4, 3)
    if low_shared_memory:
        return Config(32, 64, 256, 1, 4, 4) if few else Config(64, 128, 256, 64, 4, 2)
    return Config(64, 128, 128, 1, 4, 4) if few else Config(128, 256, 128, 32, 8, 4)
