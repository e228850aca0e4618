"""Writing to standard output, to files and to standard error, whatever state these are in."""

from __future__ import annotations

import os
import sys

from sgdoctor.errors import UsageError

TYPE_CHECKING = False  # typing and pathlib alone would take a third of the time of --version
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import TextIO


def emit(text: str) -> None:
    """Write to standard output. A reader that went away has seen enough, which is no error.

    Raises UsageError when the output cannot be written for another reason (a full disk).
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except UnicodeEncodeError:
        emit(text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding))
    except OSError as error:
        _discard(sys.stdout)
        raise UsageError(f"standard output: {error.strerror}") from None


def emit_json(text: str) -> None:
    """Write JSON to standard output, outside of UTF-8 with JSON's own escapes.

    Raises UsageError as :func:`emit` does.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        import json
        import re

        # Outside of strings JSON is ASCII, so whatever is not stands where an escape may.
        text = re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)
    emit(text)


def complain(text: str) -> None:
    """Write to standard error, as far as there is one."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not fail over it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def writable(path: Path) -> None:
    """Raise UsageError when a report could not be saved at ``path``; asked before the work is done."""
    if path.is_dir():
        raise UsageError(f"{path}: is a directory; name a file")
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{path}: no folder {folder}")
    if not os.access(path if _special(path) else folder, os.W_OK):
        raise UsageError(f"{path}: {folder} is not writable")


def keep(option: str, path: Path | None, read: Iterable[tuple[str, str | Path | None]]) -> None:
    """Raise UsageError when the file that ``option`` writes is one of those that other options read."""
    if path is None or _special(path):
        return
    for other, name in read:
        if name is not None and os.path.realpath(name) == os.path.realpath(path):
            raise UsageError(f"{option} {path} would overwrite the file of {other}: name another one")


def save(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all; a device or pipe is written as it is.

    Raises UsageError when it cannot be written.
    """
    try:
        if _special(path):
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("x", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o7777)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def _special(path: Path) -> bool:
    return path.exists() and not path.is_file()
