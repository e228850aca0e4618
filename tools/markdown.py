"""Markdown as GitHub shows it, from texts that were not written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

NO_LINKS: Mapping[str, str] = {}

# What a text is made of, in the order in which it is looked for. Names with underscores, flags, files, paths
# and placeholders are code although nobody put them between backticks.
_PARTS = re.compile(
    r"""
      (?P<code>`[^`]+`)
    | (?P<url>https?://[^\s<>"'()`]+)
    | \{(?P<placeholder>[A-Za-z_][\w.]*)(?:\|[^{}]*)?\}
    | (?P<flag>(?<![\w-])--?[A-Za-z][\w-]*)
    | (?P<name>[\w./=*:@+,-]*_[\w./=*:@+,-]*(?:\[[\d, ]+\][\w.]*)?)
    | (?P<file>[\w./-]+\.(?:py|json|yaml|sh)\b)
    | (?P<path>(?<![\w./)])/[a-z][\w./-]*)
    | (?P<known>\b[A-Z]{2,3}\d{3}\b)
    | (?P<special>[\\*<>\[\]~#$&_])
    """,
    re.VERBOSE,
)
_OPENING = re.compile(r"\A(\d*)([.)+=-])(?=\s|\Z|[-=])")  # what would begin a list or a rule
_TOUCHING = re.compile(r"(?<=[^`])``(?=[^`])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRAILING = re.compile(r"[.,:=]+\Z")


def prose(text: str, links: Mapping[str, str] = NO_LINKS) -> str:
    """Return ``text`` on one line, what looks like code as code; ``links`` has the pages of words.

    Backticks mark code already; nothing else in the text is taken for markup.
    """

    def part(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind in ("code", "url"):
            return found.group()
        if kind == "placeholder":
            return code(f"{{{found.group('placeholder')}}}")
        if kind in ("flag", "name", "file", "path"):
            return _word(found.group())
        if kind == "known":
            word = found.group()
            return f"[{word}]({links[word]})" if word in links else word
        return f"\\{found.group()}"

    marked = _PARTS.sub(part, " ".join(text.split()))
    # Two code spans that touch would be read as one with two backticks in it.
    return _OPENING.sub(r"\1\\\2", _TOUCHING.sub("", marked))


def _word(word: str) -> str:
    ends = _TRAILING.search(word)
    kept = word[: ends.start()] if ends else word
    return (code(kept) if kept.strip("_") else kept.replace("_", r"\_")) + word[len(kept) :]


def paragraphs(text: str, links: Mapping[str, str] = NO_LINKS) -> list[str]:
    """Return the paragraphs of ``text``, those that are lists as lists."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        items = re.split(r"^\s*- ", block, flags=re.MULTILINE)
        if items[0].strip():
            blocks.append(prose(items[0], links))
        if len(items) > 1:
            blocks.append("\n".join(f"- {prose(item, links)}" for item in items[1:]))
    return blocks


def code(text: str) -> str:
    """Return ``text`` as a code span."""
    text = " ".join(text.split())
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(len(run) for run in re.findall(r"`+", text)))
    return f"{fence} {text} {fence}"


def fenced(text: str, language: str = "") -> str:
    """Return ``text`` as a block of code, control characters as escapes."""
    text = _CONTROL.sub(
        lambda found: found.group().encode("unicode_escape").decode(), text.strip("\n").rstrip()
    )
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def page(*blocks: str) -> str:
    """Return a page of blocks, with an empty line between them."""
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
