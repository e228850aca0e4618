"""Which configuration file SGLang's block-wise and channel-wise GEMM kernels load, as a pure function.

The block FP8, block INT8 and (from 0.5.18 on) channel-wise FP8 kernels look for one file named after the
weight's shape and the GPU, in Release.gemm_folder of the catalogue. There are no folders for Triton versions,
nothing stands in for a missing file, and no environment variable moves the folder (fp8_kernel.py and
int8_kernel.py, 0.5.7 to 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import msgspec
from packaging.version import Version

CHANNELWISE_SINCE = Version("0.5.18")  # get_w8a8_channelwise_fp8_configs
SCALE_STEPS_SINCE = Version("0.5.10")  # _w8a8_block_fp8_matmul steps to the next scale within a block
CLAMPS_SINCE = Version("0.5.12")  # a BLOCK_SIZE_K below the block is raised to it
CLAMPS_FEWER_SINCE = Version("0.5.14")  # on CUDA only where it does not divide the block
HOPPER_KEYS_SINCE = Version("0.5.21")  # SWAP_AB and SPLIT_K of a file are understood, on 9.0 alone

CHANNELWISE = "fp8_w8a8_channelwise"
DTYPES = ("fp8_w8a8", "int8_w8a8", CHANNELWISE)

Source = Literal["exact", "default", "cutlass"]


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is keyed on: a weight's shape on one GPU and how it is stored; ``block`` is (N, K)."""

    rows: int
    depth: int
    dtype: str
    block: tuple[int, int] | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where a weight's configuration comes from: its file, or what serves the weight without one."""

    source: Source
    file: str
    path: str | None = None


def file_name(device: str, weight: Weight) -> str:
    """Return the file name that SGLang looks for; ``device`` is what torch.cuda.get_device_name() says."""
    block = f",block_shape=[{weight.block[0]}, {weight.block[1]}]" if weight.block else ""
    name = device.replace(" ", "_")
    return f"N={weight.rows},K={weight.depth},device_name={name},dtype={weight.dtype}{block}.json"


_NAME = re.compile(
    r"N=([0-9]+),K=([0-9]+),device_name=([^,]*),dtype=([^,]+?)(?:,block_shape=\[([0-9]+), ([0-9]+)\])?\.json"
)


def weight_of(file: str) -> tuple[Weight, str] | None:
    """Return the weight and the device that a file's name stands for, None for another name."""
    found = _NAME.fullmatch(file)
    if found is None:
        return None
    rows, depth, device, dtype, block_n, block_k = found.groups()
    block = (int(block_n), int(block_k)) if block_n else None
    return Weight(rows=int(rows), depth=int(depth), dtype=dtype, block=block), device


def look_up(
    release: Version, device: str, weight: Weight, root: str, names: Collection[str] | None
) -> Found | None:
    """Return what the weight's kernel loads from ``root``; None for a release that reads no such file.

    ``names`` is what lies in the folder, null when there is none: SGLang takes that for a missing file.
    Without a file the block kernels run on a built-in config (a line in the log says so), and channel-wise
    FP8 stays with CUTLASS (nothing says so). Under torch.compile (0.5.9 and newer) no file is read.
    """
    if weight.dtype == CHANNELWISE and release < CHANNELWISE_SINCE:
        return None
    file = file_name(device, weight)
    if names is not None and file in names:
        return Found(source="exact", file=file, path=f"{root}/{file}")
    return Found(source="cutlass" if weight.dtype == CHANNELWISE else "default", file=file)


def clamped(release: Version, weight: Weight, size_k: int, *, cuda: bool = True) -> bool:
    """Whether the release raises a BLOCK_SIZE_K of a block FP8 file to the block's K when it loads it."""
    if weight.dtype != "fp8_w8a8" or weight.block is None or release < CLAMPS_SINCE:
        return False
    block_k = weight.block[1]
    divides = release >= CLAMPS_FEWER_SINCE and cuda and block_k % size_k == 0
    return size_k < block_k and not divides
