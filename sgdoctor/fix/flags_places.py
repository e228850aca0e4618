"""Where the words of a launch script stand in it: arguments, elements of arrays, words in quoted text."""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, NamedTuple

from sgdoctor.collect.launch_expand import Expander
from sgdoctor.collect.launch_scope import Scope
from sgdoctor.collect.launch_tree import tree_of

if TYPE_CHECKING:
    from tree_sitter import Node

_NO_ARGUMENTS = frozenset(
    ["variable_assignment", "comment", "file_redirect", "herestring_redirect", "heredoc_redirect"]
)
_STRINGS = ("string", "raw_string")
# A continuation ends a word within quotes, too: the shell that reads the text again takes it for nothing. So
# does what parts commands.
_WITHIN = re.compile(rb"(?:[^\s\\;|&]|\\[^\n])+")


class Place(NamedTuple):
    """One word as it is written: its bytes, its line, its text without quotes, what it is assigned to.

    ``row`` has the words of the same command, array or quoted text; ``at`` is the index in it.
    """

    start: int
    end: int
    line: int
    text: str
    variable: str
    row: list[Place]
    at: int

    def literal(self, source: bytes) -> bool:
        """Whether the word holds nothing that the shell fills in, as in ``${FLAGS:---an-option}``."""
        written = source[self.start : self.end]
        return b"`" not in written and b"$" not in written.removeprefix(b"$'")

    def following(self, count: int) -> Place | None:
        """Return the last of the ``count`` words behind this one (itself for none), or null."""
        return self.row[self.at + count] if self.at + count < len(self.row) else None


def places(source: bytes) -> list[Place]:
    """Return the words of the script ``source`` that may be arguments, in the order of the text."""
    starts = [0, *(number + 1 for number, byte in enumerate(source) if byte == 0x0A)]
    reader = _Reader(source, starts)
    reader.visit(tree_of(source), "")
    return reader.found


class _Reader:
    def __init__(self, source: bytes, starts: list[int]) -> None:
        self.source = source
        self.starts = starts
        self.expand = Expander(source, self.line_at)
        self.found: list[Place] = []

    def line_at(self, byte: int) -> int:
        return bisect.bisect_right(self.starts, byte)

    def visit(self, node: Node, variable: str) -> None:
        if node.type == "command":
            self._row([child for child in node.children if child.type not in _NO_ARGUMENTS], "")
        elif node.type == "array":
            self._row([child for child in node.named_children if child.type != "comment"], variable)
        elif node.type == "variable_assignment":
            variable = assigned(node, self.source)
            value = node.child_by_field_name("value")
            if value is not None and value.type in ("word", "concatenation"):
                self._row([value], variable)
        elif node.type in _STRINGS:
            self._within(node.start_byte + 1, node.end_byte - 1, variable)
        elif node.type == "heredoc_body":
            self._within(node.start_byte, node.end_byte, "")
        for child in node.children:
            self.visit(child, variable)

    def _row(self, nodes: list[Node], variable: str) -> None:
        spans = [(node.start_byte, node.end_byte, self._text(node)) for node in nodes]
        self._keep(spans, variable)

    def _within(self, first: int, last: int, variable: str) -> None:
        found = _WITHIN.finditer(self.source, first, last)
        spans = [(one.start(), one.end(), one.group().decode(errors="replace")) for one in found]
        self._keep(spans, variable)

    def _keep(self, spans: list[tuple[int, int, str]], variable: str) -> None:
        row: list[Place] = []
        for at, (start, end, text) in enumerate(spans):
            row.append(Place(start, end, self.line_at(start), text, variable, row, at))
        self.found += row

    def _text(self, node: Node) -> str:
        words = self.expand.words([node], Scope("", []))
        return words[0].text if len(words) == 1 else ""


def assigned(node: Node, source: bytes) -> str:
    """Return the variable that an assignment sets."""
    name = node.child_by_field_name("name")
    text = source[name.start_byte : name.end_byte].decode() if name is not None else ""
    return text.partition("[")[0]
