"""What becomes of the flags of a launch command."""

from __future__ import annotations

from collections.abc import Iterator

from sgdoctor import redact
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.engine.model import Severity
from sgdoctor.report.model import Change, ChangeKind
from sgdoctor.target import command as commands
from sgdoctor.target import meaning, successor
from sgdoctor.target.command import Written
from sgdoctor.target.meaning import Meaning
from sgdoctor.target.path import Path
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release

_EXITS = "the server exits with a usage error"
_MANY = 8  # choices that are still read in a line


def changes(command: LaunchCommand, path: Path) -> list[Change]:
    """Return what is different for the flags that are written, in their order."""
    before, after = commands.read(command, path.start), commands.read(command, path.end)
    found = list(_refusals(command, path, before.refusal, after.refusal))
    positions = {each.position for each in after.written}
    gone = [each for each in before.written if each.position not in positions]
    for written in (*after.written, *gone):
        change = one(written, path)
        if change is not None and change not in found:
            found.append(change)
    return found


def one(written: Written, path: Path) -> Change | None:
    """Return what becomes of one flag, None when nothing does."""
    before, after = meaning.of(written, path.start), meaning.of(written, path.end)
    if before.key == after.key or not (before.accepted or after.accepted):
        return None
    since = path.since(lambda version: meaning.of(written, release(version)).key)
    return _Judge(written, path, since).judge(before, after)


def release(version: str) -> Release:
    """Return a release of the catalogue."""
    found = catalogue.resolve(version)
    assert found is not None  # noqa: S101 (a release of the catalogue)
    return found


def when(path: Path, since: str | None) -> str:
    """Say from where on the way something holds: " from 0.5.20 on", downwards " before 0.5.14"."""
    if since is None:
        return ""
    return f" from {since} on" if path.upgrade else f" before {since}"


class _Judge:
    """Words one change."""

    def __init__(self, written: Written, path: Path, since: str | None) -> None:
        self.written = written
        self.option = written.option
        self.path = path
        self.since = since
        self.when = when(path, since)

    def judge(self, before: Meaning, after: Meaning) -> Change | None:
        """Return the change from ``before`` to ``after``, None when the operator gets the same."""
        if after.state == "unknown":
            return self._gone(before)
        if after.state == "ambiguous":
            return self._ambiguous(before, after)
        if after.state in ("refused", "stops"):
            return self._refused(before, after)
        if after.state == "prefix":
            return self._prefix(before, after)
        if after.state == "ignored":
            said = f": {after.said.strip()}" if after.said else "."
            text = f"{self.option} is accepted and ignored{self.when}{said}"
            return self._change("flag-ignored", "warning", text, before, after, f"remove {self.option}")
        if after.state == "deprecated":
            return self._deprecated(before, after)
        return self._plain(before, after)

    def _gone(self, before: Meaning) -> Change:
        gone = f"gone{self.when}" if self.path.upgrade else f"not known{self.when}"
        others = successor.of(self.written, self.path)
        flag = successor.last(self.option, self.path)
        text = f"{self.option} is {gone}: {_EXITS}."
        if others:
            return self._change(
                "flag-renamed", "error", text, before, self._joined(others), self._write(others)
            )
        said, noted = successor.words(flag), successor.noted(flag, self.path.end)
        do = f"remove {self.option}" + (f", or see {noted}" if noted else "")
        text += f' Its last words were "{said}".' if said and self.path.upgrade else ""
        return self._change("flag-gone", "error", text, before, None, do)

    def _ambiguous(self, before: Meaning, after: Meaning) -> Change:
        others = successor.of(self.written, self.path)
        names = " or ".join(after.candidates)
        text = f"{self.option} is ambiguous{self.when}, it could be {names}: {_EXITS}."
        do = self._write(others) if others else "write the flag that is meant in full"
        return self._change("flag-ambiguous", "error", text, before, names, do)

    def _refused(self, before: Meaning, after: Meaning) -> Change:
        flag = self.path.end.option(self.option)
        choices = [str(each) for each in (flag.choices or ())] if flag is not None else []
        if choices and self.written.value not in (None, *choices):
            text = f"{self.written.text} is no choice{self.when}: {_EXITS}."
            do = f"choose one of {', '.join(choices)}" if len(choices) <= _MANY else "choose another"
            return self._change("flag-value", "error", text, before, after, do)
        text = f"{self.written.text} is refused{self.when}: {sentence(after.said)}"
        return self._change("flag-value", "error", text, before, after)

    def _prefix(self, before: Meaning, after: Meaning) -> Change:
        other = after.option
        if before.dest is not None and before.dest == after.dest:
            text = (
                f"{self.option} is accepted{self.when} only as the beginning of {other}, which does the same."
            )
            return self._change("flag-prefix", "info", text, before, after, f"write {other}")
        if not before.accepted:
            text = f"{self.option} is taken for {other}{self.when}: {self._now(before)}."
            return self._change(
                "flag-prefix", "warning", text, before, after, f"write {other}, if that is meant"
            )
        text = (
            f"{self.option} is silently taken for {other}{self.when}, which is another flag: the server "
            "starts with something else than was asked for."
        )
        others = successor.of(self.written, self.path)
        do = self._write(others) if others else f"remove {self.option}, or write {other} if that is meant"
        return self._change("flag-prefix", "warning", text, before, after, do)

    def _deprecated(self, before: Meaning, after: Meaning) -> Change:
        flag = self.path.end.option(after.option or self.option)
        others = successor.named(after.successor, self.path.end) if after.successor else []
        noted = successor.noted(flag, self.path.end)
        told: Meaning | str = after
        text, do = f"{self.option} is deprecated{self.when}", None
        if others:
            text, do, told = (
                f"{text}: it is read as {self._joined(others)}.",
                self._write(others),
                self._joined(others),
            )
        elif noted:
            text, do, told = f"{text}, for {noted}.", f"write {noted}", noted
        else:
            said = successor.words(flag)
            text += f': "{said}".' if said else "."
        return self._change("flag-deprecated", "info", text, before, told, do)

    def _plain(self, before: Meaning, after: Meaning) -> Change | None:
        if not before.accepted or before.state == "ignored":
            text = f"{self.option} works{self.when}: {self._now(before)}."
            return self._change("flag-accepted", "info", text, before, after)
        if before.state == "prefix":
            text = f"{self.option} is a flag of its own{self.when}, no longer short for {before.option}."
            return self._change("flag-prefix", "warning", text, before, after, f"write {before.option}")
        return None  # deprecated before, an ordinary flag of an older release

    # --- words -----------------------------------------------------------------------------------------

    def _now(self, before: Meaning) -> str:
        """Say what the release in use makes of the flag."""
        version = self.path.start.version
        if before.state == "ignored":
            return f"{version} ignores it"
        return f"{version} does not know it" if before.state == "unknown" else f"{version} refuses it"

    def _joined(self, others: list[str]) -> str:
        return (" and " if self.path.upgrade else " or ").join(others)

    def _write(self, others: list[str]) -> str:
        """Say what to write, with the value that is there where the new flag takes it."""
        if len(others) == 1 and "=" not in others[0] and " " not in others[0] and self.written.value:
            other = others[0]
            flag = self.path.end.option(other)
            if flag is not None and not flag.takes_value:
                return f"write {other}"
            if meaning.spelled(self.path.end, other, *self.written.values).accepted:
                return f"write {other} {redact.text(self.written.value)}"
            value = successor.mapped(self.written.value, other, self.path)
            return f"write {other} {value}" if value else f"write {other}, with a value of its own"
        return f"write {self._joined(others)}"

    def _change(
        self,
        kind: ChangeKind,
        severity: Severity,
        message: str,
        before: Meaning | None,
        after: Meaning | str | None,
        do: str | None = None,
    ) -> Change:
        return Change(
            kind=kind,
            subject=self.option,
            before=_told(before, self.written),
            after=after if isinstance(after, str) else _told(after, self.written),
            release=self.since,
            severity=severity,
            message=message,
            do=do,
        )


def _told(of: Meaning | None, written: Written) -> str | None:
    """Return what a release makes of the flag, in short; None when it does not know it."""
    if of is None or of.state == "unknown":
        return None
    if of.state in ("plain", "deprecated"):
        return written.text
    if of.state == "ambiguous":
        return " or ".join(of.candidates)
    return of.option if of.state == "prefix" else of.state


def sentence(text: str | None) -> str:
    """Return ``text`` with an end."""
    text = (text or "no reason given").strip()
    return text if text.endswith((".", "!")) else f"{text}."


def _refusals(command: LaunchCommand, path: Path, before: str | None, after: str | None) -> Iterator[Change]:
    """Yield that ``sglang serve`` or ``--config`` ends the launch before its flags are parsed."""
    if bool(before) == bool(after):
        return
    since = path.since(lambda version: commands.read(command, release(version)).refusal is None)
    told = when(path, since).strip()
    told = told[:1].upper() + told[1:]
    if after:
        message = f"{told} the server stops before it reads its flags: {sentence(after)}"
    else:
        message = f"{told} the command is accepted; {path.start.version} stops with: {sentence(before)}"
    yield Change(
        kind="launch-refused" if after else "flag-accepted",
        subject="sglang serve" if command.entry == "serve" else "--config",
        before=before,
        after=after,
        release=since,
        severity="error" if after else "info",
        message=message,
    )
