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
    within: dict[str, int] = {}  # what is open, and its line
    for atom in atoms(pieces):
        letter = atom.text if atom.known else ""
        quoted = bool(within)
        if "\\" in within:
            del within["\\"]
            built.add(atom)
        elif not atom.known:
            built.add(atom._replace(splits=not quoted))
        elif letter == "\\" and "'" not in within:
            within[letter] = atom.line
        elif letter in _BLANKS and not quoted:
            built.end()
        elif letter in "\"'" and not ({"'", '"', ")"} - {letter}) & set(within):
            _toggle(within, letter, atom.line)
            built.begin(atom.line)
        elif letter == "(" and not {"'", '"', "`"} & set(within):
            if ")" in within or not built.text.endswith("$"):
                raise SplitError(atom.line)
            within[")"] = atom.line
            built.add(atom)
        elif letter in ";&|<>" and not quoted:
            if letter == ">" and built.text[:1].isdigit():
                built.drop()  # the number of what is redirected
            break
        else:
            if letter in "`)" and not ({"'", '"', "`", ")"} - {letter}) & set(within):
                _toggle(within, letter, atom.line)
            built.add(atom)
    if within:
        raise SplitError(min(within.values()))
    built.end()
    return built.words


def _toggle(within: dict[str, int], letter: str, line: int) -> None:
    if letter in within:
        del within[letter]
    else:
        within[letter] = line
