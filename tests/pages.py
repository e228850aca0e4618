"""The pages that people write: README.md and what is in docs/, less what `make docs` makes.

A fenced block with commands says in a comment above it how it is tested:

- ``<!-- in tests/captures/x -->``: run in that folder; ``, served on 31000``: with the server that was
  captured there answering on that port; ``<!-- in its folder -->``: run in an empty folder that the page's
  blocks share. What a ``console`` block shows is compared, a line ``...`` stands for any lines; ``sh`` has to
  end with 0.
- ``<!-- file: NAME -->``: its text is that file in the page's folder.
- ``<!-- run by tests/x.py -->``, ``<!-- not run: WHY -->``: the commands are only parsed here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = {"cli.md", "facts.md", "coverage.md"}
PAGES = [ROOT / "README.md", *(path for path in sorted(DOCS.glob("*.md")) if path.name not in GENERATED)]

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n\n?)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
LEFT_OUT = re.compile(r"^\.\.\.\n", re.MULTILINE)
_INLINE = re.compile(r"`(sgdoctor [^`|:]+)`")
_COMMANDS = ("sgdoctor ", "make ", "pip ", "pipx ", "python")
_ENDS = {"|", "<(", "||", "&&", "&", ";", ">", "<", "2>&1", ")"}


class Block(NamedTuple):
    """A fenced block: the comment above it, its language, its text."""

    mark: str
    language: str
    text: str

    def shown(self) -> Iterator[tuple[str, str]]:
        """Iterate over a console block's commands, each with the output below it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command += f"\n{more}"
            yield command, output

    def has_commands(self) -> bool:
        """Whether a reader would type it."""
        if self.language == "console":
            return True
        return self.language == "sh" and self.text.startswith(_COMMANDS)


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(each["mark"] or "", each["language"], each["text"]) for each in found]


def invocations(page: Path) -> list[list[str]]:
    """Return the words after `sgdoctor` of each command on a page, in its blocks and in its sentences."""
    lines = []
    for block in blocks(page):
        if block.language == "console":
            lines += [command for command, _ in block.shown()]
        elif block.language == "sh":
            lines += block.text.replace("\\\n", " ").splitlines()
    spans = _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    lines += [span for span in spans if not span.endswith(" ...")]
    return [words for line in lines for words in called(line)]


def called(line: str) -> Iterator[list[str]]:
    """Iterate over the calls of sgdoctor on a command line: the words behind its name."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    for at, word in enumerate(words):
        if word == "sgdoctor" and words[:1] != ["if"]:
            rest = words[at + 1 :]
            end = next((place for place, each in enumerate(rest) if each in _ENDS), len(rest))
            yield rest[:end]


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; a line `...` stands for any lines, also for none."""
    parts = [re.escape(part) for part in LEFT_OUT.split(shown)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), printed) is not None
