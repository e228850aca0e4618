"""The instructions of a Dockerfile: lines that go on, comments between them, here-documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sgdoctor.collect.launch_split import Builder, atoms
from sgdoctor.collect.launch_words import Piece, Value, Word

_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(.*?)\s*$")
_INSTRUCTION = re.compile(r"\s*(\S+)(?:\s+|$)")
_HERE = re.compile(r"<<-?\s*([\"']?)([A-Za-z_][A-Za-z0-9_]*)\1")
_WITH_HERE = frozenset({"RUN", "COPY", "ADD"})


class Instruction(NamedTuple):
    """One instruction: its name in capitals and what follows it, in pieces of a line each."""

    name: str
    value: Value
    escape: str

    @property
    def text(self) -> str:
        """What follows the name, in one piece."""
        return "".join(piece.text for piece in self.value)

    @property
    def line(self) -> int:
        """The line where the value begins."""
        return next((piece.line for piece in self.value if piece.text.strip()), 0)

    def line_at(self, place: int) -> int:
        """Return the line of a character of ``text``."""
        for piece in self.value:
            if place < len(piece.text):
                return piece.line
            place -= len(piece.text)
        return self.line


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, as docker's own parser joins their lines."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    escape = _escape(lines)
    goes_on = re.compile(re.escape(escape) + r"[ \t]*$")
    number = 0
    while number < len(lines):
        pieces: list[Piece] = []
        while number < len(lines):
            line = lines[number]
            number += 1
            if line.lstrip().startswith("#") or not line.strip():
                if pieces:
                    continue  # within an instruction too
                break
            cut = goes_on.sub("", line)
            pieces.append(Piece(cut, number))
            if cut == line:
                break
        match = _INSTRUCTION.match(pieces[0].text) if pieces else None
        if match is None:
            continue
        first = pieces[0]._replace(text=pieces[0].text[match.end() :])
        found = Instruction(match.group(1).upper(), (first, *pieces[1:]), escape)
        if found.name in _WITH_HERE:
            number, body = _here_documents(found.text, lines, number)
            found = found._replace(value=(*found.value, *body))
        yield found


def _escape(lines: list[str]) -> str:
    """Return the character that lets a line go on: what a directive in the first lines says."""
    for line in lines:
        match = _DIRECTIVE.match(line.strip())
        if match is None:
            break
        if match.group(1).lower() == "escape" and match.group(2) in ("\\", "`"):
            return match.group(2)
    return "\\"


def _here_documents(text: str, lines: list[str], number: int) -> tuple[int, list[Piece]]:
    """Return the line behind the here-documents that ``text`` opens, and their text."""
    body: list[Piece] = []
    for match in _HERE.finditer(text):
        end = number
        while end < len(lines) and lines[end].strip("\t") != match.group(2):
            end += 1
        if end == len(lines):
            break
        body += [Piece("\n" + lines[place], place + 1) for place in range(number, end)]
        number = end + 1
    return number, body


def env_words(value: Value, escape: str) -> list[Word]:
    """Split ``A=1 B="x y"`` at blanks that are not quoted; quotes are taken off, variables left as they are.

    What is in single quotes keeps its dollars: they are escaped.
    """
    built = Builder()
    letters = list(atoms(value))
    quote, at = "", 0
    while at < len(letters):
        atom = letters[at]
        at += 1
        if atom.text == escape and quote != "'" and at < len(letters):
            follows = letters[at]
            at += 1
            if follows.text == "$":
                built.add(atom)  # for what replaces variables
            elif quote and follows.text not in (quote, escape):
                built.add(atom)
                built.add(atom)
            built.add(follows)
        elif atom.text in " \t\n" and not quote:
            built.end()
        elif atom.text in "\"'" and quote in ("", atom.text):
            quote = "" if quote else atom.text
            built.begin(atom.line)
        else:
            if quote == "'" and atom.text in ("$", escape):
                built.add(atom._replace(text=escape))
            built.add(atom)
    built.end()
    return built.words
