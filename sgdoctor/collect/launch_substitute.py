"""Variables in the texts of compose files and Dockerfiles: ``$NAME``, ``${NAME}``, ``${NAME:-default}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sgdoctor.collect.launch_words import Piece, Value, plain, unknown

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-+?]")
_DEEPEST = 20  # defaults within defaults

# Returns the value of a variable, None when the file does not set it.
Lookup = Callable[[str], Value | None]


class VariableError(ValueError):
    """A ``${`` that names no variable; ``line`` is where it stands."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class Substitution:
    """One kind of file's way with variables.

    ``outside`` says of a variable that the file does not set what else may: it is unknown, or taken at its
    default with a note. ``escape`` is the character that keeps the next one from being special.
    """

    def __init__(
        self, lookup: Lookup, note: Callable[[str, int], None], outside: str, *, escape: str = ""
    ) -> None:
        self.lookup = lookup
        self.note = note
        self.outside = outside
        self.escape = escape

    def value(self, pieces: Value) -> Value:
        """Return ``pieces`` with the variables in them replaced. Raises VariableError for a lone ``${``."""
        text = "".join(piece.text for piece in pieces)
        lines: list[int] = []
        for piece in pieces:
            lines += [piece.line] * len(piece.text)
        found = self._parts(text, lines, 0)
        return tuple(found or [Piece("", piece.line) for piece in pieces[:1]])

    def _parts(self, text: str, lines: Sequence[int], depth: int) -> list[Piece]:
        found: list[Piece] = []
        start = at = 0
        while at < len(text):
            if self.escape and text[at] == self.escape and at + 1 < len(text):
                found += _stretch(text, lines, start, at)
                start, at = at + 1, at + 2
                continue
            if text[at] != "$":
                at += 1
                continue
            found += _stretch(text, lines, start, at)
            pieces, after = self._variable(text, lines, at, depth)
            found += pieces
            start, at = (after, after) if after > at + 1 else (at, at + 1)
        return found + _stretch(text, lines, start, at)

    def _variable(self, text: str, lines: Sequence[int], at: int, depth: int) -> tuple[list[Piece], int]:
        """Return what stands for the dollar at ``at`` and where the text goes on; no move: a mere dollar."""
        line = lines[at]
        if not self.escape and text.startswith("$$", at):
            return [Piece("$", line)], at + 2
        name = _NAME.match(text, at + 1)
        if name is not None:
            return self._named(name.group(), line), name.end()
        if not text.startswith("${", at):
            return [], at + 1
        end = _closing(text, at + 1)
        name = _NAME.match(text, at + 2)
        if end is None or name is None or name.end() > end:
            raise VariableError(line, text[at : at + 20])
        if name.end() == end:
            return self._named(name.group(), line), end + 1
        operator = _OPERATOR.match(text, name.end())
        if operator is None or depth >= _DEEPEST:
            return [self._unknown(name.group(), line, "an expansion that is not followed")], end + 1
        inner = slice(operator.end(), end)
        operand = self._parts(text[inner], lines[inner], depth + 1)
        return self._conditional(name.group(), operator.group(), operand, line), end + 1

    def _named(self, name: str, line: int) -> list[Piece]:
        found = self.lookup(name)
        if found is None:
            return [self._unknown(name, line, f"{name} is not set in the file")]
        return [piece._replace(line=line) for piece in found]

    def _conditional(self, name: str, operator: str, operand: list[Piece], line: int) -> list[Piece]:
        current = self.lookup(name)
        if current is None:
            if operator.endswith("-"):
                self.note(name, line)
                return operand
            reason = f"{name} is not set in the file"
            return [self._unknown(name, line, reason)]
        text = plain(current)
        if text is None:
            return [piece._replace(line=line) for piece in current]
        is_set = bool(text) or not operator.startswith(":")
        if operator.endswith("+"):
            return operand if is_set else []
        return self._named(name, line) if is_set or operator.endswith("?") else operand

    def _unknown(self, name: str, line: int, reason: str) -> Piece:
        return unknown(f"${{{name}}}", line, f"{reason}; {self.outside}", splits=True)


def _closing(text: str, at: int) -> int | None:
    """Return where the brace at ``at`` is closed."""
    depth = 0
    for place in range(at, len(text)):
        if text[place] == "}":
            depth -= 1
            if not depth:
                return place
        elif text[place] == "{" and text[place - 1] == "$":
            depth += 1
    return None


def _stretch(text: str, lines: Sequence[int], start: int, end: int) -> list[Piece]:
    """Return the text from ``start`` to ``end`` in pieces of a line each."""
    found: list[Piece] = []
    while start < end:
        stop = start + 1
        while stop < end and lines[stop] == lines[start]:
            stop += 1
        found.append(Piece(text[start:stop], lines[start]))
        start = stop
    return found
