"""What is wrong with a kernel configuration file: a code that never changes its meaning, and a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from packaging.version import Version

from sgdoctor.upstream import known_gpus

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

_MOST_KEYS = 6


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of one file; ``text`` goes on where the file's name ends ("is empty: ...")."""

    code: str
    severity: Severity
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file} {self.text}"


class Gpu(msgspec.Struct, frozen=True):
    """The GPU that a file is for; null is not known. ``shared_memory``: the bytes that a block may use."""

    vendor: str | None = None
    capability: Version | None = None
    shared_memory: int | None = None

    @classmethod
    def of_device(cls, device: str) -> Gpu:
        """Return what is known of the GPU that a file's name has, with underscores for spaces."""
        vendor = next((name for name in ("nvidia", "amd", "intel") if device.lower().startswith(name)), None)
        for gpu in known_gpus.GPUS:
            if gpu.name.replace(" ", "_") == device and gpu.capability is not None:
                return cls(vendor, Version(gpu.capability), gpu.shared_memory_bytes)
        return cls(vendor)


def at_keys(keys: Iterable[int], name: str = "M") -> str:
    """Return keys of a table in words: ``M = 64, 128``; the middle of a long list is left out."""
    ordered = sorted(keys)
    if len(ordered) <= _MOST_KEYS:
        return f"{name} = {', '.join(map(str, ordered))}"
    shown = ", ".join(map(str, ordered[: _MOST_KEYS - 2]))
    return f"{name} = {shown}, ..., {ordered[-1]} ({len(ordered)} keys)"
