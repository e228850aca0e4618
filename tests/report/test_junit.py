"""JUnit XML: held to the schema that Jenkins' xUnit plugin has, and read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from lxml import etree

from sgdoctor.report import junit
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Change, Report, Suppressed, exit_code

from .hostile import reports

SCHEMA = etree.XMLSchema(etree.parse(str(Path(__file__).parent / "schemas" / "junit-10.xsd")))


def suites_of(report, **options):
    text = junit.render(report, **options)
    suites = etree.fromstring(text.encode())
    SCHEMA.assertValid(suites)
    return suites


def outcomes(suite):
    """Return what became of each case; a case without a child passed."""
    return {case.get("name"): next((each.tag for each in case), "passed") for case in suite.iter("testcase")}


def test_a_case_a_rule(scenario):
    [suite] = suites_of(Report.of([scenario]))
    found = outcomes(suite)
    assert found["SEC101"] == "system-out"  # a warning: the command ends with 0
    assert found["ENV102"] == "system-out"
    assert found["NET101"] == "skipped"
    assert found["ARG142"] == "passed"
    assert not any(name.startswith("QNT") for name in found)  # does not apply
    assert suite.get("tests") == str(len(suite.findall("testcase")))
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "15")


@pytest.mark.parametrize(
    ("fail_on", "failed"),
    [
        ("error", ["RUN101"]),
        ("warning", ["CFG101", "RUN101", "flag-gone --x"]),
        ("info", ["CFG101", "ENV102", "RUN101", "flag-gone --x"]),
        ("never", []),
    ],
)
def test_a_case_fails_where_its_finding_makes_the_command_fail(finding, deployment, fail_on, failed):
    gone = Change(
        kind="flag-gone",
        subject="--x",
        before="--x",
        after=None,
        release="0.5.20",
        severity="warning",
        message="--x is gone.",
    )
    found = [
        finding("RUN101", "error"),
        finding("CFG101", "warning"),
        finding("ENV102", "info"),
        finding("MEM990", "error", confidence="low"),
    ]
    report = Report.of([deployment(findings=found, changes=[gone], moved_from="0.5.10")])
    [suite] = suites_of(report, fail_on=fail_on, verbose=True)
    assert [name for name, outcome in sorted(outcomes(suite).items()) if outcome == "failure"] == failed
    assert suite.get("failures") == str(len(failed))
    assert bool(failed) == (exit_code(report, fail_on) == 1)


def test_what_is_below_the_threshold_passes_with_its_text(scenario):
    [suite] = suites_of(Report.of([scenario]))
    text = suite.find("testcase[@name='ARG103']/system-out").text
    assert text.startswith("warning: --enable-flashinfer-allreduce-fusion does nothing on this GPU")
    assert "do: remove --enable-flashinfer-allreduce-fusion" in text


def test_a_failure_says_where_and_what_to_do(scenario):
    [suite] = suites_of(Report.of([scenario]), fail_on="warning")
    failure = suite.find("testcase[@name='ARG103']/failure")
    assert failure.get("type") == "warning"
    assert "at: launch-fusion.sh:15" in failure.text
    assert "do: remove --enable-flashinfer-allreduce-fusion" in failure.text


def test_a_suite_a_deployment_and_nothing_lost_is_green(fleet):
    suites = {suite.get("name"): suite for suite in suites_of(fleet)}
    assert list(suites) == ["launch-fusion.sh", "127.0.0.1:30001", "other.log", "127.0.0.1:30000", "broken"]
    assert outcomes(suites["other.log"]) == {"CFG101": "skipped", "source other.log": "error"}
    assert outcomes(suites["broken"])["MEM101"] == "error"
    assert "401 Unauthorized" in suites["127.0.0.1:30001"].find("system-out").text
    assert suites["127.0.0.1:30000"].get("failures") == "0"


def test_what_is_accepted_is_skipped_and_says_why(finding, deployment):
    muted = Suppressed(finding("SEC101"), "the gateway asks for the key", "2027-01-31")
    [suite] = suites_of(Report.of([deployment(suppressed=[muted], in_baseline=["CFG101"])]))
    said = {each.getparent().get("name"): each.get("message") for each in suite.iter("skipped")}
    assert said == {
        "SEC101": "suppressed: the gateway asks for the key (until 2027-01-31): The experts run slowly.",
        "CFG101": "in the baseline",
    }


def test_what_could_not_be_decided_at_all_is_an_error(deployment):
    [suite] = suites_of(Report.of([deployment(looked_at=[])]))
    assert outcomes(suite) == {"ARG101": "passed", "sources": "error"}


@pytest.mark.parametrize("verbose", [False, True])
@settings(max_examples=20, deadline=None)
@given(reports())
def test_any_text_comes_back(verbose, report):
    suites = suites_of(report, verbose=verbose, fail_on="warning")
    assert junit.render(report).isascii()
    *suites, said = suites
    assert said.find("system-out").text.startswith(printable(report.notes[0]))
    for deployment, suite in zip(report.deployments, suites, strict=True):
        assert suite.get("name") == printable(deployment.name)
        assert len(suite.findall("testcase")) == 8
        failure = suite.find("testcase[@name='CFG101']/failure")
        assert failure.get("message") == f"warning: {printable(deployment.findings[0].message)}"
        assert failure.text.startswith(printable(deployment.findings[0].message))
