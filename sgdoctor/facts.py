"""The fact store: what is known about one deployment, how it is known, and what is not known and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from sgdoctor import redact, vocabulary

NOT_ASKED = "no source given tells"


class Provenance(msgspec.Struct, frozen=True):
    """Where a value was read: the kind of source and the place in it.

    ``source`` is one of launch, command, log, server_info, http, metrics, packages, gpus, host, model,
    environment, process, files, catalogue, assume. ``place`` is what an operator can go to: ``launch.sh:12``,
    ``server.log:34``, ``/server_info``, ``config.json``.
    """

    source: str
    place: str


class Known(msgspec.Struct, frozen=True):
    """A value (null: known not to be set), where it was read or which facts it was derived from."""

    value: Any
    provenance: tuple[Provenance, ...] = ()
    inputs: tuple[str, ...] = ()
    count: int = 1


class Unknown(msgspec.Struct, frozen=True):
    """No value, and why: not asked for, timed out, permission denied, not parsable, an input is unknown."""

    reason: str = NOT_ASKED
    missing: tuple[str, ...] = ()


Fact = Known | Unknown


class Conflict(msgspec.Struct, frozen=True):
    """Two sources that disagree: the value in use and the other."""

    name: str
    kept: Known
    other: Known


class Match(msgspec.Struct, frozen=True):
    """Where a pattern was found in the log: first occurrence, its named groups, and how often in all."""

    count: int
    place: str
    text: str
    groups: dict[str, str] = {}
    ranks: tuple[str, ...] = ()


class Excerpt(msgspec.Struct, frozen=True):
    """Line ``line`` of a log and those around it, each with its number, in the order they were written."""

    place: str
    line: int
    lines: list[tuple[int, str]]


class Series(msgspec.Struct, frozen=True):
    """A measure over the time that a server was watched.

    ``name`` is that of the fact window.* that sums it up, without "window."; prefill_throughput has none.
    ``points`` are the seconds since the watching began, each with the value then; of a long window, with the
    mean of several values: there are 120 at most.
    """

    name: str
    unit: str
    place: str
    points: list[tuple[float, float]]


class Facts:
    """The facts of one deployment.

    The first value set for a name stays: sources are read in the order of how far they are trusted.
    A later, different value is kept as a conflict.
    """

    def __init__(self, names: vocabulary.Vocabulary | None = None) -> None:
        self.vocabulary = names or vocabulary.load()
        self._facts: dict[str, Fact] = {}
        self.conflicts: list[Conflict] = []
        self.matches: dict[str, Match] = {}
        self.patterns_sought: set[str] = set()
        self.notes: list[str] = []
        self.series: list[Series] = []
        self.excerpts: dict[str, Excerpt] = {}  # by their places

    def set(self, name: str, value: Any, *, source: str, place: str, count: int = 1) -> None:
        """Set ``name`` as read at ``place``; the value of a secret flag is replaced on the way in.

        Raises FactTypeError when the vocabulary has another type for it.
        """
        family, _, rest = name.partition(".")
        if family in ("arg", "asked"):
            value = redact.argument(rest, value)
        elif isinstance(value, str):
            value = redact.text(value)
        value = self.vocabulary.check(name, value)
        new = Known(value, (Provenance(source, place),), count=count)
        old = self._facts.get(name)
        if isinstance(old, Known):
            if old.value != value:
                self.conflicts.append(Conflict(name, old, new))
            elif new.provenance[0] not in old.provenance:
                self._facts[name] = msgspec.structs.replace(old, provenance=old.provenance + new.provenance)
            return
        self._facts[name] = new

    def set_unknown(self, name: str, reason: str, missing: Iterable[str] = ()) -> None:
        """Say why ``name`` is not known; a value that is known stays."""
        if not isinstance(self._facts.get(name), Known):
            self._facts[name] = Unknown(reason, tuple(missing))

    def put(self, name: str, fact: Fact) -> None:
        """Take over a fact of another store as it stands."""
        self._facts[name] = fact

    def derive(self, name: str, value: Any, inputs: Iterable[str]) -> None:
        """Set ``name`` as computed from other facts; a value that was read stays."""
        value = self.vocabulary.check(name, value)
        if not isinstance(self._facts.get(name), Known):
            self._facts[name] = Known(value, (), tuple(inputs))

    def get(self, name: str) -> Fact:
        """Return the fact, known or unknown."""
        return self._facts.get(name) or Unknown()

    def known(self, name: str) -> bool:
        """Whether ``name`` has a value (null counts)."""
        return isinstance(self._facts.get(name), Known)

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value of ``name``, or ``default`` when it is unknown."""
        fact = self._facts.get(name)
        return fact.value if isinstance(fact, Known) else default

    def missing(self, *names: str) -> list[str]:
        """Return those of ``names`` that are unknown."""
        return [name for name in names if not self.known(name)]

    def drop(self, name: str) -> None:
        """Forget ``name`` and its conflicts."""
        self._facts.pop(name, None)
        self.conflicts = [conflict for conflict in self.conflicts if conflict.name != name]

    def items(self) -> Iterator[tuple[str, Fact]]:
        """Iterate over all facts in the order of their names."""
        return iter(sorted(self._facts.items()))

    def roots(self, name: str) -> dict[str, Known]:
        """Return the facts that were read, not derived, on which ``name`` rests (itself when it was read)."""
        fact = self.get(name)
        if not isinstance(fact, Known):
            return {}
        if not fact.inputs:
            return {name: fact}
        found: dict[str, Known] = {}
        for part in fact.inputs:
            found.update(self.roots(part))
        return found
