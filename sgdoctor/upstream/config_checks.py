"""What is wrong with a configuration file's content, judged as the kernel of a release uses it.

What the kernels do with an entry, read in every release from 0.5.7 to 0.5.23:

- fused_moe_kernel and the block INT8 GEMM load one scale for each step along K (``k_start // group_k``), so
  BLOCK_SIZE_K must divide the quantization block; fused_moe_kernel also loads one scale for a BLOCK_SIZE_N
  up to the block's width.
- The block FP8 GEMM steps on by ``BLOCK_SIZE_K // group_k`` scales up to 0.5.9, so that a smaller
  BLOCK_SIZE_K stays on the first scale; from 0.5.10 on it steps within a block, from 0.5.12 on some small
  ones are raised to the block. A larger one is wrong in all releases.
- A weight no deeper than one block has one scale, and no BLOCK_SIZE_K is wrong for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import Version

from sgdoctor.upstream import config_entries, gemm_config, shared_memory
from sgdoctor.upstream.config_entries import BLOCK_GEMM, CHANNELWISE, LORA, MOE, Kernel, Reporter
from sgdoctor.upstream.config_problem import Gpu, Problem, at_keys
from sgdoctor.upstream.config_table import Table
from sgdoctor.upstream.gemm_config import Weight
from sgdoctor.upstream.moe_config import Shape

UP_TMA = Version("0.5.18")  # before, USE_TMA of an up file reaches the kernel as an unknown keyword

_WRONG = "wrong scales are applied there, so the results are wrong"


def moe(
    release: Version, file: str, table: Table, shape: Shape, *, down: bool, gpu: Gpu
) -> Iterator[Problem]:
    """Yield what is wrong with a fused-MoE file for the up (and gate) or the down projection."""
    report = Reporter(file, MOE)
    if not table:
        instead = "the up projection's config" if down else "its built-in config"
        yield report.problem(
            "empty", "warning", f"is empty: SGLang says that it uses it and runs on {instead}"
        )
    yield from config_entries.check(report, table, gpu)
    entries = _usable(MOE, table)
    if not down and release < UP_TMA:
        yield from _tma(report, table)
    if shape.block_shape is not None and all(shape.block_shape):
        yield from _moe_block(report, entries, shape.block_shape, shape.width if down else None)
    yield from _shared(report, entries, shape, gpu)
    yield from config_entries.partial(report, table, None)


def _usable(kernel: Kernel, table: Table) -> dict[int, Mapping[str, Any]]:
    return {key: entry for key, entry in table.items() if config_entries.usable(kernel, entry)}


def _tma(report: Reporter, table: Table) -> Iterator[Problem]:
    keys = [key for key, entry in table.items() if isinstance(entry, dict) and "USE_TMA" in entry]
    if keys:
        where = report.at(keys)
        text = f"has USE_TMA, which an up file may have from SGLang 0.5.18 on: the launch fails at {where}"
        yield report.problem("tma-in-up-file", "error", text)


def _moe_block(
    report: Reporter, entries: Mapping[int, Mapping[str, Any]], block: tuple[int, int], depth: int | None
) -> Iterator[Problem]:
    block_n, block_k = block
    if depth is None or depth > block_k:
        wrong = [key for key, entry in entries.items() if block_k % entry["BLOCK_SIZE_K"]]
        yield from _block_k(report, entries, wrong, block_k, "does not divide")
    wrong = [
        key
        for key, entry in entries.items()
        if entry["BLOCK_SIZE_N"] <= block_n and block_n % entry["BLOCK_SIZE_N"]
    ]
    if wrong:
        sizes = " and ".join(str(size) for size in sorted({entries[key]["BLOCK_SIZE_N"] for key in wrong}))
        text = (
            f"has BLOCK_SIZE_N {sizes} at {report.at(wrong)}, which does not divide the quantization block of"
        )
        yield report.problem("block-n", "error", f"{text} {block_n}: {_WRONG}")


def _block_k(
    report: Reporter, entries: Mapping[int, Mapping[str, Any]], wrong: list[int], block_k: int, how: str
) -> Iterator[Problem]:
    if wrong:
        sizes = sorted({entries[key]["BLOCK_SIZE_K"] for key in wrong})
        yield report.problem("block-k", "error", crosses_blocks(sizes, wrong, block_k, how))


def crosses_blocks(sizes: list[int], keys: list[int], block_k: int, how: str = "does not divide") -> str:
    """Return in words that tiles of these sizes along K are wrong for a quantization block of ``block_k``."""
    listed = " and ".join(map(str, sizes))
    text = f"has BLOCK_SIZE_K {listed} at {at_keys(keys)}, which {how} the quantization block of {block_k}"
    return f"{text}: {_WRONG}"


def _shared(
    report: Reporter, entries: Mapping[int, Mapping[str, Any]], shape: Shape, gpu: Gpu
) -> Iterator[Problem]:
    if gpu.shared_memory is None:
        return
    needs = {key: shared_memory.moe(entry, shape.dtype, gpu.capability) for key, entry in entries.items()}
    over = [key for key, need in needs.items() if need is not None and need > gpu.shared_memory]
    if over:
        most = max(needs[key] or 0 for key in over)
        text = f"needs up to {most} bytes of shared memory at {report.at(over)}, and this GPU gives a block"
        yield report.problem("shared-memory", "error", f"{text} {gpu.shared_memory}: the launch fails")


def gemm(release: Version, file: str, table: Table, weight: Weight, *, gpu: Gpu) -> Iterator[Problem]:
    """Yield what is wrong with a file of the block FP8, block INT8 or channel-wise FP8 GEMM."""
    channelwise = weight.dtype == gemm_config.CHANNELWISE
    report = Reporter(file, CHANNELWISE if channelwise else BLOCK_GEMM)
    if not table:
        instead = "CUTLASS serves the weight" if channelwise else "the built-in config is used"
        yield report.problem("empty", "warning", f"is empty: without a word {instead}")
    yield from config_entries.check(report, table, gpu)
    entries = _usable(report.kernel, table)
    default = None
    if weight.block is not None:
        yield from _hopper(release, report, entries, weight, gpu)
        yield from _gemm_block(release, report, entries, weight, weight.block[1], gpu)
        default = dict(zip(config_entries.TILES, (64, *weight.block), strict=True))
    yield from config_entries.partial(report, table, default)


def _hopper(
    release: Version, report: Reporter, entries: Mapping[int, Mapping[str, Any]], weight: Weight, gpu: Gpu
) -> Iterator[Problem]:
    """Yield where SWAP_AB or SPLIT_K reaches a kernel that has no such parameter."""
    with_keys = [key for key, entry in entries.items() if "SWAP_AB" in entry or "SPLIT_K" in entry]
    why = None
    if weight.dtype != "fp8_w8a8":
        wrong, why = with_keys, "which the INT8 kernel does not take"
    elif release < gemm_config.HOPPER_KEYS_SINCE:
        wrong, why = with_keys, "which the kernel takes from SGLang 0.5.21 on"
    elif gpu.capability is not None and gpu.capability != Version("9.0"):
        wrong, why = with_keys, f"which the kernel takes on compute capability 9.0, not {gpu.capability}"
    else:
        wrong = [key for key in with_keys if not _chooses_hopper(entries[key])]
        why = "which the kernel takes only where SWAP_AB is true or SPLIT_K above 1"
    if wrong:
        text = f"has SWAP_AB or SPLIT_K, {why}: the launch fails at {report.at(wrong)}"
        yield report.problem("key-unknown", "error", text)


def _chooses_hopper(entry: Mapping[str, Any]) -> bool:
    split = entry.get("SPLIT_K", 1)
    return bool(entry.get("SWAP_AB", False)) or (isinstance(split, int) and split > 1)


def _gemm_block(
    release: Version,
    report: Reporter,
    entries: Mapping[int, Mapping[str, Any]],
    weight: Weight,
    block_k: int,
    gpu: Gpu,
) -> Iterator[Problem]:
    cuda = gpu.vendor == "nvidia"
    raised = [
        key
        for key, entry in entries.items()
        if gemm_config.clamped(release, weight, entry["BLOCK_SIZE_K"], cuda=cuda)
    ]
    if raised and gpu.vendor is not None:
        text = f"has a BLOCK_SIZE_K below the quantization block at {report.at(raised)}: SGLang raises it to"
        yield report.problem("block-k-raised", "info", f"{text} {block_k}, for which it was not tuned")
    if weight.depth <= block_k:
        return
    wrong = [
        key
        for key, entry in entries.items()
        if key not in raised and _wrong_step(release, weight.dtype, entry["BLOCK_SIZE_K"], block_k)
    ]
    old = weight.dtype == "fp8_w8a8" and release < gemm_config.SCALE_STEPS_SINCE
    yield from _block_k(report, entries, wrong, block_k, "is not" if old else "does not divide")


def _wrong_step(release: Version, dtype: str, size_k: int, block_k: int) -> bool:
    if dtype == "fp8_w8a8" and release < gemm_config.SCALE_STEPS_SINCE:
        return size_k != block_k
    return block_k % size_k != 0


def lora(file: str, table: Table) -> Iterator[Problem]:
    """Yield what is wrong with a file of the chunked LoRA kernels."""
    report = Reporter(file, LORA)
    if not table:
        yield report.problem(
            "empty", "error", "is empty: the first batch with an adapter ends in a ValueError"
        )
    yield from config_entries.check(report, table, Gpu())
