"""Splits a command that is one text into its words where no shell does: as docker compose and systemd do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgdoctor.collect.launch_words import Piece, Value, Word

_BLANKS = " \t\r\n"


class SplitError(ValueError):
    """A quote or a backslash that nothing follows; ``line`` is where it stands."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


class Builder:
    """Collects the words of a text, atom by atom."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self._current: list[Piece] | None = None

    def add(self, atom: Piece) -> None:
        """Add a character, or text that is not known, to the word."""
        current = self._current = self._current or []
        last = current[-1] if current else None
        if last is not None and last.known and atom.known and (last.line == atom.line or not last.text):
            current[-1] = last._replace(text=last.text + atom.text, line=atom.line)
        else:
            current.append(atom)

    def begin(self, line: int) -> None:
        """Note that there is a word, if an empty one."""
        if self._current is None:
            self._current = [Piece("", line)]

    @property
    def text(self) -> str:
        """The word so far."""
        return "".join(piece.text for piece in self._current or ())

    def drop(self) -> None:
        """Forget the word so far."""
        self._current = None

    def end(self) -> None:
        """End the word, if there is one."""
        if self._current is not None:
            self.words.append(Word(tuple(self._current)))
        self._current = None


def atoms(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield known text character by character, and text that is not known as it is."""
    for piece in pieces:
        if piece.known:
            yield from (piece._replace(text=letter, splits=False) for letter in piece.text)
        else:
            yield piece


def compose_words(pieces: Value) -> list[Word]:
    """Return the words of a command or entrypoint that is a string in a compose file.

    As mattn/go-shellwords 1.0.12 splits it for docker compose: no shell, so that a backslash at the end of a
    line adds a line break to the words, and what follows an unquoted ``;``, ``&``, ``|``, ``<`` or ``>`` is
    dropped. Raises SplitError where that refuses the text.
    """
    built = Builder()
    quote = ""
    opened = 0
    escaped = False
    for atom in atoms(pieces):
        letter = atom.text if atom.known else ""
        if escaped:
            built.add(atom._replace(text={"t": "\t", "n": "\n"}.get(letter, atom.text)))
            escaped = False
        elif not atom.known:
            built.add(atom._replace(splits=not quote))
        elif letter == "\\" and quote != "'":
            escaped, opened = True, atom.line
        elif letter in _BLANKS and not quote:
            built.end()
        elif letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
            opened = atom.line
            built.begin(atom.line)
        elif letter == "`" and quote in ("", "`"):
            quote, opened = "" if quote else "`", atom.line
            built.add(atom)
        elif letter == "(" and not quote and built.text.endswith("$"):
            quote, opened = ")", atom.line
            built.add(atom)
        elif letter == ")" and quote == ")":
            quote = ""
            built.add(atom)
        elif letter in "()" and not quote:
            raise SplitError(atom.line)
        elif letter in ";&|<>" and not quote:
            if letter == ">" and built.text[:1].isdigit():
                built.drop()  # the number of what is redirected
            break
        else:
            built.add(atom)
    if escaped or quote:
        raise SplitError(opened)
    built.end()
    return built.words
