"""Which findings are suppressed: what the operator's settings say about them, and what to say about those."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec

from sgdoctor.config import Config, Suppression
from sgdoctor.engine.model import Finding, Outcome, Result
from sgdoctor.engine.rules import CompiledRule


class Subject(msgspec.Struct, frozen=True):
    """What a suppression's scope is held against: a deployment, and the files that were named for it."""

    deployment: str
    model: str | None = None
    port: int | None = None
    files: tuple[str, ...] = ()


class Muted(NamedTuple):
    """A finding that is suppressed, and by what."""

    finding: Finding
    suppression: Suppression


class Suppressor:
    """Takes the suppressed out of the results of one deployment after the other, and notes what it did.

    ``today`` decides which suppressions have ended. A suppression that no deployment needed is told of only
    when its rule was decided for one in its scope: in a check of other files it is no mistake.
    """

    def __init__(self, config: Config, rules: Iterable[CompiledRule], today: dt.date) -> None:
        codes = {rule.rule.name: rule.code for rule in rules}
        self.file = config.file
        self.folder = config.folder.resolve()
        self.suppressions = config.settings.suppress
        self._codes = [codes.get(one.code, one.code) for one in self.suppressions]
        self.today = today
        self._matched = [False] * len(self.suppressions)
        self._not_needed = [False] * len(self.suppressions)

    def split(self, results: Iterable[Result], subject: Subject) -> tuple[list[Result], list[Muted]]:
        """Return the results that stay, and the findings that are suppressed."""
        kept: list[Result] = []
        muted: list[Muted] = []
        for result in results:
            holding = [
                one
                for at, one in enumerate(self.suppressions)
                if self._codes[at] == result.code
                and self._covers(one, subject)
                and _names(one, result)
                and self._noted(at, result)
                and not self._ended(one)
            ]
            if holding and result.finding is not None:
                muted.append(Muted(result.finding, holding[0]))
            else:
                kept.append(result)
        return kept, muted

    def notes(self) -> list[str]:
        """Return what the operator should know of the suppressions: which ended, which are not needed."""
        told = []
        for at, one in enumerate(self.suppressions):
            start = f"{self.file}: the suppression of {one.code} ({one.reason})"
            if self._matched[at] and self._ended(one):
                told.append(f"{start} ended on {one.until}: it counts again")
            elif self._not_needed[at] and not self._matched[at]:
                told.append(f"{start} matches nothing here: take it out if it is not needed elsewhere")
        return told

    def _noted(self, at: int, result: Result) -> bool:
        """Whether the rule found something; and remember whether the suppression is of any use."""
        failed = result.outcome == Outcome.FAIL
        self._matched[at] |= failed
        self._not_needed[at] |= result.outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE)
        return failed

    def _ended(self, suppression: Suppression) -> bool:
        return suppression.until is not None and suppression.until < self.today

    def _covers(self, suppression: Suppression, subject: Subject) -> bool:
        return (
            _like(suppression.deployment, [subject.deployment])
            and _like(suppression.model, [subject.model] if subject.model else [])
            and suppression.port in (None, subject.port)
            and _like(suppression.file, self._written(subject.files))
        )

    def _written(self, files: Sequence[str]) -> list[str]:
        """Return the ways to write files: by the bare name, and from the folder of the settings."""
        ways = []
        for file in files:
            path = Path(file).resolve()
            inside = path.is_relative_to(self.folder)
            ways += [Path(file).name, str(path.relative_to(self.folder) if inside else path)]
        return ways


def _names(suppression: Suppression, result: Result) -> bool:
    """Whether all flags, packages or files that a finding names are those of the suppression."""
    if result.finding is None or not suppression.about:
        return True
    patterns = suppression.about
    return bool(result.about) and all(_like_any(text, patterns) for text in result.about)


def _like_any(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _like(pattern: str | None, texts: Iterable[str]) -> bool:
    return pattern is None or any(fnmatchcase(text, pattern) for text in texts)
