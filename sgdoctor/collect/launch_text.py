"""Text as bash writes it: backslashes, numbers, the patterns of ``${name##pattern}``."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8}))"
)
_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_ESCAPED_BLANK = re.compile(rb"(?<!\\)(?:\\\\)*\\[ \t]+\r?\Z")
_PLACEHOLDER = re.compile(r"(?<=[\s=:/])<[A-Za-z](?:[\w .:-]*\w)?>")
_UNSIMPLE = re.compile(r"[$`\\\[\](){}'\"?]")


def number(text: str) -> int | None:
    """Return the number that ``text`` is, None when it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def escaped(match: re.Match[str]) -> str:
    """Return what a backslash and ``group(1)`` stand for; a backslash takes the end of the line away."""
    return "" if match.group(1) == "\n" else match.group(1)


def ends_in_escaped_blank(source: bytes, end: int) -> bool:
    """Whether a backslash and blanks stand at the end of the line of the byte ``end``, and it is in them."""
    first = source.rfind(b"\n", 0, end) + 1
    last = source.find(b"\n", end)
    found = _ESCAPED_BLANK.search(source, first, last if last >= 0 else len(source))
    return found is not None and found.start() <= end


def to_fill_in(text: str) -> str:
    """Return the question whether the first ``<NAME>`` of a script is to be filled in; empty without one."""
    code = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    found = _PLACEHOLDER.search(code)
    return f"; is {found[0]} to be filled in?" if found else ""


def dollar_quoted(raw: str) -> str:
    """Return the text of ``$'raw'``."""
    return _ESCAPE.sub(_meant, raw)


def _meant(match: re.Match[str]) -> str:
    letter, octal, *hexes = match.groups()
    if letter:
        return _LETTERS[letter]
    code = int(octal, 8) if octal else int(next(part for part in hexes if part), 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def stripped(text: str, operator: str, pattern: str) -> str | None:
    """Return ``${text#pattern}`` and its kin (##, %, %%); None for a pattern of more than text and ``*``."""
    if _UNSIMPLE.search(pattern):
        return None
    star = ".*" if len(operator) == 2 else ".*?"
    body = star.join(re.escape(part) for part in pattern.split("*"))
    if operator[0] == "#":
        match = re.match(body, text, re.DOTALL)
        return text[match.end() :] if match else text
    starts = range(len(text) + 1) if len(operator) == 2 else range(len(text), -1, -1)
    return text[: next((at for at in starts if re.fullmatch(body, text[at:], re.DOTALL)), len(text))]
