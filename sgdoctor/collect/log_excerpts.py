"""The lines around those on which something was found, kept while a log is read: it is read only once."""

from __future__ import annotations

import re
from typing import Protocol

from sgdoctor import redact
from sgdoctor.collect import log_text
from sgdoctor.collect.log_text import Form

BEFORE = AFTER = 2
MOST = 400  # places of one log
SHOWN = 300  # characters of a line
_READ = 1 << 14

# What is asked and answered is nobody's business here.
_REQUEST = re.compile(f"({log_text.REQUEST}).*", re.DOTALL)
# What begins a record, and so does not go on with the line before
_DATED = re.compile(r"\[?\d{4}-\d\d-\d\d")


class Lines(Protocol):
    """Some physical lines of a log by their numbers."""

    def whole(self, number: int) -> bytes | None:
        """Return a line, None where it is not among them from its beginning on."""


class Excerpts:
    """Lines with their neighbours: ``texts`` maps the number of each to its own and theirs."""

    def __init__(self) -> None:
        self.texts: dict[int, dict[int, str]] = {}
        self._open: dict[int, dict[int, bytes]] = {}

    def want(self, number: int) -> None:
        """Ask for the lines around line ``number``; `take` brings them."""
        if number not in self.texts and len(self.texts) + len(self._open) < MOST:
            self._open.setdefault(number, {})

    def forget(self) -> None:
        """Begin anew."""
        self.texts.clear()
        self._open.clear()

    def take(self, lines: Lines, last: int, form: Form) -> None:
        """Take what is wanted of ``lines``, the last of which is ``last``; ``form`` says how they look."""
        for number, held in list(self._open.items()):
            for at in range(max(number - BEFORE, 1), number + AFTER + 1):
                if at not in held and (line := lines.whole(at)) is not None:
                    held[at] = line[:_READ]
            if last >= number + AFTER:
                self._finish(number, form)

    def close(self, form: Form) -> None:
        """Make do with the lines that came: the log has ended."""
        for number in list(self._open):
            self._finish(number, form)

    def _finish(self, number: int, form: Form) -> None:
        lines = sorted(self._open.pop(number).items())
        if number not in dict(lines):
            return
        raw = [_readable(line, form) for _, line in lines]
        clean = [redact.text(text) for text in raw]
        # A secret that a terminal or a runtime has broken over two lines is seen only in both together.
        if redact.text(_joined(raw, raw)) == _joined(clean, raw):
            self.texts[number] = {at: _short(text) for (at, _), text in zip(lines, clean, strict=True)}


def _joined(texts: list[str], raw: list[str]) -> str:
    """Join lines; between records, which is what ``raw`` shows, there is a line end."""
    starts = ["\n" if _DATED.match(text) else "" for text in raw]
    return "".join(f"{start}{text}" for start, text in zip(starts, texts, strict=True))


def _readable(line: bytes, form: Form) -> str:
    """Return a line without what wraps it; of one that was written over itself, what stays on the screen."""
    segments = [each for each in log_text.unwrapped(line, form) if each and not each.isspace()]
    return segments[-1].rstrip().decode(errors="replace") if segments else ""


def _short(text: str) -> str:
    text = _REQUEST.sub(r"\1 (a request)", text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
