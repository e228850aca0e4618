"""The report as JUnit XML: a suite a deployment, a case a rule."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET  # only written here, nothing foreign is parsed

from sgdoctor.engine.model import Finding, Severity
from sgdoctor.report import places, view
from sgdoctor.report.header import header
from sgdoctor.report.layout import printable
from sgdoctor.report.model import DeploymentReport, FailOn, Report, fails

FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"


def render(report: Report, *, verbose: bool = False, fail_on: FailOn = "error") -> str:
    """Return ``report`` as JUnit XML, in ASCII.

    What is found at or above ``fail_on`` fails, as it does the command; what is below it passes, with its
    text. What could not be decided, is suppressed or in the baseline is skipped; a rule that broke and a
    source that gave nothing are errors. What does not apply is left out.
    """
    suites = ET.Element("testsuites", name="sgdoctor")
    for deployment in report.deployments:
        suites.append(_suite(deployment, fail_on, verbose=verbose))
    said = [*report.notes, *(view.differ(each) for each in report.drift)]
    if said:
        about = ET.SubElement(suites, "testsuite", name="sgdoctor", tests="0", failures="0", errors="0")
        ET.SubElement(about, "system-out").text = printable("\n".join(said))
    _count(suites, tests="testcase", failures=FAILURE, errors=ERROR)
    ET.indent(suites, " ")
    written: bytes = ET.tostring(suites, encoding="us-ascii", xml_declaration=True)
    return written.decode("ascii") + "\n"


def _suite(deployment: DeploymentReport, fail_on: FailOn, *, verbose: bool) -> ET.Element:
    suite = ET.Element("testsuite", name=printable(deployment.name))
    told = ET.SubElement(suite, "properties")
    about = {"deployment": " · ".join(header(deployment))}
    about |= {f"looked at {each.place}": each.said or each.state for each in deployment.looked_at}
    for name, value in about.items():
        ET.SubElement(told, "property", name=printable(name), value=printable(value))
    cases = [*_cases(deployment, fail_on, verbose=verbose)]
    for case in sorted(cases, key=lambda each: each.get("name", "")):
        case.set("classname", printable(deployment.name))
        suite.append(case)
    remarks = view.remarks(deployment)
    if remarks:
        ET.SubElement(suite, "system-out").text = printable("\n".join(remarks))
    _count(suite, tests="testcase", failures=FAILURE, errors=ERROR, skipped=SKIPPED)
    return suite


def _count(element: ET.Element, **tags: str) -> None:
    for name, tag in tags.items():
        element.set(name, str(sum(1 for _ in element.iter(tag))))


def _cases(deployment: DeploymentReport, fail_on: FailOn, *, verbose: bool) -> Iterator[ET.Element]:
    for finding in view.findings(deployment, verbose=verbose):
        yield _found(finding, deployment, fail_on)
    for change in view.changes(deployment, verbose=verbose):
        said = f"{view.moved(deployment)}: {change.message}"
        case = _case(f"{change.kind} {change.subject}")
        do = [f"do: {change.do}"] if change.do else []
        _tell(case, change.severity, [said, *do], failed=not change.minor and fails(change.severity, fail_on))
        yield case
    for muted in deployment.suppressed:
        yield _case(
            muted.finding.code, SKIPPED, f"suppressed: {view.accepted(muted)}: {muted.finding.message}"
        )
    for code in deployment.in_baseline:
        yield _case(code, SKIPPED, "in the baseline")
    for rule in deployment.unknown:
        yield _case(rule.code, SKIPPED, view.lacks(rule))
    for broken in deployment.broken:
        yield _case(broken.code, ERROR, f"the rule itself broke, which is a bug: {broken.reason}")
    lost = [each for each in deployment.looked_at if each.named and each.state == "nothing"]
    for looked in lost:
        yield _case(f"source {looked.place}", ERROR, looked.said or "nothing could be read from it")
    if not lost and not deployment.decided:
        yield _case("sources", ERROR, "nothing could be decided from what there was")
    for code in deployment.passed:
        yield _case(code)


def _case(name: str, outcome: str = "", message: str = "") -> ET.Element:
    case = ET.Element("testcase", name=printable(name))
    if outcome:
        ET.SubElement(case, outcome, message=printable(message))
    return case


def _found(finding: Finding, deployment: DeploymentReport, fail_on: FailOn) -> ET.Element:
    place = places.of(finding, deployment)
    at = f"{place.path}:{place.line}" if place.line else place.path
    lines = [view.message(finding), f"at: {at}"]
    lines += [f"read: {each.place}: {each.said}" for each in view.reads(finding)]
    lines += [f"do: {step.in_a_line()}" for step in view.steps(finding, deployment)]
    lines.append(f"why: {' '.join(finding.why.split())}")
    case = _case(finding.code)
    sure = finding.confidence != "low"
    _tell(case, finding.severity, lines, failed=sure and fails(finding.severity, fail_on))
    return case


def _tell(case: ET.Element, severity: Severity, lines: list[str], *, failed: bool) -> None:
    """Let ``case`` fail with ``lines``; where it does not, they are its output."""
    said = f"{severity}: {lines[0]}"
    if failed:
        failure = ET.SubElement(case, FAILURE, type=severity, message=printable(said))
        failure.text = printable("\n".join(lines))
    else:
        ET.SubElement(case, "system-out").text = printable("\n".join([said, *lines[1:]]))
