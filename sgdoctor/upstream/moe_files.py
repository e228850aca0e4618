"""What is wrong with the content of fused-MoE configuration files, judged as SGLang uses them.

The kernel facts: one scale a K step (``offs_ks = k_start // group_k``), so BLOCK_SIZE_K must divide the
quantization block; a BLOCK_SIZE_N up to the block's width must divide it (fused_moe_kernel, 0.5.7 to 0.5.23).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from sgdoctor.upstream.moe_config import Found, Lookup, Shape

Table = dict[int, dict[str, Any]]

UP_TMA = Version("0.5.18")  # before, USE_TMA of an up file reaches the kernel as an unknown keyword
LOW_SHARED_MEMORY_DEFAULT = Version("0.5.14")
LOW_SHARED_MEMORY = 128 * 1024

_REQUIRED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_ELEMENT_BYTES = {None: 2, "fp8_w8a8": 1, "int8_w8a8": 1}


class FileCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the content of the files in use means for the server."""

    block_m_mismatch: bool
    problems: tuple[str, ...]
    error: str | None = None  # the exception that SGLang's lookup and reading, in their order, end in


# The one file of all that SGLang 0.5.7 to 0.5.23 ship in which a check below fails (from 0.5.9 on). No two
# files of one folder differ in BLOCK_SIZE_M.
_SHIPPED_WRONG = {
    (
        "3.5.1",
        "E=512,N=256,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128].json",
    ): "has a BLOCK_SIZE_K that does not divide the quantization block of 128 at M = 64, 128, 256, 512: "
    "wrong scales are applied there",
}


class BrokenFile(Exception):  # noqa: N818 (a file, not an error of ours)
    """A file that SGLang cannot turn into a table; the text is the exception it raises."""


def read(path: Path) -> Table:
    """Read a file as get_moe_configs does: ``{int(key): value}``.

    Raises BrokenFile where that raises, OSError when the file cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise BrokenFile(f"{type(error).__name__}: {error} ({path.name})") from error
    except RecursionError as error:
        raise BrokenFile(f"RecursionError: {error} ({path.name})") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise BrokenFile(f"AttributeError: {kind!r} object has no attribute 'items' ({path.name})")
    try:
        return {int(key): value for key, value in content.items()}
    except ValueError as error:
        raise BrokenFile(f"ValueError: {error} ({path.name})") from error


def check(release: Version, shape: Shape, lookup: Lookup, *, shared_memory: int | None = None) -> FileCheck:
    """Check the files that ``lookup`` found, by their own content.

    ``shared_memory`` is what a thread block of the GPU may use, in bytes; unknown: that check is left out.
    Raises OSError when a file cannot be read.
    """
    try:
        up = _table(lookup.up)
        if lookup.error is not None:
            return FileCheck(block_m_mismatch=False, problems=(), error=lookup.error)
        down = _table(lookup.down)
    except BrokenFile as error:
        return FileCheck(block_m_mismatch=False, problems=(str(error),), error=str(error))
    problems: list[str] = []
    for found, table in ((lookup.up, up), (lookup.down, down)):
        if table is not None:
            problems += _problems(found.file, table, shape, shared_memory)
    if up and release < UP_TMA and any("USE_TMA" in entry for entry in _entries(up)):
        problems.append(
            f"{lookup.up.file} has USE_TMA, which this release passes to the up kernel as an unknown keyword"
        )
    mismatch = bool(down) and _differs(release, shape, up, down or {}, shared_memory)
    return FileCheck(block_m_mismatch=mismatch, problems=tuple(problems))


def check_shipped(lookup: Lookup) -> FileCheck | None:
    """Judge the files that ``lookup`` found in a release's own folder, without reading them.

    None where that was not looked at: an up and a down file of different Triton versions.
    """
    if lookup.error is not None:
        return FileCheck(block_m_mismatch=False, problems=(), error=lookup.error)
    own_down = lookup.down.source in ("exact", "fallback")
    if own_down and lookup.up.triton != lookup.down.triton:
        return None
    wrong = _SHIPPED_WRONG.get((lookup.up.triton or "", lookup.up.file))
    problems = (f"{lookup.up.file} {wrong}",) if wrong else ()
    return FileCheck(block_m_mismatch=False, problems=problems)


def _table(found: Found) -> Table | None:
    return read(Path(found.path)) if found.path is not None and found.source != "up" else None


def _entries(table: Table) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in table.values() if isinstance(entry, dict))


def _problems(file: str, table: Table, shape: Shape, shared_memory: int | None) -> Iterator[str]:
    if not table:
        yield f"{file} is empty: SGLang says that it uses it and runs on its built-in default"
    wrong = [key for key, entry in table.items() if not _complete(entry)]
    if wrong:
        yield f"{file} lacks a tile size (an integer BLOCK_SIZE_M, _N, _K and GROUP_SIZE_M) at {_keys(wrong)}"
    good = {key: entry for key, entry in table.items() if _complete(entry)}
    if shape.block_shape is not None and all(shape.block_shape):
        yield from _block_problems(file, good, shape.block_shape)
    if shared_memory is not None:
        size = _ELEMENT_BYTES.get(shape.dtype)
        over = [key for key, entry in good.items() if size and _least_shared(entry, size) > shared_memory]
        if over:
            yield f"{file} needs more shared memory than this GPU's {shared_memory} bytes at {_keys(over)}"


def _complete(entry: Any) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(name), int) and not isinstance(entry[name], bool) and entry[name] > 0
        for name in _REQUIRED
    )


def _block_problems(file: str, table: Table, block: tuple[int, int]) -> Iterator[str]:
    block_n, block_k = block
    wrong = [key for key, entry in table.items() if block_k % entry["BLOCK_SIZE_K"]]
    if wrong:
        yield (
            f"{file} has a BLOCK_SIZE_K that does not divide the quantization block of {block_k} at "
            f"{_keys(wrong)}: wrong scales are applied there"
        )
    wrong = [
        key
        for key, entry in table.items()
        if entry["BLOCK_SIZE_N"] <= block_n and block_n % entry["BLOCK_SIZE_N"]
    ]
    if wrong:
        yield (
            f"{file} has a BLOCK_SIZE_N that does not divide the quantization block of {block_n} at "
            f"{_keys(wrong)}: wrong scales are applied there"
        )


def _keys(keys: list[int]) -> str:
    return "M = " + ", ".join(str(key) for key in sorted(keys))


def _least_shared(entry: Mapping[str, Any], size: int) -> int:
    """Return the bytes of shared memory that Triton's pipeline takes at least.

    Triton 3.6 keeps num_stages - 1 tiles of both operands on compute capability 8.x and 12.0, and num_stages
    on 9.0 and 10.0 with large tiles: compiled and compared over 820 configurations.
    """
    stages = entry.get("num_stages", 3)
    if not isinstance(stages, int):
        return 0
    tile: int = (entry["BLOCK_SIZE_M"] + entry["BLOCK_SIZE_N"]) * entry["BLOCK_SIZE_K"]
    return max(stages - 1, 0) * tile * size


def nearest(table: Table, tokens: int) -> dict[str, Any]:
    """Return the entry that SGLang takes for ``tokens``: the nearest key, the first of two as near."""
    return table[min(table, key=lambda key: abs(key - tokens))]


def default_block_m(release: Version, shape: Shape, tokens: int, *, low_shared_memory: bool = False) -> int:
    """Return BLOCK_SIZE_M of the built-in config (get_default_config)."""
    few = tokens <= shape.experts
    if shape.dtype != "fp8_w8a8":
        return 16 if few else 64
    if shape.block_shape is not None:
        return 64
    if release >= LOW_SHARED_MEMORY_DEFAULT and low_shared_memory:
        return 32 if few else 64
    return 64 if few else 128


def _differs(release: Version, shape: Shape, up: Table | None, down: Table, shared: int | None) -> bool:
    """Whether the two configs differ in BLOCK_SIZE_M for some number of tokens."""
    low = shared is not None and shared < LOW_SHARED_MEMORY
    for tokens in _turning_points(up or {}, down, shape):
        if up:
            entry = nearest(up, tokens)
            mine = entry.get("BLOCK_SIZE_M") if isinstance(entry, dict) else None
        else:
            mine = default_block_m(release, shape, tokens, low_shared_memory=low)
        other = nearest(down, tokens)
        if isinstance(other, dict) and mine is not None and other.get("BLOCK_SIZE_M", mine) != mine:
            return True
    return False


def _turning_points(up: Table, down: Table, shape: Shape) -> set[int]:
    """Return numbers of tokens among which every pair of entries that is ever used together appears."""
    points = {1, shape.experts, shape.experts + 1}
    for table in (up, down):
        keys = sorted(table)
        points.update(keys)
        for left, right in itertools.pairwise(keys):
            middle = (left + right) // 2
            points.update((middle, middle + 1))
    return {point for point in points if point >= 1}
