"""Which configuration file SGLang's chunked LoRA kernels (csgmv) load, as a pure function.

From 0.5.11 on (lora_tuning_config.py; its code is the same up to 0.5.23). Other Triton versions' folders
stand in, in the reverse order of their names as text: triton_3_9_0 goes before triton_3_10_0.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from packaging.version import Version

from sgdoctor.upstream.moe_config import Listing, folder_of

CONFIG_DIR_VARIABLE = "SGLANG_LORA_CONFIG_DIR"  # replaces the package's own: $DIR/csgmv_configs/triton_X_Y_Z
SINCE = Version("0.5.11")
KERNELS = ("shrink", "expand")

_FOLDERS = (
    (Version("0.5.22"), "kernels/ops/lora/dense/csgmv_configs"),
    (Version("0.5.16"), "kernels/ops/gemm/csgmv_configs"),
    (SINCE, "srt/lora/triton_ops/csgmv_configs"),
)
FOLDERS = tuple(folder for _, folder in _FOLDERS)

Source = Literal["exact", "fallback", "default"]


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is keyed on: the kernel, its large dimension, the largest rank, the number of slices."""

    kernel: str
    size: int
    rank: int
    slices: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where a kernel's configuration comes from; ``folder`` is the one that holds the file in use."""

    source: Source
    file: str
    folder: str | None = None
    path: str | None = None


def folder(release: Version) -> str | None:
    """Return the folder of the ``triton_*`` folders below the ``sglang`` package; None before 0.5.11."""
    return next((folder for since, folder in _FOLDERS if release >= since), None)


def file_name(device: str, adapter: Adapter) -> str:
    """Return the file name that SGLang looks for (``device=``, not ``device_name=``)."""
    name = device.replace(" ", "_")
    return f"lora_{adapter.kernel},K={adapter.size},R={adapter.rank},S={adapter.slices},device={name}.json"


_NAME = re.compile(r"lora_([^,]*),K=([0-9]+),R=([0-9]+),S=([0-9]+),device=([^,]*)\.json")


def adapter_of(file: str) -> tuple[Adapter, str] | None:
    """Return the kernel's shape and the device that a file's name stands for, None for another name."""
    found = _NAME.fullmatch(file)
    if found is None:
        return None
    kernel, size, rank, slices, device = found.groups()
    return Adapter(kernel=kernel, size=int(size), rank=int(rank), slices=int(slices)), device


def look_up(triton: str, device: str, adapter: Adapter, listing: Listing) -> Found:
    """Return what get_lora_configs loads from ``listing``, the folder ``csgmv_configs``.

    Without a file the kernel runs on built-in block sizes. Nothing in the folder ends the lookup.
    """
    file = file_name(device, adapter)
    entries = listing.entries or {}
    own = folder_of(triton)
    for name in (own, *sorted((each for each in entries if each.startswith("triton_")), reverse=True)):
        if file in (entries.get(name) or ()):
            source: Source = "exact" if name == own else "fallback"
            return Found(source=source, file=file, folder=name, path=f"{listing.root}/{name}/{file}")
    return Found(source="default", file=file)
