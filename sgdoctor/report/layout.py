"""Text in columns: words that carry a style, wrapped with a hanging indent, never in the middle of a name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# A piece of text and the name of its style; "" is plain. A line is such pieces, without its newline.
Span = tuple[str, str]
Line = list[Span]

NARROWEST = 40

# "block_shape=[128, 128]" is part of a file name of SGLang's, and a quoted word is one word.
_WORD = re.compile(r"(?:[^\s\[]|\[\d+(?:, \d+)*\]|\[)+")
_SHELL_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"(?:[^\"\\]|\\.)*\"|['\"])+")
_BREAKS = re.compile(r"(?<=[/,_=&?:;.@-])")

# What rules and header lines use beyond ASCII, and how it is written where only ASCII can be.
_PLAIN_FORMS = {
    0x00A0: " ",  # no-break space
    0x00B5: "u",  # micro sign
    0x00B7: "-",  # middle dot
    0x00D7: "x",  # multiplication sign
    0x2013: "-",  # en dash
    0x2014: "-",  # em dash
    0x2018: "'",
    0x2019: "'",
    0x201C: '"',
    0x201D: '"',
    0x2026: "...",
    0x2192: "->",
    0x2264: "<=",
    0x2265: ">=",
}


def printable(text: str, encoding: str = "utf-8") -> str:
    """Return ``text`` as a terminal of this encoding can show it and is not steered by it.

    Control characters come out as escapes: a log line may hold any.
    """
    if not text.isascii():
        try:
            text.encode(encoding)
        except UnicodeError:
            text = "".join(_spelt(each, encoding) for each in text)
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def _spelt(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeError:
        return character.translate(_PLAIN_FORMS).encode(encoding, "backslashreplace").decode(encoding)
    return character


def columns(text: str) -> int:
    """Return how many columns a terminal needs for ``text``."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def words(text: str, style: str = "") -> list[Span]:
    """Split ``text`` into words that a line may not end within."""
    return [(word, style) for word in _WORD.findall(text)]


class Page:
    """What is laid out at ``width`` columns, in characters that ``encoding`` has."""

    def __init__(self, width: int, encoding: str) -> None:
        self.width = width
        self.encoding = encoding

    def words(self, text: str, style: str = "") -> list[Span]:
        """Return the words of ``text`` as they can be shown."""
        return words(printable(text, self.encoding), style)


def flow(
    pieces: Iterable[Span], width: int, indent: int = 0, first: Iterable[Span] = (), *, hang: int = 0
) -> list[Line]:
    """Wrap words into lines of at most ``width`` columns from column ``indent`` on.

    ``first`` opens the first line; it is padded to the indent, or followed by one space where it is longer.
    Later lines start ``hang`` columns further on. An empty word widens the space around it. A word too long
    for the indent gets a line of its own further left, so that it can be copied; only one longer than the
    whole line is broken, behind a separator.
    """
    pieces = list(pieces)
    outdent = _outdent((word for word, _ in pieces), width, indent)
    line = _opening(first, indent)
    indent += hang
    used = sum(columns(text) for text, _ in line)
    lines: list[Line] = []
    fresh = True  # no word on this line yet
    for word, style in pieces:
        size = columns(word)
        if not word:
            if not fresh:
                used += 1
                line.append((" ", ""))
            continue
        if indent + size > width:
            if line and (not fresh or any(text.strip() for text, _ in line)):
                lines.append(line)
            parts = [word] if outdent + size <= width else _broken(word, width - outdent)
            lines += [[(" " * outdent, ""), (part, style)] for part in parts]
            line, used, fresh = [(" " * indent, "")], indent, True
            continue
        if not fresh and used + 1 + size > width:
            lines.append(line)
            line, used, fresh = [(" " * indent, "")], indent, True
        elif not fresh:
            line.append((" ", style if line[-1][1] == style else ""))
            used += 1
        elif used + size > width:  # a long opening
            lines.append(line)
            line, used = [(" " * indent, "")], indent
        line.append((word, style))
        used += size
        fresh = False
    if not fresh or not lines:
        lines.append(line)
    return [_trimmed(each) for each in lines]


def command(text: str, width: int, indent: int, first: Iterable[Span] = ()) -> list[Line]:
    """Wrap a shell command into lines that can be copied: broken between words, with backslashes."""
    line = _opening(first, indent)
    used = sum(columns(span) for span, _ in line)
    lines: list[Line] = []
    parts = _SHELL_WORD.findall(text)
    current = ""
    for number, word in enumerate(parts):
        room = width - used - (2 if number < len(parts) - 1 else 0)
        joined = f"{current} {word}" if current else word
        if current and columns(joined) > room:
            lines.append([*line, (f"{current} \\", "command")])
            line, used, current = [(" " * (indent + 2), "")], indent + 2, word
        else:
            current = joined
    lines.append([*line, (current, "command")])
    return lines


def plain(lines: Iterable[Line]) -> str:
    """Return ``lines`` without their styles."""
    return "".join("".join(text for text, _ in line) + "\n" for line in lines)


def _opening(first: Iterable[Span], indent: int) -> Line:
    line = list(first)
    used = sum(columns(text) for text, _ in line)
    if used < indent:
        line.append((" " * (indent - used), ""))
    elif line and indent and (used > indent or not line[-1][0].endswith(" ")):
        line.append((" ", ""))
    return line


def _outdent(texts: Iterable[str], width: int, indent: int) -> int:
    """Return the column at which all words too long for the indent, but not for the line, start."""
    sizes = [columns(text) for text in texts]
    long = [size for size in sizes if width - indent < size <= width]
    return min((width - size for size in long), default=min(indent, 2))


def _broken(word: str, width: int) -> list[str]:
    """Break a word that fits no line, behind its separators where it has any."""
    parts: list[str] = []
    current = ""
    for piece in _BREAKS.split(word):
        while columns(current) + columns(piece) > width:
            if current:
                parts.append(current)
                current = ""
            else:
                cut = _fitting(piece, width)
                parts.append(piece[:cut])
                piece = piece[cut:]  # noqa: PLW2901 (its rest)
        current += piece
    return [*parts, current] if current else parts


def _fitting(text: str, width: int) -> int:
    """Return how many characters of ``text`` fit into ``width`` columns, at least one."""
    used = 0
    for number, each in enumerate(text):
        used += columns(each)
        if used > width:
            return max(number, 1)
    return len(text)


def _trimmed(line: Line) -> Line:
    """Return ``line`` without spaces at its end."""
    line = list(line)
    while line and not line[-1][0].strip():
        line.pop()
    if line:
        text, style = line[-1]
        line[-1] = (text.rstrip(), style)
    return line
