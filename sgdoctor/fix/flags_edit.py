"""Take words out of a script's text, or write others in their place, and leave the rest as it is."""

from __future__ import annotations

import re

_BLANKS = b" \t"
# What needs no quotes, within quotes or without.
PLAIN = re.compile(r"[A-Za-z0-9_.:/=+-]+")


def without(source: bytes, start: int, end: int) -> bytes:
    """Return ``source`` without the words from the byte ``start`` up to ``end``.

    A line on which nothing else stands goes with them, and so does the continuation that led to it; a comment
    behind them stays.
    """
    first = source.rfind(b"\n", 0, start) + 1
    last = source.find(b"\n", end)
    last = len(source) if last < 0 else last
    before, after = source[first:start], source[end:last]
    if before.strip(_BLANKS):
        return _beside(source, start, end)
    goes_on = after.endswith(b"\\")
    kept = source[: max(first - 1, 0)]
    joint = continuation(kept)
    kept = kept[: len(kept) - len(joint)].rstrip(_BLANKS)
    if joint and after[:1] in (b'"', b"'"):  # the end of a command within quotes
        return kept + source[end:]
    if after.strip(_BLANKS).strip(b"\\"):
        return source[:start] + source[end:].lstrip(_BLANKS)
    if joint and not goes_on:
        return kept + source[last:]
    return source[:first] + source[last + 1 :]


def continuation(line: bytes) -> bytes:
    """Return the backslashes that ``line`` ends in: in a text that two shells read there are two."""
    return line[len(line.rstrip(b"\\")) :]


def _beside(source: bytes, start: int, end: int) -> bytes:
    """Cut words out of a line that has others, with the blanks on one side."""
    kept = source[:start].rstrip(_BLANKS)
    if len(kept) == start:  # behind a quote or a parenthesis
        return kept + source[end:].lstrip(_BLANKS)
    return kept + source[end:]


def replaced(source: bytes, start: int, end: int, old: str, new: str) -> bytes | None:
    """Return ``source`` with ``old`` in the word from ``start`` to ``end`` as ``new``, quotes and all kept.

    Null where the word is not written so, or ``new`` would need quotes.
    """
    word = source[start:end]
    if not old or word.count(old.encode()) != 1 or not PLAIN.fullmatch(new):
        return None
    return source[:start] + word.replace(old.encode(), new.encode()) + source[end:]
