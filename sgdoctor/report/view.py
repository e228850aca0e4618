"""What every format shows of a deployment, in words; each format lays it out in its own way."""

from __future__ import annotations

from typing import NamedTuple

from sgdoctor.engine.model import Evidence, Finding
from sgdoctor.facts import Excerpt
from sgdoctor.report.header import joined
from sgdoctor.report.model import Change, DeploymentReport, Drift, Report, Summary, Suppressed, UndecidedRule
from sgdoctor.report.words import action, literal, phrase

SUSPECTED = "(only suspected)"
LOG_LINE = "log.match"


class Step(NamedTuple):
    """One thing to do: a command to be copied or words, and what to know about it."""

    text: str
    is_command: bool = False
    note: str = ""

    def in_a_line(self) -> str:
        """Return the step with its note."""
        return f"{self.text} ({self.note})" if self.note else self.text


class Read(NamedTuple):
    """What was read at a place: in a few words (a log line: as it stands there), and by a fact's name.

    ``times`` says how often where that is more than once; ``said`` ends in it.
    """

    place: str
    said: str
    exact: str
    is_line: bool
    times: str = ""


def findings(deployment: DeploymentReport, *, verbose: bool) -> list[Finding]:
    """Return the findings to show: what is only suspected with ``verbose`` alone."""
    return [each for each in deployment.findings if verbose or each.confidence != "low"]


def changes(deployment: DeploymentReport, *, verbose: bool) -> list[Change]:
    """Return the changes on the way to another release to show: minor ones with ``verbose`` alone."""
    return [each for each in deployment.changes if verbose or not each.minor]


def message(finding: Finding) -> str:
    """Return what a finding says, and whether that is only suspected."""
    return f"{finding.message} {SUSPECTED}" if finding.confidence == "low" else finding.message


def steps(finding: Finding, deployment: DeploymentReport) -> list[Step]:
    """Return what to do about a finding; one that follows from another is mended there."""
    cause = deployment.consequences.get(finding.code)
    if cause:
        return [Step(f"what {cause} says: this follows from it")]
    return [Step(*action(each), each.note or "") for each in finding.recommendation]


def reads(finding: Finding) -> list[Read]:
    """Return the evidence of a finding, a fact each."""
    return [_read(each) for each in finding.evidence]


def _read(evidence: Evidence) -> Read:
    is_line = evidence.fact == LOG_LINE
    said = str(evidence.value) if is_line else phrase(evidence.fact, evidence.value)
    times = f" ({evidence.count} times)" if evidence.count > 1 else ""
    place = evidence.place
    if evidence.source == "derived":
        place = f"worked out from {place}" if place else "worked out"
    return Read(place, said + times, f"{evidence.fact} = {literal(evidence.value)}", is_line, times)


def excerpts(finding: Finding, deployment: DeploymentReport) -> list[Excerpt]:
    """Return the lines of logs around the evidence of a finding, a place each."""
    places = {each.place for each in finding.evidence}
    return [each for each in deployment.excerpts if each.place in places]


def remarks(deployment: DeploymentReport) -> list[str]:
    """Return what was not understood of the sources, and the notes of their readers."""
    said = [
        each.said if each.said.startswith(each.place) else f"{each.place}: {each.said}"
        for each in deployment.looked_at
        if each.state != "understood" and each.said and each.said not in "\n".join(deployment.notes)
    ]
    return said + list(dict.fromkeys(deployment.notes))


def moved(deployment: DeploymentReport) -> str:
    """Return between which releases the changes of a deployment lie."""
    return f"From SGLang {deployment.moved_from} to {deployment.summary.sglang or 'the other'}"


def lacks(rule: UndecidedRule) -> str:
    """Return why a rule was not decided, and which option would decide it."""
    options = f" ({joined(rule.options, 'or')})" if rule.options else ""
    missing = f"{', '.join(rule.missing)} unknown: " if rule.missing else ""
    return f"could not be decided: {rule.title}: {missing}{rule.reason}{options}"


def found(summary: Summary) -> str:
    """Return the number of findings of each severity, in words."""
    told = [_number(summary.errors, "error"), _number(summary.warnings, "warning"), f"{summary.infos} info"]
    if summary.low_confidence:
        told.append(f"{summary.low_confidence} only suspected")
    if summary.suppressed:
        told.append(f"{summary.suppressed} suppressed")
    if summary.in_baseline:
        told.append(f"{summary.in_baseline} in the baseline")
    if summary.broken:
        told.append(f"{_number(summary.broken, 'rule')} broken")
    return ", ".join(told)


def rest(summary: Summary) -> str:
    """Return what became of the other rules, in words."""
    told = [f"{_number(summary.passed, 'rule')} passed"]
    if summary.unknown:
        told.append(f"{summary.unknown} could not be decided")
    if summary.not_applicable:
        told.append(f"{summary.not_applicable} do{'es' if summary.not_applicable == 1 else ''} not apply")
    return ", ".join(told)


def nothing_found(deployment: DeploymentReport) -> str:
    """Return what may be said of a deployment without findings: no all-clear where something is open."""
    if not deployment.decided:
        return "Nothing could be decided."
    nothing = "Nothing more" if deployment.suppressed or deployment.in_baseline else "Nothing"
    if deployment.broken:
        return f"{nothing} found, but not every rule worked."
    if not deployment.understood:
        return f"{nothing} found in what could be read."
    number = len(deployment.unknown)
    left_open = f" {_number(number, 'rule')} could not be decided." if number else ""
    return f"{nothing} found.{left_open}"


def accepted(suppressed: Suppressed) -> str:
    """Return why a finding is suppressed, and how long."""
    return suppressed.reason + (f" (until {suppressed.until})" if suppressed.until else "")


def differences(drift: Drift) -> list[tuple[str, str]]:
    """Return the values of something in which servers differ, each with the names of those that hold it."""
    return [(value, ", ".join(names)) for value, names in drift.values.items()]


def differ(drift: Drift) -> str:
    """Return in a line what servers differ in."""
    values = "; ".join(f"{value}: {names}" for value, names in differences(drift))
    return f"the servers{f' of {drift.model}' if drift.model else ''} differ in {drift.fact}: {values}"


def alone(report: Report) -> bool:
    """Whether the report is about one deployment, which then needs no name."""
    return len(report.deployments) == 1


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
