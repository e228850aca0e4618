"""A YAML document as its nodes: every text with the lines of the file that it stands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sgdoctor.collect.launch_words import Piece, Value, Word, lines_of
from sgdoctor.errors import UsageError

Node = Any  # yaml's types leave out what its nodes have in common

_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_STRING = "tag:yaml.org,2002:str"
_AHEAD = 8  # lines in which the next word of a folded text is looked for


def documents(text: str, name: str) -> list[Item]:
    """Return the documents of ``text`` that hold something. Raises UsageError for what is no YAML."""
    import yaml

    source = _Source(text.split("\n"))
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return [Item(node, source) for node in yaml.compose_all(text, Loader=loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = name if mark is None else f"{name}:{mark.line + 1}"
        raise UsageError(f"{where}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{name}: not YAML: {' '.join(str(error).split())}") from error


def braces(documents: Iterable[Item]) -> int | None:
    """Return the line of the first ``{{ ... }}`` outside of texts: a mapping whose key is a mapping."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = [document.node for document in documents]
    while waiting:
        node = waiting.pop()
        if node.id == "scalar" or id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "sequence":
            waiting += node.value
            continue
        for key, value in node.value:
            if key.id == "mapping":
                found.append(int(key.start_mark.line) + 1)
            waiting += [key, value]
    return min(found, default=None)


class _Source:
    """The lines of a file, and the mappings in it whose merges were followed."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._merged: dict[int, tuple[Node, dict[str, Node]]] = {}

    def merged(self, node: Node) -> dict[str, Node]:
        """Return a mapping's values; its own win over those it merges, and the first merge over the next."""
        if id(node) in self._merged:
            return self._merged[id(node)][1]
        self._merged[id(node)] = (node, {})  # what merges itself gets nothing from that
        found: dict[str, Node] = {}
        for key, value in node.value if node.id == "mapping" else []:
            if key.tag == _MERGE:
                for each in value.value if value.id == "sequence" else [value]:
                    found = {**self.merged(each), **found}
        for key, value in node.value if node.id == "mapping" else []:
            if key.tag != _MERGE and key.id == "scalar":
                found[str(key.value)] = value
        self._merged[id(node)] = (node, found)
        return found


class Item:
    """A node: a mapping, a sequence or a scalar. What it is not is empty."""

    def __init__(self, node: Node, source: _Source) -> None:
        self.node = node
        self._source = source

    @property
    def line(self) -> int:
        """The line where it begins, from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def kind(self) -> str:
        """``mapping``, ``sequence``, ``scalar`` or, for a scalar that is null, ``null``."""
        return "null" if self.node.tag == _NULL else str(self.node.id)

    @property
    def is_string(self) -> bool:
        """Whether a scalar is text by its form, not a number, a truth value or a date."""
        return bool(self.node.tag == _STRING)

    @property
    def text(self) -> str | None:
        """A scalar as written, quotes and folds resolved; None for null and what is no scalar."""
        return str(self.node.value) if self.kind == "scalar" else None

    def mapping(self) -> dict[str, Item]:
        """Return the values of a mapping by their keys, merge keys (``<<``) followed."""
        return {key: Item(node, self._source) for key, node in self._source.merged(self.node).items()}

    def keys(self) -> list[Item]:
        """Return the keys of a mapping as they are written, without those of merges."""
        if self.kind != "mapping":
            return []
        return [Item(key, self._source) for key, _ in self.node.value if key.tag != _MERGE]

    def items(self) -> list[Item]:
        """Return the elements of a sequence."""
        return [Item(node, self._source) for node in self.node.value] if self.kind == "sequence" else []

    def get(self, *path: str) -> Item | None:
        """Return what stands below the keys of ``path``; None where there is nothing, or null."""
        found: Item | None = self
        for key in path:
            found = found.mapping().get(key) if found is not None else None
        return None if found is None or found.kind == "null" else found

    def string(self, *path: str) -> str | None:
        """Return the scalar below ``path`` as text."""
        found = self.get(*path)
        return found.text if found is not None else None

    def each(self, *path: str) -> list[Item]:
        """Return the elements of the sequence below ``path``."""
        found = self.get(*path)
        return found.items() if found is not None else []

    def word(self) -> Word:
        """Return a scalar as one word of a command."""
        return Word(self.pieces())

    def pieces(self) -> Value:
        """Return a scalar's text, in pieces of a line of the file each."""
        text = self.text or ""
        first, last = self.node.start_mark.line, self.node.end_mark.line
        if self.node.style == "|":
            return tuple(lines_of(text, first + 2))
        if first == last:
            return (Piece(text, self.line),)
        return tuple(_joined(self._found_again(text, first, last)))

    def _found_again(self, text: str, line: int, last: int) -> Iterator[Piece]:
        """Yield the words of a folded text, each with the line of the file that has it."""
        column = int(self.node.start_mark.column)
        start = 0
        while start < len(text):
            end = start
            while end < len(text) and text[end].isspace():
                end += 1
            while end < len(text) and not text[end].isspace():
                end += 1
            word = text[start:end].strip()
            for number in range(line, min(last + 1, line + _AHEAD, len(self._source.lines))):
                at = self._source.lines[number].find(word, column if number == line else 0) if word else -1
                if at >= 0:
                    line, column = number, at + len(word)
                    break
            yield Piece(text[start:end], line + 1)
            start = end


def _joined(pieces: Iterator[Piece]) -> list[Piece]:
    found: list[Piece] = []
    for piece in pieces:
        if found and found[-1].line == piece.line:
            found[-1] = found[-1]._replace(text=found[-1].text + piece.text)
        else:
            found.append(piece)
    return found
