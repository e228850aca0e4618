"""Which known problems a deployment gets into or leaves behind: what the rules say on both sides."""

from __future__ import annotations

from sgdoctor.engine.model import Finding, Outcome
from sgdoctor.report.model import Change
from sgdoctor.target.flags import when
from sgdoctor.target.path import Path
from sgdoctor.target.walk import Walk

# What these say of the command line as a whole is told flag by flag.
TOLD = frozenset({"ARG101", "ARG102", "ARG108", "ARG109", "ARG110"})
# What these say of the experts' config files is told file by file.
TOLD_OF_FILES = frozenset({"CFG101", "CFG102", "CFG103"})
_GOOD = (Outcome.PASS, Outcome.NOT_APPLICABLE)


def changes(walk: Walk, told: frozenset[str] = TOLD) -> list[Change]:
    """Return the rules that fail on one side only, without those ``told`` otherwise."""
    found = (_one(walk, rule.code) for rule in walk.rules if rule.code not in told)
    return [change for change in found if change is not None]


def _one(walk: Walk, code: str) -> Change | None:
    before, after = walk.start.outcome(code), walk.end.outcome(code)
    if after == Outcome.FAIL and before != Outcome.FAIL:
        return _entered(walk, code)
    if before == Outcome.FAIL and after in _GOOD:
        return _left(walk, code)
    return None


def _entered(walk: Walk, code: str) -> Change | None:
    finding = _finding(walk.end.results[code].finding)
    since = walk.since(lambda stage: stage.outcome(code) == Outcome.FAIL)
    known = walk.start.outcome(code) in _GOOD
    if since is None and not known:
        return None  # nothing tells that it is not there already
    doubt = "" if known else ", and could not be decided before"
    text = f"{code} applies{_when(walk.path, since)}{doubt}: {finding.title}."
    suspected = finding.confidence == "low"
    return Change(
        kind="rule-entered",
        subject=code,
        before=_word(walk.start.outcome(code)),
        after="fail",
        release=since,
        severity=finding.severity,
        message=text,
        minor=suspected,
    )


def _left(walk: Walk, code: str) -> Change:
    finding = _finding(walk.start.results[code].finding)
    after = walk.end.outcome(code)
    since = walk.since(lambda stage: stage.outcome(code) == Outcome.FAIL)
    text = f"{code} no longer applies{_when(walk.path, since)}: {finding.title}."
    return Change(
        kind="rule-left",
        subject=code,
        before="fail",
        after=_word(after),
        release=since,
        severity="info",
        message=text,
        minor=finding.confidence == "low",
    )


def _when(path: Path, since: str | None) -> str:
    return when(path, since) or " with the packages that the release requires"


def _word(outcome: Outcome | None) -> str | None:
    return None if outcome is None else outcome.value


def _finding(finding: Finding | None) -> Finding:
    assert finding is not None  # noqa: S101 (a rule that failed has one)
    return finding
