"""The plan of a repair of flags: the changes of a launch file, and what becomes of its text."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sgdoctor import redact
from sgdoctor.fix import flags_secrets
from sgdoctor.fix.flags_apply import Script


class Change(msgspec.Struct, frozen=True):
    """One change of one flag, asked for by the rule ``code``.

    ``before`` is the flag with its values as it stands on ``line``, empty for one to be added; ``after`` what
    it becomes, empty for one to be removed, null where nothing is to be done but what ``why`` says.
    """

    line: int
    before: str
    after: str | None
    code: str
    title: str
    why: str = ""

    @property
    def what(self) -> str:
        """What is done, in words."""
        if self.after is None:
            return self.before
        if not self.before:
            return f"add {self.after}"
        return f"{self.before} becomes {self.after}" if self.after else f"remove {self.before}"


class Plan(msgspec.Struct, frozen=True):
    """What can be done for a launch file.

    ``repaired`` is its new text, null where nothing is changed; ``changes`` are in it, or, where ``by_hand``
    says why the file is not written, to be made by hand. ``left`` are changes that are not made, with the
    reason; ``unsafe`` those that --unsafe makes. ``still`` are the codes that are found in the repaired text,
    too, for what is not changed. ``undecided``: why rules on flags could not be decided.
    """

    path: Path
    text: str
    changes: tuple[Change, ...]
    left: tuple[Change, ...] = ()
    unsafe: tuple[Change, ...] = ()
    repaired: str | None = None
    by_hand: str | None = None
    undecided: str | None = None
    still: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the rules whose advice is followed, each once."""
        return tuple(dict.fromkeys(change.code for change in self.changes))

    def hides(self) -> bool:
        """Whether a line of the diff is hidden as a whole."""
        return any(line[1:] == f"{redact.REDACTED}\n" for line in self.diff().splitlines(keepends=True))

    def diff(self) -> str:
        """Return the change of the file as a unified diff without its secrets, empty when there is none.

        A line with a secret that only the reader of the script knows is ``<redacted>`` as a whole; where such
        a line changes, it stands there twice.
        """
        if self.repaired is None:
            return ""
        name = str(self.path)
        before, after = (_Text(Script(text, name, self.path.parent)) for text in (self.text, self.repaired))
        parts = [f"--- {name}\n+++ {name}\n"]
        matcher = difflib.SequenceMatcher(None, before.lines, after.lines)
        for group in matcher.get_grouped_opcodes(3):
            (_, first, _, start, _), (_, _, last, _, end) = group[0], group[-1]
            parts.append(f"@@ -{_span(first, last)} +{_span(start, end)} @@\n")
            for kind, first, last, start, end in group:
                if kind == "equal":
                    parts += [f" {line}" for line in before.shown[first:last]]
                    continue
                parts += [f"-{line}" for line in before.shown[first:last]]
                parts += [f"+{line}" for line in after.shown[start:end]]
        return "".join(part if part.endswith("\n") else f"{part}\n{_NO_END}" for part in parts)


_NO_END = "\\ No newline at end of file\n"


class _Text:
    """The lines of a script as they are, and as they may be shown."""

    def __init__(self, script: Script) -> None:
        self.lines = [*io.StringIO(script.text, newline="\n")]  # splitlines() knows other ends of lines
        self.shown = [*_shown(script, self.lines)]


def _shown(script: Script, lines: list[str]) -> Iterator[str]:
    whole = flags_secrets.lines(script.text.encode())
    secret = {
        word.line for command in script.commands() for word in command.words if redact.REDACTED in word.text
    }
    for number, line in enumerate(lines, 1):
        told = redact.text(line)
        hidden = number in whole or (told == line and number in secret)
        yield f"{redact.REDACTED}\n" if hidden else told


def _span(first: int, last: int) -> str:
    """Return lines as a unified diff writes them; those of an empty stretch are the one before it."""
    count = last - first
    if count == 1:
        return str(first + 1)
    return f"{first + 1 if count else first},{count}"
