"""JUnit XML: held to the schema that Jenkins' xUnit plugin has, and read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from lxml import etree

from sgdoctor.report import junit
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Report, Suppressed

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
    assert found["SEC101"] == "failure"
    assert found["ENV102"] == "system-out"  # for information: no failure
    assert found["NET101"] == "skipped"
    assert found["ARG142"] == "passed"
    assert not any(name.startswith("QNT") for name in found)  # does not apply
    assert suite.get("tests") == str(len(suite.findall("testcase")))
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("3", "0", "15")


def test_a_failure_says_where_and_what_to_do(scenario):
    [suite] = suites_of(Report.of([scenario]))
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
    suites = suites_of(report, verbose=verbose)
    assert junit.render(report).isascii()
    *suites, said = suites
    assert said.find("system-out").text.startswith(printable(report.notes[0]))
    for deployment, suite in zip(report.deployments, suites, strict=True):
        assert suite.get("name") == printable(deployment.name)
        assert len(suite.findall("testcase")) == 8
        failure = suite.find("testcase[@name='CFG101']/failure")
        assert failure.get("message") == f"warning: {printable(deployment.findings[0].message)}"
        assert failure.text.startswith(printable(deployment.findings[0].message))
