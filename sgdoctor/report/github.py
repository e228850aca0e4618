"""The report as annotations of a GitHub workflow: lines that its runner reads from the output of a step."""

from __future__ import annotations

from collections.abc import Iterator

from sgdoctor.engine.model import Finding, Severity
from sgdoctor.report import places, view
from sgdoctor.report.header import header
from sgdoctor.report.layout import printable
from sgdoctor.report.model import DeploymentReport, Report

LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: Report, *, verbose: bool = False) -> str:
    """Return ``report`` as workflow commands, one a finding, and a line that counts.

    Only the commands hold text from sources: in any other line it could be taken for a command.
    """
    alone = view.alone(report)
    lines = [line for each in report.deployments for line in _deployment(each, alone, verbose=verbose)]
    lines += [command("notice", "sgdoctor: settings", each) for each in report.notes]
    if report.drift:
        differ = "\n".join(view.differ(each) for each in report.drift)
        lines.append(command("notice", "sgdoctor: what the servers differ in", differ))
    lines.append(f"{view.found(report.summary)}. {view.rest(report.summary)}.")
    return "".join(f"{line}\n" for line in lines)


def _deployment(deployment: DeploymentReport, alone: bool, *, verbose: bool) -> Iterator[str]:  # noqa: FBT001
    about = "" if alone else f" ({' · '.join(header(deployment, alone=False))})"
    for finding in view.findings(deployment, verbose=verbose):
        title = f"{finding.code}: {finding.title}{about}"
        place = places.of(finding, deployment)
        yield command(LEVELS[finding.severity], title, _said(finding, deployment), place)
    for change in view.changes(deployment, verbose=verbose):
        said = f"{view.moved(deployment)}: {change.message}" + (f"\nDo: {change.do}" if change.do else "")
        title = f"{change.kind}: {change.subject}{about}"
        yield command(LEVELS[change.severity], title, said, places.of_deployment(deployment))
    for broken in deployment.broken:
        yield command("error", f"{broken.code}: the rule itself broke{about}", broken.reason)
    for looked in deployment.looked_at:
        if looked.named and looked.state != "understood":
            unread = "nothing" if looked.state == "nothing" else "not all"
            title = f"sgdoctor: {unread} of a source was understood{about}"
            yield command("warning", title, f"{looked.place}: {looked.said or 'unreadable'}")


def _said(finding: Finding, deployment: DeploymentReport) -> str:
    do = [f"Do: {step.in_a_line()}" for step in view.steps(finding, deployment)]
    return "\n".join([view.message(finding), *do])


def command(level: str, title: str, message: str, place: places.Place | None = None) -> str:
    """Return a workflow command: ``::error file=launch.sh,line=3,title=...::message``."""
    given = {}
    if place is not None and place.is_file:
        given["file"] = place.path
        if place.line is not None:
            given["line"] = str(place.line)
    given["title"] = title
    options = ",".join(f"{name}={_property(value)}" for name, value in given.items())
    return f"::{level} {options}::{_data(message)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
