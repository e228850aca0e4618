"""What a configuration file's name says, and whether SGLang ever looks for such a name."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from sgdoctor.upstream import gemm_config, lora_config, moe_config
from sgdoctor.upstream.gemm_config import Weight
from sgdoctor.upstream.lora_config import Adapter
from sgdoctor.upstream.moe_config import Shape

Family = Literal["moe", "gemm", "lora"]
FAMILIES: tuple[Family, ...] = ("moe", "gemm", "lora")

# get_config_dtype_str, 0.5.7 to 0.5.23
MOE_DTYPES = ("fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32")
_PREFIXES: dict[str, Family] = {"E=": "moe", "N=": "gemm", "lora_": "lora"}
_PARTS = re.compile(r",(?![^\[]*\])")  # commas outside of brackets
_BLOCK = re.compile(r"\[\s*([0-9]+)\s*,\s*([0-9]+)\s*\]")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MOE_PARTS = ("E", "N", "device_name", "dtype", "block_shape", "per_channel_quant")


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """A name that SGLang looks for, in its parts; the key is that of its family."""

    family: Family
    device: str
    key: Shape | Weight | Adapter
    down: bool = False


class Unreachable(Exception):  # noqa: N818 (a name, not an error of ours)
    """A name that no lookup asks for; the text says why."""


def family_of(file: str) -> Family | None:
    """Return the family whose names begin like ``file``."""
    return next((family for prefix, family in _PREFIXES.items() if file.startswith(prefix)), None)


def parse(file: str, family: Family) -> Name:
    """Return the parts of a file's name; raises Unreachable for one that SGLang never looks for."""
    name = _parse(file, family)
    meant = file_name(name)
    if meant != file:
        raise Unreachable(f"is a name that SGLang never looks for: it asks for {meant}")
    return name


def file_name(name: Name) -> str:
    """Return the file name that SGLang makes of these parts."""
    if isinstance(name.key, Shape):
        return moe_config.file_name(name.device, name.key, down=name.down)
    if isinstance(name.key, Weight):
        return gemm_config.file_name(name.device, name.key)
    return lora_config.file_name(name.device, name.key)


def _parse(file: str, family: Family) -> Name:
    stem = file.removesuffix(".json")
    if family == "moe":
        return _moe(stem)
    return _gemm(stem) if family == "gemm" else _lora(stem)


def _parts(stem: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in _PARTS.split(stem)]
    bad = next((key for key, equals, _ in pairs if not equals), None)
    if bad is not None:
        raise Unreachable(f"is a name that SGLang never looks for: {bad!r} is no part of one")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _known(parts: dict[str, str], known: tuple[str, ...], needed: tuple[str, ...]) -> None:
    odd = next((key for key in parts if key not in known), None)
    if odd is not None:
        raise Unreachable(f"is a name that SGLang never looks for: it never writes {odd}=")
    lacking = next((key for key in needed if key not in parts), None)
    if lacking is not None:
        raise Unreachable(f"is a name that SGLang never looks for: it has no {lacking}=")


def _number(parts: dict[str, str], key: str) -> int:
    if not _NUMBER.fullmatch(parts[key]):
        raise Unreachable(f"is a name that SGLang never looks for: {key}={parts[key]} is no number")
    return int(parts[key])


def _device(device: str) -> str:
    if not device:
        raise Unreachable("names no device: no GPU has an empty name, so SGLang never looks for it")
    return device


def _dtype(parts: dict[str, str], known: tuple[str, ...]) -> str | None:
    dtype = parts.get("dtype")
    if dtype is not None and dtype not in known:
        raise Unreachable(f"is a name that SGLang never looks for: dtype is one of {', '.join(known)}")
    return dtype


def _block(parts: dict[str, str]) -> tuple[int, int] | None:
    text = parts.get("block_shape")
    if text is None:
        return None
    found = _BLOCK.fullmatch(text)
    if found is None:
        raise Unreachable("is a name that SGLang never looks for: block_shape is [N, K], with a space")
    return int(found.group(1)[:18]), int(found.group(2)[:18])


def _moe(stem: str) -> Name:
    down = stem.endswith("_down")
    parts = _parts(stem.removesuffix("_down"))
    _known(parts, _MOE_PARTS, _MOE_PARTS[:3])
    channel = parts.get("per_channel_quant")
    shape = Shape(
        experts=_number(parts, "E"),
        width=_number(parts, "N"),
        dtype=_dtype(parts, MOE_DTYPES),
        block_shape=_block(parts),
        per_channel=channel is not None and channel.lower() == "true",
    )
    return Name(family="moe", device=_device(parts["device_name"]), key=shape, down=down)


def _gemm(stem: str) -> Name:
    parts = _parts(stem)
    _known(parts, ("N", "K", "device_name", "dtype", "block_shape"), ("N", "K", "device_name", "dtype"))
    dtype = _dtype(parts, gemm_config.DTYPES) or ""
    block = _block(parts)
    if (block is None) != (dtype == gemm_config.CHANNELWISE):
        has = "has no" if dtype == gemm_config.CHANNELWISE else "needs a"
        raise Unreachable(f"is a name that SGLang never looks for: dtype={dtype} {has} block_shape")
    weight = Weight(rows=_number(parts, "N"), depth=_number(parts, "K"), dtype=dtype, block=block)
    return Name(family="gemm", device=_device(parts["device_name"]), key=weight)


def _lora(stem: str) -> Name:
    kernel, _, rest = stem.removeprefix("lora_").partition(",")
    if kernel not in lora_config.KERNELS:
        raise Unreachable("is a name that SGLang never looks for: it begins with lora_shrink or lora_expand")
    parts = _parts(rest)
    needed = ("K", "R", "S", "device")
    _known(parts, needed, needed)
    size, rank, slices = (_number(parts, key) for key in needed[:3])
    adapter = Adapter(kernel=kernel, size=size, rank=rank, slices=slices)
    return Name(family="lora", device=_device(parts["device"]), key=adapter)
