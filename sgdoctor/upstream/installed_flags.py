"""The flags of one installed SGLang, read from its source once and kept in the user's cache.

An entry is found by the contents of ``srt/server_args.py`` and holds the digest of every file that the reader
looked at, so a change in any of them is seen. A cache that cannot be used costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sgdoctor import __version__
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.source_fields import SERVER_ARGS, ServerArgsSource, SourceError
from sgdoctor.upstream.source_flags import flags_in
from sgdoctor.upstream.source_modules import Package

_LONGEST = 2**24  # bytes of an entry; the newest releases need less than 2**18


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """What was read: from which modules, the digest of their files, and the flags."""

    digest: str
    modules: list[str]
    flags: list[Flag]


def flags_of(package_dir: Path, cache_dir: Path | None = None) -> list[Flag]:
    """Return what ``read_flags`` returns for ``package_dir``, from the cache where nothing has changed.

    ``cache_dir`` is by default $XDG_CACHE_HOME/sgdoctor or ~/.cache/sgdoctor. Raises SourceError when the
    flags cannot be told from the source, whatever is wrong with it.
    """
    folder = cache_dir or _cache_folder()
    package = Package(package_dir)
    try:
        file = folder / f"flags-{_digest(package, [SERVER_ARGS])}.json" if folder else None
        entry = _read(file) if file else None
        if entry is not None and entry.digest == _digest(package, entry.modules):
            return entry.flags
        source = ServerArgsSource(package_dir)
        flags = flags_in(source)
    except SourceError:
        raise
    except Exception as error:  # a source that no release has may break the reader anywhere
        raise SourceError(f"{package_dir}: {type(error).__name__}: {error}") from error
    if file is not None:
        modules = source.package.looked_up()
        _write(file, _Entry(_digest(package, modules), modules, flags))
    return flags


def _cache_folder() -> Path | None:
    """Return the user's cache folder for sgdoctor; None for a user without a home."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "sgdoctor"
    try:
        return Path.home() / ".cache" / "sgdoctor"
    except RuntimeError:
        return None


def _digest(package: Package, modules: Iterable[str]) -> str:
    """Return a digest of everything that the reader's result depends on, given the modules it looks at.

    Python's own version is part of it: an older one may not be able to parse a module.
    """
    parts: list[tuple[str, str, str]] = []
    for module in modules:
        path = package.path(module)
        name, content = "", ""
        if path is not None:
            name = path.relative_to(package.root).as_posix()
            with contextlib.suppress(OSError):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
        parts.append((module, name, content))
    return hashlib.sha256(msgspec.json.encode((__version__, sys.version_info[:2], parts))).hexdigest()


def _read(file: Path) -> _Entry | None:
    try:
        with file.open("rb") as stream:
            return msgspec.json.decode(stream.read(_LONGEST), type=_Entry)
    except (OSError, ValueError, RecursionError):
        return None


def _write(file: Path, entry: _Entry) -> None:
    """Write the entry whole or not at all; not one that JSON would change."""
    with contextlib.suppress(OSError, TypeError, ValueError, OverflowError):
        data = msgspec.json.encode(entry)
        if msgspec.json.decode(data, type=_Entry) != entry:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=file.stem + ".", dir=file.parent)
        unfinished = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
            unfinished.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
