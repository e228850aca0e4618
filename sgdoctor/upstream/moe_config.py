"""Which fused-MoE Triton configuration file SGLang loads (its fused_moe_triton_config.py as a pure function).

Up to 0.5.11 the folders of other Triton versions are a fixed list; from 0.5.12 on they are whatever lies in
``configs/``, newest first. Compared with the lookup of every release from 0.5.7 to 0.5.23.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from packaging.version import Version

CONFIG_DIR_VARIABLE = "SGLANG_MOE_CONFIG_DIR"

# get_moe_configs: supported_triton_versions, 0.5.7 to 0.5.11
FIXED_FALLBACKS = ("3.4.0", "3.3.1", "3.2.0", "3.1.0")

DISCOVERS_FOLDERS = Version("0.5.12")

Source = Literal["exact", "fallback", "default", "up", "error"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a config file is keyed on: the experts of one GPU and how their weights are stored."""

    experts: int
    width: int
    dtype: str | None = None
    block_shape: tuple[int, int] | None = None
    per_channel: bool = False


class Listing(msgspec.Struct, frozen=True):
    """What lies in a ``configs/`` folder: its entries and, for those that are folders, the names in them.

    ``entries`` is null when the folder does not exist (``trouble`` is the exception that listing it raises).
    ``on_disk``: the files can be read here.
    """

    root: str
    entries: Mapping[str, frozenset[str] | None] | None
    trouble: str | None = None
    on_disk: bool = False

    @classmethod
    def from_catalogue(cls, root: str, folders: Mapping[str, frozenset[str] | set[str]]) -> Listing:
        """Return the folder that a release ships; ``folders`` maps ``3.6.0`` or ``triton_3_6_0`` to names."""
        return cls(root, {folder_of(name): frozenset(files) for name, files in folders.items()})

    @classmethod
    def from_disk(cls, root: Path) -> Listing:
        """Read the folder ``root``.

        Raises OSError when it exists but cannot be read: what SGLang would find there is not known.
        """
        try:
            names = os.listdir(root)  # noqa: PTH208 (in the order in which SGLang sees them)
        except (FileNotFoundError, NotADirectoryError) as error:
            return cls(str(root), None, f"{type(error).__name__}: {error}", on_disk=True)
        entries: dict[str, frozenset[str] | None] = {}
        for name in names:
            if name.startswith("triton_"):
                folder = root / name
                entries[name] = frozenset(os.listdir(folder)) if folder.is_dir() else None  # noqa: PTH208
        return cls(str(root), entries, on_disk=True)

    def has(self, triton: str, file: str) -> bool:
        """Whether the folder of this Triton version holds ``file``."""
        names = (self.entries or {}).get(folder_of(triton))
        return names is not None and file in names

    def path(self, triton: str, file: str) -> str:
        """Return the path under which SGLang looks for ``file`` of this Triton version."""
        return f"{self.root}/{folder_of(triton)}/{file}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where the configuration of one projection comes from."""

    source: Source
    file: str  # the name that is looked for
    triton: str | None = None  # the folder that holds the file in use
    path: str | None = None  # the file in use
    error: str | None = None  # the exception that the lookup ends in


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """Both projections' configurations and where they were looked for."""

    up: Found
    down: Found
    directories: tuple[str, ...]  # Triton versions, in the order in which their folders are tried
    elsewhere: tuple[str, ...]  # Triton versions whose folder holds the up file but is not looked into
    error: str | None = None


class _Dies(Exception):  # noqa: N818 (the name of what happens to the server)
    """The exception that SGLang's lookup ends in."""


def folder_of(triton: str) -> str:
    """Return the name of a Triton version's folder (already a folder's name: unchanged)."""
    name = triton.removeprefix("triton_").replace(".", "_")
    return f"triton_{name}"


def version_of(folder: str) -> str:
    """Return the Triton version that SGLang reads off a folder's name."""
    return folder.removeprefix("triton_").replace("_", ".")


def file_name(device: str, shape: Shape, *, down: bool = False) -> str:
    """Return the file name that SGLang looks for (get_config_file_name, the same in 0.5.7 to 0.5.23)."""
    dtype = f",dtype={shape.dtype}" if shape.dtype else ""
    block = f",block_shape={list(shape.block_shape)}" if shape.block_shape and all(shape.block_shape) else ""
    channel = ",per_channel_quant=True" if shape.per_channel else ""
    suffix = "_down" if down else ""
    name = device.replace(" ", "_")
    return f"E={shape.experts},N={shape.width},device_name={name}{dtype}{block}{channel}{suffix}.json"


_NAME = re.compile(
    r"E=(\d+),N=(\d+),device_name=[^,]*?(?:,dtype=([^,]+?))?(?:,block_shape=\[(\d+), (\d+)\])?"
    r"(,per_channel_quant=True)?(?:_down)?\.json"
)


def shape_of(file: str) -> Shape | None:
    """Return the shape that a config file's name stands for, None for another name."""
    found = _NAME.fullmatch(file)
    if found is None:
        return None
    experts, width, dtype, block_n, block_k, channel = found.groups()
    block = (int(block_n), int(block_k)) if block_n else None
    return Shape(
        experts=int(experts), width=int(width), dtype=dtype, block_shape=block, per_channel=bool(channel)
    )


def _fallbacks(release: Version, triton: str, listing: Listing) -> tuple[str, ...]:
    if release < DISCOVERS_FOLDERS:
        return tuple(version for version in FIXED_FALLBACKS if version != triton)
    if listing.entries is None:
        trouble = (
            listing.trouble or f"FileNotFoundError: [Errno 2] No such file or directory: {listing.root!r}"
        )
        raise _Dies(trouble)
    keyed = []
    for folder in listing.entries:
        if folder.startswith("triton_"):
            version = version_of(folder)
            try:
                keyed.append((tuple(int(part) for part in version.split(".")), version))
            except ValueError as error:
                raise _Dies(f"ValueError: {error} (from the entry {folder} of {listing.root})") from error
    keyed.sort(key=lambda pair: pair[0], reverse=True)
    return tuple(version for _, version in keyed if version != triton)


def _find(release: Version, triton: str, listing: Listing, file: str) -> Found:
    if listing.has(triton, file):
        return Found(source="exact", file=file, triton=triton, path=listing.path(triton, file))
    try:
        versions = _fallbacks(release, triton, listing)
    except _Dies as error:
        return Found(source="error", file=file, error=str(error))
    for version in versions:
        if listing.has(version, file):
            return Found(source="fallback", file=file, triton=version, path=listing.path(version, file))
    return Found(source="default", file=file)


def look_up(
    release: Version,
    triton: str,
    device: str,
    shape: Shape,
    listing: Listing,
    *,
    deterministic: bool = False,
) -> Lookup:
    """Return what ``try_get_optimal_moe_config(..., return_down_config=True)`` of this release loads.

    ``triton`` is ``triton.__version__`` (its local part is part of the folder's name), ``device`` what
    ``torch.cuda.get_device_name()`` says.
    """
    up, down = (file_name(device, shape, down=is_down) for is_down in (False, True))
    return look_up_files(release, triton, up, down, listing, deterministic=deterministic)


def look_up_files(
    release: Version,
    triton: str,
    up_file: str,
    down_file: str,
    listing: Listing,
    *,
    deterministic: bool = False,
) -> Lookup:
    """As `look_up`, for the names of the two files.

    Where the down file is missing the down projection runs on the up projection's config: up to 0.5.15
    because the caller takes it, from 0.5.16 on because the lookup returns its table.
    """
    if deterministic:
        up, down = (Found(source="default", file=name) for name in (up_file, down_file))
        return Lookup(up=up, down=down, directories=(), elsewhere=())
    up = _find(release, triton, listing, up_file)
    if up.error is not None:
        down = Found(source="error", file=down_file, error=up.error)
    else:
        down = _find(release, triton, listing, down_file)
        if down.source == "default" and up.path is not None:
            down = Found(source="up", file=down_file, triton=up.triton, path=up.path)
    try:
        order = (triton, *_fallbacks(release, triton, listing))
    except _Dies:
        order = (triton,)
    return Lookup(
        up=up,
        down=down,
        directories=order,
        elsewhere=_elsewhere(listing, order, up_file),
        error=up.error or down.error,
    )


def _elsewhere(listing: Listing, order: tuple[str, ...], file: str) -> tuple[str, ...]:
    tried = {folder_of(version) for version in order}
    found = [
        version_of(folder)
        for folder, names in (listing.entries or {}).items()
        if folder not in tried and names is not None and file in names
    ]
    return tuple(sorted(found, reverse=True))
