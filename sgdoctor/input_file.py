"""Reading a file that an option names: whole, but never more of it than such a file can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sgdoctor.errors import UsageError


def read_bytes(path: Path, limit: int, objection: str) -> bytes:
    """Return what is in the file.

    Raises UsageError when it cannot be read, or when it has more than ``limit`` bytes, a whole number of MiB;
    ``objection`` says what a file of that size is not ("no snapshot").
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(limit + 1)
    except IsADirectoryError:
        raise UsageError(f"{path}: Is a directory; name the file in it") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # a null byte in the name
        raise UsageError(f"{str(path)!r}: {error}") from None
    if len(raw) > limit:
        raise UsageError(f"{path}: larger than {limit // 2**20} MiB: {objection}")
    return raw


def read_json(path: Path, limit: int, objection: str) -> Any:
    """Return the decoded JSON of the file. Raises UsageError as `read_bytes` does, and when it is no JSON."""
    raw = read_bytes(path, limit, objection)
    if not raw.strip():
        raise UsageError(f"{path}: is empty: {objection}")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
