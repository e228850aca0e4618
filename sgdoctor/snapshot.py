"""Snapshots: the facts of one deployment in a file, to be looked at elsewhere or later, or compared."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from sgdoctor import __version__, redact
from sgdoctor.collect import clean
from sgdoctor.errors import UsageError
from sgdoctor.facts import Conflict, Facts, Known, Match, Provenance, Series
from sgdoctor.input_file import read_bytes
from sgdoctor.upstream.moe_config import CONFIG_DIR_VARIABLE
from sgdoctor.vocabulary import FactTypeError

FORMAT_VERSION = 1
# What lies in the folders of kernel configs is read while moe.* is derived; tomorrow, or on another machine,
# other files lie there.
FILES = "files"
_FOLDERS = ("sglang.path", f"env.{CONFIG_DIR_VARIABLE}")
MAX_BYTES = 64 * 2**20


class SavedFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A known fact: its value and where it was read."""

    value: Any
    sources: tuple[Provenance, ...]
    count: int = 1


class SavedUnknown(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fact that is not known, and why."""

    reason: str
    missing: tuple[str, ...] = ()


class SavedConflict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two sources that disagree about a fact."""

    fact: str
    kept: SavedFact
    other: SavedFact


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A snapshot file; docs/snapshot.schema.json is its schema.

    Derived facts are not in it: they are derived again, as the sgdoctor that reads it does. Those that rest
    on the files in a folder of kernel configs are: what was there is known only now.
    """

    format: Literal["sgdoctor-snapshot"]
    version: int
    sgdoctor: str
    created: str
    facts: dict[str, SavedFact]
    unknown: dict[str, SavedUnknown]
    matches: dict[str, Match]
    patterns_sought: tuple[str, ...]
    conflicts: tuple[SavedConflict, ...]
    notes: tuple[str, ...]
    series: tuple[Series, ...] = ()


def save(facts: Facts, path: Path, *, now: dt.datetime | None = None) -> None:
    """Write the facts that were read, not derived, to ``path``, all of it or nothing.

    Raises UsageError when ``path`` cannot be written.
    """
    text = dump(facts, now or dt.datetime.now(dt.timezone.utc)).encode()
    path = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 (what any other new file gets)
        os.replace(name, path)  # noqa: PTH105
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise UsageError(f"{path}: {error.strerror or error}") from None


def dump(facts: Facts, now: dt.datetime) -> str:
    """Return the facts that were read, not derived, as the text of a snapshot file."""
    raw = msgspec.to_builtins(_snapshot(facts, now))
    return msgspec.json.format(msgspec.json.encode(clean.value(raw)), indent=1).decode() + "\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _snapshot(facts: Facts, now: dt.datetime) -> Snapshot:
    known: dict[str, SavedFact] = {}
    unknown: dict[str, SavedUnknown] = {}
    for name, fact in facts.items():
        if not isinstance(fact, Known):
            unknown[name] = SavedUnknown(fact.reason, fact.missing)
        elif fact.provenance and (not name.startswith("env.") or _allowed(name, fact.value)):
            known[name] = _saved(fact)
        elif folder := _folder_read(facts, name, fact):
            known[name] = SavedFact(fact.value, (Provenance(FILES, folder),))
    return Snapshot(
        format="sgdoctor-snapshot",
        version=FORMAT_VERSION,
        sgdoctor=__version__,
        created=now.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        facts=known,
        unknown=unknown,
        matches=dict(sorted(facts.matches.items())),
        patterns_sought=tuple(sorted(facts.patterns_sought)),
        conflicts=tuple(SavedConflict(c.name, _saved(c.kept), _saved(c.other)) for c in facts.conflicts),
        notes=tuple(facts.notes),
        series=tuple(facts.series),
    )


def _folder_read(facts: Facts, name: str, fact: Known) -> str | None:
    """Return the folder whose files told a derived fact, None where no folder of this machine did."""
    if not name.startswith("moe."):
        return None
    return next((str(facts.value(each)) for each in _FOLDERS if each in fact.inputs), None)


def _allowed(name: str, value: Any) -> bool:
    """Whether a variable's value may leave this machine: one that a doctor reads, secrets replaced."""
    variable = name.removeprefix("env.")
    return value is None or redact.environment({variable: value}).get(variable) == value


def _saved(fact: Known) -> SavedFact:
    return SavedFact(fact.value, fact.provenance, fact.count)


def is_snapshot(raw: object) -> bool:
    """Whether decoded JSON calls itself a snapshot."""
    return isinstance(raw, dict) and raw.get("format") == "sgdoctor-snapshot"


def load(path: Path, facts: Facts | None = None) -> Facts:
    """Return the facts of a snapshot file, put into ``facts`` when it is given.

    Raises UsageError, naming the file and what is wrong, when it cannot be read as one.
    """
    path = Path(path)
    return decode(read_bytes(path, MAX_BYTES, "no snapshot"), path, facts)


def decode(raw: bytes, path: Path, facts: Facts | None = None) -> Facts:
    """Return the facts of a snapshot whose text was read from ``path``; see `load`."""
    if not raw.strip():
        raise UsageError(f"{path}: is empty: no snapshot")
    try:
        version = msgspec.json.decode(raw, type=_Header).version
        if version > FORMAT_VERSION:
            raise UsageError(f"{path}: a snapshot of format {version}, written by a newer sgdoctor")
        saved = msgspec.json.decode(raw, type=Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not a snapshot: {error}") from None
    return restore(saved, str(path), facts)


class _Header(msgspec.Struct):
    format: Literal["sgdoctor-snapshot"]
    version: int


def restore(saved: Snapshot, place: str, facts: Facts | None = None) -> Facts:
    """Return the facts of a snapshot that was read at ``place``.

    A fact that this sgdoctor does not know, or knows as of another type, becomes a note.
    """
    facts = facts if facts is not None else Facts()
    for name, fact in saved.facts.items():
        put(facts, name, fact.value, fact.sources, place, count=fact.count)
    for name, why in saved.unknown.items():
        facts.set_unknown(name, why.reason, why.missing)
    for conflict in saved.conflicts:
        kept, other = (Known(f.value, f.sources, count=f.count) for f in (conflict.kept, conflict.other))
        facts.conflicts.append(Conflict(conflict.fact, kept, other))
    facts.matches.update(saved.matches)
    facts.patterns_sought.update(saved.patterns_sought)
    facts.notes.extend(saved.notes)
    facts.series.extend(saved.series)
    return facts


def put(
    facts: Facts, name: str, value: Any, sources: Iterable[Provenance], place: str, *, count: int = 1
) -> None:
    """Set a saved fact with all the places where it was read."""
    try:
        for source in tuple(sources) or (Provenance("environment", place),):
            facts.set(name, value, source=source.source, place=source.place, count=count)
    except FactTypeError as error:
        facts.notes.append(f"{place}: {error}; it was left out")
