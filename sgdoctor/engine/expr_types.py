"""The types of conditions, and what can be wrong with one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from sgdoctor.engine.expr_tree import NO_FACTS, Node

LISTS = {"strings": "str", "ints": "int", "versions": "version", "floats": "float", "bools": "bool"}
NUMBERS = ("int", "float")
NULL = "null"


class ExprError(ValueError):
    """A condition that cannot be used: why, where in its text, and a drawing of the place."""

    def __init__(self, reason: str, text: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.line = line
        self.column = column

    def show(self) -> str:
        """Return the line of the condition with a caret under the place, and the reason."""
        lines = self.text.splitlines() or [""]
        line = lines[min(self.line, len(lines) - 1)]
        return f"{line}\n{' ' * self.column}^ {self.reason}"


class Type(NamedTuple):
    """The type of a part of a condition: a type of the vocabulary, `null`, or a kind of list.

    ``nullable`` whether it may be null at this place, ``declared`` whether it may be anywhere. Of a literal
    list ``nullable`` says that None is among its elements.
    """

    kind: str
    nullable: bool = False
    declared: bool = False

    def __str__(self) -> str:
        return f"{self.kind} or null" if self.nullable else self.kind


class Typed(NamedTuple):
    """A checked part: its node and type, and the names that are not null where it is true, and where false.

    ``name`` is the fact or field that the part is, ``literal`` whether it is written out.
    """

    node: Node
    type: Type
    if_true: frozenset[str] = NO_FACTS
    if_false: frozenset[str] = NO_FACTS
    name: str | None = None
    literal: bool = False


def nearest(word: str, words: Iterable[str]) -> str:
    """Return `; did you mean ...?` with the word most like ``word``, or nothing when none is like it."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def comparable(left: Type, right: Type) -> bool:
    """Whether `==` between two values of these types can ever be true."""
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return True
    return left.kind == right.kind or (
        "empty" in (left.kind, right.kind) and {left.kind, right.kind} <= {"empty", "records", *LISTS}
    )
