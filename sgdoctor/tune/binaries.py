"""Compiled binaries that travel from one Triton cache to another, on another host.

Triton (runtime/cache.py, 3.6.0) keeps what belongs to one binary in a folder whose name is the binary's hash
in base 32. In it a group file names the others by their whole paths, which are others elsewhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

_GROUP = "__grp__"

Files = dict[str, bytes]


def folder(binary: str) -> str:
    """Return the name of a binary's folder; ``binary`` is its hash in hexadecimal, as `Compiled` has it."""
    return base64.b32encode(bytes.fromhex(binary)).decode().rstrip("=")


def read(cache: Path, binaries: Iterable[str]) -> dict[str, Files]:
    """Return the files of those binaries that ``cache`` has, by hash and name."""
    found = {}
    for binary in binaries:
        place = cache / folder(binary)
        files = [file for file in place.iterdir() if file.is_file()] if place.is_dir() else []
        if files:
            found[binary] = {file.name: file.read_bytes() for file in files}
    return found


def write(cache: Path, found: Mapping[str, Files]) -> None:
    """Put what ``read`` returned into ``cache``."""
    for binary, files in found.items():
        place = cache / folder(binary)
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (place / name).write_bytes(_moved(content, place) if name.startswith(_GROUP) else content)


def _moved(content: bytes, place: Path) -> bytes:
    """Return a group file whose paths are in ``place``."""
    group = json.loads(content)
    group["child_paths"] = {name: str(place / name) for name in group["child_paths"]}
    return json.dumps(group).encode()
