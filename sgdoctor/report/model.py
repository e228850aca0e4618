"""The report: what was found in each deployment, what could not be decided, and what was looked at.

The structs here are the JSON format: docs/report.schema.json is generated from them, and the other formats
are views of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

import sgdoctor
from sgdoctor.engine.model import SEVERITIES, Finding, Severity
from sgdoctor.engine.recommend import arrange
from sgdoctor.facts import Excerpt, Series

SCHEMA: Literal["sgdoctor-report-1"] = "sgdoctor-report-1"

FailOn = Literal["error", "warning", "info", "never"]
State = Literal["understood", "partly", "nothing"]
ChangeKind = Literal[
    "flag-gone",
    "flag-renamed",
    "flag-ambiguous",
    "flag-prefix",
    "flag-value",
    "flag-ignored",
    "flag-deprecated",
    "flag-accepted",
    "flag-default",
    "launch-refused",
    "setting",
    "pin",
    "cuda",
    "python",
    "config-lost",
    "config-gained",
    "config-other",
    "config-name",
    "config-folder",
    "config-unread",
    "moe-runner",
    "rule-entered",
    "rule-left",
]

# Exit codes; docs/exit-codes.md.
CLEAN, FOUND, USAGE, UNDECIDED, INTERNAL = range(5)


class Gpus(msgspec.Struct, frozen=True):
    """GPUs of one kind: their number, their full name and their compute capability (null: off NVIDIA)."""

    count: int
    name: str
    compute_capability: str | None = None


class DeploymentSummary(msgspec.Struct, frozen=True):
    """What a deployment is, in a line; what is not known is null or empty.

    ``parallel`` holds the sizes that were given or are above 1, by SGLang's abbreviations: tp, pp, dp, ep.
    """

    model: str | None = None
    sglang: str | None = None
    gpus: list[Gpus] = []
    parallel: dict[str, int] = {}
    python: str | None = None
    url: str | None = None
    status: str | None = None


class Looked(msgspec.Struct, frozen=True):
    """A source that was looked at, and how far it was understood.

    ``said`` is what there was in it, or why there was nothing ("412 records of 0.5.12", "401 Unauthorized").
    ``named``: the operator named it, so that its failure matters to the exit code.
    """

    source: str
    place: str
    state: State = "understood"
    said: str = ""
    named: bool = True


class UndecidedRule(msgspec.Struct, frozen=True):
    """A rule that could not be decided.

    ``missing`` names the facts to get, ``options`` the command's options of which any one can give all of
    them (empty: no single option does, or every one that does was given already).
    """

    code: str
    title: str
    missing: list[str]
    reason: str
    options: list[str] = []


class Broken(msgspec.Struct, frozen=True):
    """A rule that raised: a bug of sgdoctor or of the rule, not of the deployment."""

    code: str
    reason: str


class Reading(msgspec.Struct, frozen=True):
    """A value and where it was read."""

    value: Any
    source: str
    place: str


class Disagreement(msgspec.Struct, frozen=True):
    """A fact on which two sources disagree: the value in use and the other."""

    fact: str
    kept: Reading
    other: Reading


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes different for a deployment when it moves to another release (--target).

    ``subject`` is the flag, package, file or rule; ``before`` and ``after`` what it is with the release in
    use and with the other (null: there is none); ``release`` the one that brought the difference, whichever
    direction the deployment moves in (null: not tied to one). Severity *error*: the server will not start or
    will die. ``do`` is what to do about it. ``minor``: for completeness; the terminal shows it with -v.
    """

    kind: ChangeKind
    subject: str
    before: str | None
    after: str | None
    release: str | None
    severity: Severity
    message: str
    do: str | None = None
    minor: bool = False


class Suppressed(msgspec.Struct, frozen=True):
    """A finding that the settings suppress: why, and until which day (null: for good)."""

    finding: Finding
    reason: str
    until: str | None = None


class DeploymentReport(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment: its findings, worst first, and everything that qualifies them.

    ``suppressed`` are the findings that the settings suppress, ``in_baseline`` the codes of those that the
    baseline knows; neither are among ``findings``.

    ``consequences`` maps the code of a finding to the code of the finding that explains it. ``moved_from`` is
    the release in use when the report is about another one (--target), ``changes`` what differs between them,
    worst first. ``excerpts`` are the lines of logs at which evidence of the findings was read, with those
    around them; ``series`` is what was measured while the server was watched (--watch).
    """

    name: str
    summary: DeploymentSummary
    findings: list[Finding] = []
    suppressed: list[Suppressed] = []
    in_baseline: list[str] = []
    consequences: dict[str, str] = {}
    unknown: list[UndecidedRule] = []
    broken: list[Broken] = []
    passed: list[str] = []
    not_applicable: list[str] = []
    looked_at: list[Looked] = []
    notes: list[str] = []
    conflicts: list[Disagreement] = []
    excerpts: list[Excerpt] = []
    series: list[Series] = []
    moved_from: str | None = None
    changes: list[Change] = []

    @property
    def worst(self) -> Severity | None:
        """The worst severity found, changes included, without what is only suspected (confidence low)."""
        found = {finding.severity for finding in self.findings if finding.confidence != "low"}
        found |= {change.severity for change in self.changes if not change.minor}
        return next((severity for severity in SEVERITIES if severity in found), None)

    @property
    def decided(self) -> bool:
        """Whether there was something to judge: a source was understood and some rule came to a result."""
        if not any(looked.state != "nothing" for looked in self.looked_at):
            return False
        decided = self.findings or self.suppressed or self.in_baseline or self.passed
        return bool(decided or not self.unknown)

    @property
    def understood(self) -> bool:
        """Whether every source was understood in full."""
        return all(looked.state == "understood" for looked in self.looked_at)


class Summary(msgspec.Struct, frozen=True):
    """The results of all rules on all deployments, counted.

    Findings of low confidence are counted in ``low_confidence`` alone, those that are suppressed or in the
    baseline in ``suppressed`` and ``in_baseline`` alone.
    """

    errors: int = 0
    warnings: int = 0
    infos: int = 0
    low_confidence: int = 0
    suppressed: int = 0
    in_baseline: int = 0
    passed: int = 0
    unknown: int = 0
    not_applicable: int = 0
    broken: int = 0


class Drift(msgspec.Struct, frozen=True):
    """Something in which servers of one model and role differ, that were asked together.

    ``model`` is theirs (null: none said it); ``values`` maps each value, the most frequent one first, to the
    names of the deployments that hold it.
    """

    fact: str
    model: str | None
    values: dict[str, list[str]]


class Report(msgspec.Struct, frozen=True):
    """What ``sgdoctor check`` came to: deployments, worst first.

    ``drift`` is what several servers that were asked together differ in.
    ``settings`` is the file of settings that was followed (null: none), ``notes`` what is to be said of it.
    """

    schema: Literal["sgdoctor-report-1"]
    sgdoctor: str
    summary: Summary
    deployments: list[DeploymentReport]
    settings: str | None = None
    notes: list[str] = []
    drift: list[Drift] = []

    @classmethod
    def of(
        cls,
        deployments: Iterable[DeploymentReport],
        settings: str | None = None,
        notes: Iterable[str] = (),
    ) -> Report:
        """Make the report of ``deployments``: worst first, their findings worst first, counted."""
        ordered = sorted((_sorted(each) for each in deployments), key=_badness)
        return cls(SCHEMA, sgdoctor.__version__, _count(ordered), ordered, settings, list(notes))

    @property
    def worst(self) -> Severity | None:
        """The worst severity in any deployment, leaving out findings of low confidence."""
        return self.deployments[0].worst if self.deployments else None


def without_entered(changes: Iterable[Change], codes: Collection[str]) -> list[Change]:
    """Return the changes without those that say only that one of these rules' findings is new."""
    return [each for each in changes if each.kind != "rule-entered" or each.subject not in codes]


def fails(severity: Severity, fail_on: FailOn) -> bool:
    """Whether something of this severity is at or above ``fail_on``."""
    return fail_on != "never" and SEVERITIES.index(severity) <= SEVERITIES.index(fail_on)


def exit_code(report: Report, fail_on: FailOn = "error", *, strict: bool = False) -> int:
    """Return the exit code of ``report``, the same for every format (docs/exit-codes.md).

    Findings at or above ``fail_on`` win over a rule that broke, which wins over what could not be decided.
    """
    if report.worst and fails(report.worst, fail_on):
        return FOUND
    if report.summary.broken:
        return INTERNAL
    if not report.deployments or any(_undecided(each, strict=strict) for each in report.deployments):
        return UNDECIDED
    return CLEAN


def _undecided(deployment: DeploymentReport, *, strict: bool) -> bool:
    failed = ("nothing", "partly") if strict else ("nothing",)
    lost = any(looked.named and looked.state in failed for looked in deployment.looked_at)
    return lost or not deployment.decided


def _sorted(deployment: DeploymentReport) -> DeploymentReport:
    return msgspec.structs.replace(
        deployment,
        findings=arrange(deployment.findings, deployment.consequences),
        unknown=sorted(deployment.unknown, key=lambda each: each.code),
        passed=sorted(deployment.passed),
        not_applicable=sorted(deployment.not_applicable),
    )


def _badness(deployment: DeploymentReport) -> tuple[int, ...]:
    """Order deployments: by the worst that was found, by how much of it, the undecided before the healthy."""
    counts = [
        -sum(each.severity == severity and each.confidence != "low" for each in deployment.findings)
        for severity in SEVERITIES
    ]
    worst = deployment.worst
    return (
        SEVERITIES.index(worst) if worst else len(SEVERITIES),
        *counts,
        int(deployment.decided and deployment.understood),
    )


def _count(deployments: list[DeploymentReport]) -> Summary:
    findings = [finding for each in deployments for finding in each.findings]
    sure = [finding.severity for finding in findings if finding.confidence != "low"]
    return Summary(
        errors=sure.count("error"),
        warnings=sure.count("warning"),
        infos=sure.count("info"),
        low_confidence=len(findings) - len(sure),
        suppressed=sum(len(each.suppressed) for each in deployments),
        in_baseline=sum(len(each.in_baseline) for each in deployments),
        passed=sum(len(each.passed) for each in deployments),
        unknown=sum(len(each.unknown) for each in deployments),
        not_applicable=sum(len(each.not_applicable) for each in deployments),
        broken=sum(len(each.broken) for each in deployments),
    )
