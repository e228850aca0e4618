"""Words of a shell command: text that is known, text that is not, and the line each stands on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_BLANKS = re.compile(r"([ \t\n]+)")
_PATTERN = re.compile(r"[*?]")
# Private-use characters around a number stand for text that is not known, in a script made from such text
# (bash -c "... $(nproc) ...").
HIDDEN = re.compile("\ue000([0-9]+)\ue001")
FILE_PATTERN = "a file name pattern"


class Piece(NamedTuple):
    """A stretch of text from one place.

    ``splits``: from an unquoted expansion, so that blanks in it end the word. Unknown text keeps its source
    form (``$TP``), and ``reason`` says why it is unknown.
    """

    text: str
    line: int
    known: bool = True
    splits: bool = False
    reason: str = ""


Value = tuple[Piece, ...]  # of a variable
Fragment = Piece | None  # None: the word ends here
Fragments = list[Fragment]


class Word(NamedTuple):
    """One word that a command gets, after expansion."""

    pieces: Value

    @property
    def text(self) -> str:
        """The text, unexpandable parts in their source form."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def line(self) -> int:
        """The line the word stands on: that of an array's element, not of the array's use."""
        return self.pieces[0].line if self.pieces else 0

    @property
    def known(self) -> bool:
        """Whether all of it could be expanded."""
        return all(piece.known for piece in self.pieces)

    @property
    def prefix(self) -> str:
        """The text with which the word certainly begins."""
        text = ""
        for piece in self.pieces:
            if not piece.known:
                break
            text += piece.text
        return text

    @property
    def many(self) -> bool:
        """Whether it may stand for any number of words, none included."""
        return (
            not self.known
            and not any(piece.known and piece.text for piece in self.pieces)
            and any(piece.splits for piece in self.pieces)
        )

    @property
    def reason(self) -> str:
        """Why it is not known."""
        return next((piece.reason for piece in self.pieces if not piece.known), "")


def unknown(text: str, line: int, reason: str, *, splits: bool = False) -> Piece:
    """Return text that cannot be expanded."""
    return Piece(text, line, known=False, splits=splits, reason=reason)


def words(fragments: Iterable[Fragment]) -> list[Word]:
    """Split what an expansion gave into words, as the shell does with the default IFS."""
    found: list[Word] = []
    current: list[Piece] | None = None
    for fragment in fragments:
        if fragment is None:
            _end(found, current)
            current = None
        elif not (fragment.known and fragment.splits):
            current = [*(current or ()), fragment]
        else:
            line = fragment.line
            for part in _BLANKS.split(fragment.text):
                if part.strip(" \t\n"):
                    current = [*(current or ()), _unquoted(part, line)]
                elif part:
                    _end(found, current)
                    current = None
                line += part.count("\n")
    _end(found, current)
    return found


def _end(found: list[Word], current: list[Piece] | None) -> None:
    if current is not None:
        found.append(Word(tuple(current)))


def _unquoted(text: str, line: int) -> Piece:
    if _PATTERN.search(text):
        return unknown(text, line, FILE_PATTERN)
    return Piece(text, line)


def value(fragments: Iterable[Fragment]) -> Value:
    """Return what an assignment stores: nothing splits there."""
    stored: list[Piece] = []
    for fragment in fragments:
        piece = Piece(" ", 0) if fragment is None else fragment._replace(splits=False)
        stored.append(piece)
    return tuple(stored)


def spread(items: Sequence[Word], *, quoted: bool, joined: bool) -> Fragments:
    """Return ``"${name[@]}"`` (a word an element), unquoted (split again) or ``"${name[*]}"`` (one word)."""
    found: Fragments = []
    for place, item in enumerate(items):
        if place:
            found.append(Piece(" ", item.line) if joined and quoted else None)
        for piece in item.pieces:
            keeps = quoted or not piece.known
            found.append(piece if keeps else piece._replace(splits=True))
    return found


def lines_of(text: str, line: int) -> list[Piece]:
    """Return text that begins on ``line`` as one piece a line, so that each keeps its own."""
    parts = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
    return [Piece(part, line + number) for number, part in enumerate(parts)]


def plain(pieces: Sequence[Piece]) -> str | None:
    """Return the text of ``pieces``, or None when a part of it is unknown."""
    if all(piece.known for piece in pieces):
        return "".join(piece.text for piece in pieces)
    return None


def cut(pieces: Sequence[Piece], count: int) -> Value:
    """Return ``pieces`` without their first ``count`` characters, as an assignment stores them."""
    rest: list[Piece] = []
    for piece in pieces:
        rest.append(piece._replace(text=piece.text[count:], splits=False))
        count = max(0, count - len(piece.text))
    return tuple(rest)


def merged(first: Sequence[Piece], second: Sequence[Piece], doubt: Piece) -> Value:
    """Return what two possible values of a variable have in common at their start, then ``doubt``.

    Equal values are no doubt. The common part ends with a word, so that a list of flags keeps whole ones.
    """
    one, other = _atoms(first), _atoms(second)
    same = 0
    while same < min(len(one), len(other)) and _alike(one[same], other[same]):
        same += 1
    if same == len(one) == len(other):
        return tuple(first)
    while same and not (_blank(one[same - 1]) or (_ends(one, same) and _ends(other, same))):
        same -= 1
    common = one[:same]
    if common and not _blank(common[-1]):
        common.append(common[-1]._replace(text=" ", known=True))
    return (*_rejoined(common), doubt)


def _atoms(pieces: Sequence[Piece]) -> list[Piece]:
    """Return ``pieces`` with known text cut into single characters."""
    atoms: list[Piece] = []
    for piece in pieces:
        atoms += [piece._replace(text=letter) for letter in piece.text] if piece.known else [piece]
    return atoms


def _rejoined(atoms: Sequence[Piece]) -> list[Piece]:
    pieces: list[Piece] = []
    for atom in atoms:
        last = pieces[-1] if pieces else None
        if last is not None and last._replace(text="") == atom._replace(text="") and atom.known:
            pieces[-1] = last._replace(text=last.text + atom.text)
        else:
            pieces.append(atom)
    return pieces


def _alike(one: Piece, other: Piece) -> bool:
    return (one.text, one.known) == (other.text, other.known)


def _blank(atom: Piece) -> bool:
    return atom.known and atom.text in " \t\n"


def _ends(atoms: Sequence[Piece], at: int) -> bool:
    return at == len(atoms) or _blank(atoms[at])


def assembled(pieces: Value) -> tuple[bytes, list[int], list[int], list[Piece]]:
    """Return text with placeholders for what is unknown, and the offsets at which its lines change."""
    text = b""
    offsets: list[int] = []
    lines: list[int] = []
    hidden: list[Piece] = []
    for piece in pieces:
        offsets.append(len(text))
        lines.append(piece.line)
        if piece.known:
            text += piece.text.encode("utf-8", errors="replace")
        else:
            text += f"\ue000{len(hidden)}\ue001".encode()
            hidden.append(piece)
    return text, offsets, lines, hidden
