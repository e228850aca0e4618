"""Up and down projection on configs with different BLOCK_SIZE_M, which share one sorting of the tokens.

try_get_optimal_moe_config asserts that they agree up to 0.5.12 (a bare AssertionError ends the server) and
overrides the down projection's from 0.5.13 on.
"""

from __future__ import annotations

import itertools
from typing import Any

from packaging.version import Version

from sgdoctor.upstream.config_problem import Problem, at_keys
from sgdoctor.upstream.config_table import Table
from sgdoctor.upstream.moe_config import Shape

DIFFERS = "block-m-differs"
OVERRIDES = Version("0.5.13")
LOW_SHARED_MEMORY_DEFAULT = Version("0.5.14")
LOW_SHARED_MEMORY = 128 * 1024


def nearest(table: Table, tokens: int) -> Any:
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


def differing(
    release: Version, shape: Shape, up: Table | None, down: Table, shared_memory: int | None
) -> list[int]:
    """Return numbers of tokens at which the two configs differ in BLOCK_SIZE_M, empty when none does.

    ``up`` is null or empty where the up projection runs on the built-in config; ``shared_memory`` is what a
    block of the GPU may use.
    """
    if not down:
        return []
    low = shared_memory is not None and shared_memory < LOW_SHARED_MEMORY
    found = []
    for tokens in sorted(_turning_points(up or {}, down, shape)):
        if up:
            entry = nearest(up, tokens)
            mine = entry.get("BLOCK_SIZE_M") if isinstance(entry, dict) else None
        else:
            mine = default_block_m(release, shape, tokens, low_shared_memory=low)
        other = nearest(down, tokens)
        if isinstance(other, dict) and mine is not None and other.get("BLOCK_SIZE_M", mine) != mine:
            found.append(tokens)
    return found


def problem(
    release: Version, file: str, shape: Shape, up: Table, down: Table, other: str, shared_memory: int | None
) -> Problem | None:
    """Return what is wrong with the pair: ``file`` is the down file, ``other`` the up config in words."""
    tokens = differing(release, shape, up, down, shared_memory)
    if tokens:
        fatal = release < OVERRIDES
        means = (
            "the server ends in an AssertionError there"
            if fatal
            else "SGLang runs it with the up projection's, for which it was not tuned"
        )
        text = f"has another BLOCK_SIZE_M at {at_keys(tokens)} than {other}: {means}"
        return Problem(code=DIFFERS, severity="error" if fatal else "info", file=file, text=text)
    if up and down and set(up) != set(down):
        text = f"has other keys than {other} (in one of the two: {at_keys(set(up) ^ set(down))})"
        return Problem(code="keys-differ", severity="info", file=file, text=text)
    return None


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
