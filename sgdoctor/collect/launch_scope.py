"""The state of a shell as far as a script's own text tells."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sgdoctor import redact
from sgdoctor.collect.launch_words import Fragments, Piece, Value, Word, merged, plain, unknown

if TYPE_CHECKING:
    from tree_sitter import Node


IFS = " \t\n"
_JOINED = re.compile(r"\$\*|\$\{(?:\*|\w+\[\*\])")


class Array(NamedTuple):
    """The elements of an indexed array."""

    items: tuple[Word, ...]


class Scope:
    """The state of a shell at one point of a script.

    ``exported`` has the names that are exported, and whether for sure. ``unset`` are names that the script
    unset, ``reads`` the file that may have set others. ``arguments`` are the positional parameters, None when
    they are the caller's. ``functions`` have the shell that defined them and their body. ``dead`` is the
    command (exit, return) that ended the shell.
    """

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.variables: dict[str, Value | Array] = {}
        self.exported: dict[str, bool] = {}
        self.unset: set[str] = set()
        self.functions: dict[str, tuple[Any, Node]] = {}
        self.arguments: tuple[Word, ...] | None = None
        self.reads: str | None = None
        self.exports_all = False
        self.dead = ""

    def copy(self) -> Scope:
        """Return a scope that can go its own way."""
        twin = Scope(self.name, self.notes)
        twin.restore(self)
        return twin

    def restore(self, other: Scope) -> None:
        """Take over the state of ``other``."""
        self.variables, self.functions = dict(other.variables), dict(other.functions)
        self.exported, self.unset = dict(other.exported), set(other.unset)
        self.arguments, self.reads = other.arguments, other.reads
        self.exports_all, self.dead = other.exports_all, other.dead

    def ifs(self) -> str | None:
        """Return what parts the words of an expansion, None where that is not known."""
        stored = self.variables.get("IFS")
        if stored is None or isinstance(stored, Array):
            return IFS
        put_back = [piece.text for piece in stored if piece.text] == ["$IFS"]
        return IFS if put_back else plain(stored)

    def assign(self, name: str, new: Value | Array, *, export: bool = False) -> None:
        """Set a variable."""
        self.variables[name] = new
        self.unset.discard(name)
        if export or self.exports_all:
            self.exported[name] = True

    def remove(self, name: str) -> None:
        """Unset a variable."""
        self.variables.pop(name, None)
        self.exported.pop(name, None)
        self.unset.add(name)

    def meet(self, other: Scope, doubt: Callable[[str], Piece]) -> None:
        """Keep what is the same in ``other``, the end of another way through the script.

        A variable that differs becomes what both values begin with and then ``doubt(name)``.
        """
        for name in {**self.variables, **other.variables}:
            self.variables[name] = self._common(name, other, doubt)
        for name in {**self.exported, **other.exported}:
            self.exported[name] = self.exported.get(name, False) and other.exported.get(name, False)
        self.unset &= other.unset
        self.functions = {**other.functions, **self.functions}
        self.reads = self.reads or other.reads
        self.exports_all = self.exports_all and other.exports_all
        if self.arguments != other.arguments:
            self.arguments = None

    def _common(self, name: str, other: Scope, doubt: Callable[[str], Piece]) -> Value | Array:
        mine, theirs = self._value(name, other), other._value(name, self)
        if mine == theirs and mine is not None:
            return mine
        if isinstance(mine, Array) and isinstance(theirs, Array):
            same = 0
            both = zip(mine.items, theirs.items, strict=False)
            for one, two in both:
                if (one.text, one.known) != (two.text, two.known):
                    break
                same += 1
            if same == len(mine.items) == len(theirs.items):
                return mine
            return Array((*mine.items[:same], Word((doubt(name),))))
        if mine is None or theirs is None or isinstance(mine, Array) or isinstance(theirs, Array):
            return (doubt(name),)
        return merged(mine, theirs, doubt(name))

    def _value(self, name: str, other: Scope) -> Value | Array | None:
        found = self.variables.get(name)
        if found is None and isinstance(other.variables.get(name), Array):
            return Array(())  # the environment cannot hold an array
        return () if found is None and name in self.unset else found

    def note(self, text: str) -> None:
        """Say once what was assumed or not understood."""
        text = redact.text(text)
        if text not in self.notes:
            self.notes.append(text)


def parted(found: Fragments, text: str, line: int, scope: Scope, *, quoted: bool) -> Fragments:
    """Return what the expansion ``text`` gave; not known where another IFS parts or joins its words."""
    ifs = scope.ifs()
    if ifs == IFS:
        return found
    joins = quoted and len(found) > 1 and _JOINED.match(text) is not None
    parts = (piece.text for piece in found if piece is not None and piece.known and piece.splits)
    if joins or any(part and (ifs is None or set(part) & set(ifs + IFS)) for part in parts):
        return [unknown(text, line, "IFS is changed", splits=not quoted)]
    return found
