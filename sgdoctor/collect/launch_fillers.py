"""Commands that other programs put together before they run them: xargs, parallel, ``env -S``, screen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sgdoctor.collect.launch_words import Piece, Value, Word, cut, unknown

FILLERS = frozenset({"xargs", "parallel"})

_INPUTS = re.compile(r"::::?\+?")
_OF_PARALLEL = re.compile(r"\{[0-9#%./]*\}")
_OF_XARGS = re.compile(r"-[a-zA-Z0-9]*I(.*)|-i(.*)|--replace(?:=(.*))?", re.DOTALL)
# Options of xargs with a value in the next word
_VALUED = frozenset("-a --arg-file -d --delimiter -E -L -n --max-args -P --max-procs -s --max-chars".split())
_SPLIT = re.compile(r"-[a-zA-Z0]*S|--split-string=?")
_TAKES_WORD = ("-u", "--unset", "-C", "--chdir")
_KEYS = re.compile(r"(?:\\[nr]|\\015|\\012|\^M|[\r\n])+\Z")


def filled(name: str, words: Sequence[Word]) -> list[Word]:
    """Return the words behind xargs or parallel; what these fill in, or add at the end, is not known."""
    mark: re.Pattern[str] | None = _OF_PARALLEL
    if name == "parallel":
        inputs = (at for at, word in enumerate(words) if _INPUTS.fullmatch(word.text))
        words = words[: next(inputs, len(words))]
    else:
        mark = _replaced(words)
    found = [Word(tuple(_parts(_whole(word), mark, name))) for word in words]
    if name == "xargs" and mark is not None:
        return found
    if found and [word.text for word in found if not word.known] == [w.text for w in words if not w.known]:
        found.append(Word((unknown("{}", words[-1].line, f"{name} adds words", splits=True),)))
    return found


def _replaced(words: Sequence[Word]) -> re.Pattern[str] | None:
    """Return what xargs replaces, null when it adds its input at the end."""
    value = False
    for word, after in zip(words, [*words[1:], None], strict=False):
        if not value and not word.text.startswith("-"):
            return None  # the command, whose options are its own
        value = not value and word.text in _VALUED
        option = _OF_XARGS.fullmatch(word.text)
        if option is not None:
            given = next((part for part in option.groups() if part), "")
            if not given and option.group(1) is not None and after is not None:
                given = after.text
            return re.compile(re.escape(given or "{}"))
    return None


def _whole(word: Word) -> Value:
    """Return the pieces of a word, those of a known one in one."""
    return (Piece(word.text, word.line),) if word.known else word.pieces


def _parts(pieces: Value, mark: re.Pattern[str] | None, name: str) -> Iterator[Piece]:
    for piece in pieces:
        start = 0
        for found in mark.finditer(piece.text) if mark is not None and piece.known else ():
            yield piece._replace(text=piece.text[start : found.start()])
            yield unknown(found.group(), piece.line, f"{name} fills it in")
            start = found.end()
        if start < len(piece.text) or not start:
            yield piece._replace(text=piece.text[start:])


def split_string(rest: Sequence[Word]) -> tuple[Value, list[Word]] | None:
    """Return the text that ``env -S TEXT WORD...`` splits into words and those behind it, null without -S."""
    skip = False
    for at, word in enumerate(rest):
        if skip or not word.text.startswith("-"):
            if not skip:
                return None
            skip = False
            continue
        option = _SPLIT.match(word.prefix)
        if option is None:
            skip = word.text in _TAKES_WORD
        elif option.end() < len(word.text):
            return cut(word.pieces, option.end()), list(rest[at + 1 :])
        else:
            return (rest[at + 1].pieces, list(rest[at + 2 :])) if at + 1 < len(rest) else None
    return None


def typed(pieces: Value) -> Value:
    """Return what ``screen -X stuff TEXT`` types, without the key that ends the line."""
    if not pieces or not pieces[-1].known:
        return pieces
    return (*pieces[:-1], pieces[-1]._replace(text=_KEYS.sub("", pieces[-1].text)))
