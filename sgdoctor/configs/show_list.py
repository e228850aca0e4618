"""``configs list``: the files of a place under their devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sgdoctor.configs.files import ConfigFile
from sgdoctor.configs.names import FAMILIES, Family, Name
from sgdoctor.configs.table import Row, counted, table
from sgdoctor.report.layout import Line, flow, printable, words
from sgdoctor.upstream.gemm_config import Weight
from sgdoctor.upstream.lora_config import Adapter
from sgdoctor.upstream.moe_config import Shape

_HEAD = ("family", "triton", "shape", "dtype", "block", "files")


def lines(found: Iterable[ConfigFile], width: int, encoding: str) -> list[Line]:
    """Return a table for each device, and how many files there are.

    Files whose names SGLang never looks for stand at the end, by their paths.
    """
    devices: dict[str, dict[tuple[Any, ...], list[str]]] = {}
    never: list[ConfigFile] = []
    found = list(found)
    for file in found:
        if file.name is None:
            never.append(file)
            continue
        rows = devices.setdefault(file.name.device, {})
        rows.setdefault(_key(file.family, file.triton, file.name), []).append(_which(file.name))
    shown: list[Line] = []
    for device, rows in sorted(devices.items()):
        shown += flow(words(printable(device, encoding), "title"), width)
        shown += table(_HEAD, [_row(key, which) for key, which in sorted(rows.items())], encoding)
        shown.append([])
    for file in never:
        shown += flow(words(printable(f"{file.path} {file.why}", encoding), "note"), width)
    return [*shown, *([[]] if never else []), [(counted(len(found), "file"), "")]]


def _which(name: Name) -> str:
    if name.family != "moe":
        return ""
    return "down" if name.down else "up"


def _key(family: Family, triton: str | None, name: Name) -> tuple[Any, ...]:
    """Return what rows are sorted by: the family, the newest Triton first, then the shape."""
    newest = tuple(-int(part) if part.isdecimal() else 1 for part in (triton or "").split("."))
    return FAMILIES.index(family), newest, triton or "", *_shape(name.key)


def _shape(key: Shape | Weight | Adapter) -> tuple[Any, ...]:
    if isinstance(key, Shape):
        return key.experts, key.width, key.dtype or "", key.per_channel, key.block_shape or ()
    if isinstance(key, Weight):
        return key.rows, key.depth, key.dtype, False, key.block or ()
    return key.kernel, key.size, key.rank, key.slices, ()


def _row(key: tuple[Any, ...], which: list[str]) -> Row:
    number, _, triton, *shape = key
    family = FAMILIES[number]
    up_down = ", ".join(sorted(which, reverse=True))
    if family == "lora":
        kernel, size, rank, slices, _ = shape
        return family, triton, f"K={size} R={rank} S={slices}", kernel, "", up_down
    first, second, dtype, channel, block = shape
    names = ("E", "N") if family == "moe" else ("N", "K")
    text = f"{names[0]}={first} {names[1]}={second}"
    stored = f"{dtype} per channel" if channel else dtype
    return family, triton, text, stored, str(list(block)) if block else "", up_down
