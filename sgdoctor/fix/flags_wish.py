"""Which changes of flags the findings of a check ask for, and which of them change nothing else."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Literal

import msgspec

from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.engine.model import Finding
from sgdoctor.target import command as commands
from sgdoctor.target import meaning, successor
from sgdoctor.target.command import Written
from sgdoctor.target.path import Path as Way
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.flags import Parser, parser_for

Kind = Literal["remove", "rename", "set", "leave"]

# The findings on flags that a release does not have, has under another name, or only still accepts.
_SPELLED = {
    "ARG101": ("unknown",),
    "ARG102": ("ambiguous",),
    "ARG108": ("prefix",),
    "ARG109": ("ignored", "deprecated", "stops"),
}


class Wish(msgspec.Struct, frozen=True):
    """A change that a finding asks for: ``option`` is removed, written as ``to``, or set to ``to``.

    A flag without a value is set to an empty one.

    ``exact``: of several spellings this one alone is meant. ``safe``: the server does the same without it, or
    does not start with it. ``why`` says why nothing is changed (kind leave), or what else could be done.
    """

    code: str
    kind: Kind
    option: str
    to: str = ""
    exact: bool = False
    safe: bool = False
    why: str = ""

    @property
    def written(self) -> str:
        """The flag as it is to be written where it is added."""
        return f"{self.option} {self.to}" if self.to else self.option

    def means(self, written: Written, release: Release) -> bool:
        """Whether this is about a flag of the command, as the release reads it."""
        if written.option == self.option:
            return True
        flag = None if self.exact else release.option(self.option)
        read = meaning.of(written, release)
        negated = read.option is not None and read.option.startswith("--no-")
        return flag is not None and read.accepted and not negated and read.dest == flag.dest

    def takes(self, written: Written, release: Release) -> bool:
        """Whether the words of the flag are all its own: as many values as it has."""
        option = meaning.of(written, release).option or written.option
        flag = release.option(option) or _earlier(option, release)
        values = len(written.tokens) - 1 + ("=" in written.tokens[0])
        if flag is None or not flag.takes_value:
            return values == 0
        return values == 1 if flag.nargs is None else values > 0


def written(command: LaunchCommand, release: Release) -> tuple[Written, ...]:
    """Return the flags of a command without what is not known behind their values.

    What ``"$@"`` or ``$EXTRA`` stands for is no value of a flag that has none, or has its one.
    """
    return tuple(_own(each, release) for each in commands.read(command, release).written)


def _own(written: Written, release: Release) -> Written:
    flag = release.option(written.option) or _earlier(written.option, release)
    if flag is None or (flag.takes_value and flag.nargs is not None):
        return written
    own = 2 if flag.takes_value and "=" not in written.tokens[0] else 1
    if any(token.known for token in written.tokens[own:]):
        return written
    return msgspec.structs.replace(written, tokens=written.tokens[:own])


def of(finding: Finding, written: tuple[Written, ...], release: Release) -> Iterator[Wish]:
    """Iterate over what a finding asks of the flags ``written``."""
    for one in finding.recommendation:
        note = f"({one.note})" if one.note else ""
        if one.remove is not None:
            yield Wish(finding.code, "remove", one.remove, safe=one.safe, why=note)
        elif one.set is not None:
            value = "" if one.value is None else str(one.value)
            yield Wish(finding.code, "set", one.set, value, safe=one.safe, why=note)
    states = _SPELLED.get(finding.code, ())
    shortened = _shortened(finding)
    for each in written:
        read = meaning.of(each, release)
        if read.state in states and (read.state != "prefix" or each.option in shortened):
            yield _spelled(finding.code, each, read, release)


def _shortened(finding: Finding) -> set[str]:
    """Return the abbreviations that the finding is about: those that most people write are none."""
    found = [each.value for each in finding.evidence if each.fact == "launch.abbreviated"]
    return {record["written"] for records in found for record in records}


def _spelled(code: str, written: Written, read: meaning.Meaning, release: Release) -> Wish:
    option = written.option
    if read.state == "ignored":
        return Wish(code, "remove", option, exact=True, safe=True)
    if read.state == "stops":
        return Wish(code, "leave", option, exact=True, why=(read.said or "").strip())
    if read.state == "prefix":
        earlier = _earlier(option, release)
        if earlier is not None:
            why = f"earlier releases had it as a flag of its own; this one reads {read.option}"
            return Wish(code, "leave", option, exact=True, why=why)
        return Wish(code, "rename", option, read.option or "", exact=True, safe=True)
    if read.state == "deprecated":
        found = successor.named(read.successor, release) if read.successor else []
        if len(found) == 1 and _same(release, written, found[0]):
            return Wish(code, "rename", option, found[0], exact=True, safe=True)
        instead = f"no other flag means just the same: {(read.said or 'still works').strip()}"
        return Wish(code, "leave", option, exact=True, why=instead)
    return _gone(code, written, release)


def _gone(code: str, written: Written, release: Release) -> Wish:
    """Return what to do about a flag that the release refuses: gone, not there yet, or never there."""
    option = written.option
    leave = functools.partial(Wish, code, "leave", option, exact=True)
    known = [version for version in catalogue.releases() if _flag(version, option) is not None]
    before = _before(release)
    past = [version for version in known if version in before]
    if not past:
        return leave(why=f"came with SGLang {known[0]}" if known else "no release that is known has it")
    last = catalogue.resolve(past[-1])
    assert last is not None  # noqa: S101 (a release of the catalogue)
    flag = last.option(option)
    steps = catalogue.releases()
    end = release.version
    way = Way(last, release, tuple(steps[steps.index(past[-1]) : steps.index(end) + 1]))
    found = successor.of(written, way)
    if len(found) == 1 and _same(last, written, found[0]) and successor.accepts(release, found[0]):
        return Wish(code, "rename", option, found[0], exact=True, safe=True)
    if found:
        return leave(why=f"{' or '.join(found)} came for it, and does not mean just the same")
    if code == "ARG102" or (flag is not None and (flag.error or flag.note) and flag.action != "deprecated"):
        said = successor.words(flag) or "it could be several flags"
        return leave(why=f"the last that was said of it: {said}" if code != "ARG102" else said)
    why = f"SGLang {past[-1]} was the last to have it; this one does not start with it"
    return Wish(code, "remove", option, exact=True, safe=True, why=why)


def _before(release: Release) -> list[str]:
    steps = list(catalogue.releases())
    return steps[: steps.index(release.version)]


def _flag(version: str, option: str) -> Flag | None:
    release = catalogue.resolve(version)
    return release.option(option) if release is not None else None


def _earlier(option: str, release: Release) -> Flag | None:
    found = (_flag(version, option) for version in reversed(_before(release)))
    return next((flag for flag in found if flag is not None), None)


def _same(release: Release, written: Written, other: str) -> bool:
    """Whether the release reads ``other`` in the place of the flag as the same settings."""
    first, *values = map(str, written.tokens)
    new = other + first[len(written.option) :]
    settings = [_settings(release, words) for words in ([first, *values], [new, *values])]
    return settings[0] is not None and settings[0] == settings[1]


def _settings(release: Release, words: list[str]) -> dict[str, object] | None:
    parsed = _parser(release).parse(words)
    if parsed.unrecognized or parsed.ambiguous or parsed.spoilt or parsed.abbreviated:
        return None
    return {dest: given.value for dest, given in parsed.given.items()}


@functools.cache
def _parser(release: Release) -> Parser:
    return parser_for(release.flags)
