"""The report as SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/), as code scanning reads it."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sgdoctor.engine.evaluate import fingerprint
from sgdoctor.engine.model import Finding, Severity
from sgdoctor.report import places, view
from sgdoctor.report.header import header
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Change, DeploymentReport, Report
from sgdoctor.report.places import Place

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "sgdoctorFinding/v2"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}

# What code scanning calls the severity of results that are no security alerts.
PROBLEM: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "recommendation"}

_RESERVED = ":/?#[]@!$&'()*+,;=%"


def render(report: Report, *, verbose: bool = False) -> str:
    """Return ``report`` as SARIF in ASCII: one run, a result a finding, each with a place in a file.

    What was not understood, could not be decided or broke is a notification, so that it is no alert. With
    ``verbose`` it has what is suppressed too, marked as such.
    """
    run = _Run(alone=view.alone(report), verbose=verbose)
    for deployment in report.deployments:
        run.add(deployment)
    for said in [*report.notes, *(view.differ(each) for each in report.drift)]:
        run.notifications.append({"level": "note", "message": _message(said)})
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run.built(report)]}, indent=1) + "\n"


class _Run:
    """The one run of a report: the rules that its results name stand in it once."""

    def __init__(self, *, alone: bool, verbose: bool) -> None:
        self.alone = alone
        self.verbose = verbose
        self.rules: dict[str, dict[str, Any]] = {}
        self.results: list[dict[str, Any]] = []
        self.notifications: list[dict[str, Any]] = []

    def built(self, report: Report) -> dict[str, Any]:
        return {
            "tool": {
                "driver": {"name": "sgdoctor", "version": report.sgdoctor, "rules": list(self.rules.values())}
            },
            "invocations": [
                {
                    "executionSuccessful": not report.summary.broken,
                    "toolExecutionNotifications": self.notifications,
                }
            ],
            "results": self.results,
        }

    def add(self, deployment: DeploymentReport) -> None:
        for finding in view.findings(deployment, verbose=self.verbose):
            self.finding(finding, deployment)
        for muted in deployment.suppressed if self.verbose else []:
            self.finding(muted.finding, deployment)
            reason = {"kind": "external", "justification": printable(view.accepted(muted))}
            self.results[-1]["suppressions"] = [reason]
        for change in view.changes(deployment, verbose=self.verbose):
            self.change(change, deployment)
        for remark in view.remarks(deployment):
            self.notify("note" if deployment.understood else "warning", remark, deployment)
        for rule in deployment.unknown:
            self.notify("note", view.lacks(rule), deployment, rule.code)
        for broken in deployment.broken:
            self.notify(
                "error", f"the rule itself broke, which is a bug: {broken.reason}", deployment, broken.code
            )

    def notify(self, level: str, said: str, deployment: DeploymentReport, code: str = "") -> None:
        rule = {"associatedRule": {"id": code}} if code else {}
        self.notifications.append({"level": level, "message": _message(self.about(said, deployment)), **rule})

    def about(self, said: str, deployment: DeploymentReport) -> str:
        return said if self.alone else f"{' · '.join(header(deployment, alone=False))}: {said}"

    def finding(self, finding: Finding, deployment: DeploymentReport) -> None:
        place, *others = [places.of(finding, deployment), *places.files(finding)[1:]]
        do = [f"Do: {step.in_a_line()}" for step in view.steps(finding, deployment)]
        said = "\n".join([view.message(finding), *do])
        properties = {
            "deployment": printable(deployment.name),
            "impact": finding.impact,
            "confidence": finding.confidence,
        }
        result = {
            "ruleId": finding.code,
            "ruleIndex": self.rule(finding.code, _rule(finding)),
            "level": LEVELS[finding.severity],
            "message": _message(self.about(said, deployment)),
            "locations": [_location(place)],
            "partialFingerprints": {FINGERPRINT: finding.fingerprint},
            "properties": properties,
        }
        if others:
            result["relatedLocations"] = [_location(each) for each in others]
        self.results.append(result)

    def change(self, change: Change, deployment: DeploymentReport) -> None:
        code = f"target/{change.kind}"
        said = f"{view.moved(deployment)}: {change.message}" + (f"\nDo: {change.do}" if change.do else "")
        self.results.append(
            {
                "ruleId": code,
                "ruleIndex": self.rule(code, _change_rule(code, change)),
                "level": LEVELS[change.severity],
                "message": _message(self.about(said, deployment)),
                "locations": [_location(places.of_deployment(deployment))],
                "partialFingerprints": {
                    FINGERPRINT: fingerprint(code, printable(deployment.name), [printable(change.subject)])
                },
                "properties": {
                    "deployment": printable(deployment.name),
                    "subject": printable(change.subject),
                },
            }
        )

    def rule(self, code: str, made: dict[str, Any]) -> int:
        """Return the index of a rule in the run."""
        self.rules.setdefault(code, made)
        return list(self.rules).index(code)


def _rule(finding: Finding) -> dict[str, Any]:
    why = printable(" ".join(finding.why.split()))
    sources = "\n".join(f"- {printable(each)}" for each in finding.sources)
    links = [each for each in finding.sources if each.startswith("https://")]
    rule: dict[str, Any] = {
        "id": finding.code,
        "name": finding.name,
        "shortDescription": {"text": printable(finding.title)},
        "fullDescription": {"text": why},
        "help": {"text": f"{why}\n\nsgdoctor explain {finding.code}\n\nSources:\n{sources}\n"},
        "defaultConfiguration": {"level": LEVELS[finding.severity]},
        "properties": {
            "tags": [finding.impact],
            "precision": finding.confidence,
            "problem.severity": PROBLEM[finding.severity],
        },
    }
    if links:
        rule["helpUri"] = _uri(links[0], is_file=False)
    return rule


def _change_rule(code: str, change: Change) -> dict[str, Any]:
    what = f"What another release changes: {change.kind.replace('-', ' ')}"
    return {
        "id": code,
        "shortDescription": {"text": what},
        "fullDescription": {"text": what},
        "help": {
            "text": "sgdoctor check --target lists what changes on the way to another release of SGLang.\n"
        },
    }


def _message(text: str) -> dict[str, str]:
    """Return a message whose text has no placeholder and no link (SARIF 3.11.5 and 3.11.6)."""
    return {"text": printable(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")}


def _location(place: Place) -> dict[str, Any]:
    """Return a place; the first line where none is known, for code scanning refuses results without one."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(place.path, is_file=place.is_file)},
            "region": {"startLine": place.line or 1},
        }
    }


def _uri(path: str, *, is_file: bool) -> str:
    """Return the URI of a file, relative where its path is; one that leads upwards is made absolute.

    SARIF allows no ".." in it (3.10.2). What is no file keeps its name.
    """
    if not is_file:
        return quote(path, safe=_RESERVED if "://" in path else "/", errors="replace")
    path = path.replace("\0", "")  # no path has one
    path = str(Path(path).resolve()) if ".." in path.split("/") else posixpath.normpath(path)
    name = quote(path, safe="/", errors="surrogateescape")
    return f"file://{name}" if path.startswith("/") else name
