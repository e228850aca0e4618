"""How much shared memory the fused-MoE kernel needs at least for a configuration.

Compiled with Triton 3.6.0 for compute capability 8.0, 8.9, 9.0, 10.0 and 12.0 and compared in 1340
configurations: the pipeline keeps num_stages tiles of both operands where the tensor cores read them from
shared memory (9.0 and 10.0 with large tiles), else num_stages - 1. bf16 is exact (10.0: up to 16 bytes more),
block-wise FP8 adds up to 6 % for its scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

_ELEMENT_BYTES = {None: 2, "fp8_w8a8": 1}  # dtype part of the file's name; others were not compared
_STAGES = 3  # Triton's own default on NVIDIA
_LARGE = 64
_SHARED_OPERANDS = {2: ("9.0", "10.0"), 1: ("9.0",)}  # by bytes of an element


def moe(entry: Mapping[str, Any], dtype: str | None, capability: Version | None) -> int | None:
    """Return the bytes of shared memory that an entry with its tile sizes needs at least.

    None where that was not compared: other dtypes, and operands that TMA loads.
    """
    size = _ELEMENT_BYTES.get(dtype)
    stages = entry.get("num_stages", _STAGES)
    if size is None or entry.get("USE_TMA") or not isinstance(stages, int):
        return None
    rows, columns, depth = (entry[name] for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"))
    large = rows >= _LARGE or (size == 1 and columns >= _LARGE)
    kept = stages if str(capability) in _SHARED_OPERANDS[size] and large else stages - 1
    tile: int = (rows + columns) * depth * size
    return max(kept, 0) * tile
