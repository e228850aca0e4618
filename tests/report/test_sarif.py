"""SARIF: the official schema, and what code scanning asks for beyond it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings

from sgdoctor.engine.model import Evidence
from sgdoctor.report import sarif
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Looked, Report, Suppressed

from .hostile import reports

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text())
VALIDATOR = jsonschema.Draft4Validator(SCHEMA)

# A placeholder or a link of SARIF's own: a brace that is not doubled, "](".
MARKUP = re.compile(r"(?<!\{)\{(?:\{\{)*(?!\{)|\]\(")


def run_of(report, **options):
    told = json.loads(sarif.render(report, **options))
    VALIDATOR.validate(told)
    [run] = told["runs"]
    return run


def place(finding_of, deployment_of, evidence, **fields):
    finding = finding_of(evidence=evidence)
    [result] = run_of(Report.of([deployment_of(findings=[finding], **fields)]))["results"]
    return result["locations"][0]["physicalLocation"]


def test_a_fleet_is_one_run_with_each_rule_once(fleet):
    run = run_of(fleet, verbose=True)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [
        each["ruleId"] for each in run["results"]
    ]
    assert not run["invocations"][0]["executionSuccessful"]  # a rule broke


def test_what_code_scanning_needs_of_a_rule_and_a_result(scenario):
    run = run_of(Report.of([scenario]))
    rule = next(each for each in run["tool"]["driver"]["rules"] if each["id"] == "SEC101")
    assert rule["helpUri"].startswith("https://github.com/")
    assert "sgdoctor explain SEC101" in rule["help"]["text"]
    assert rule["properties"] == {
        "tags": ["security"],
        "precision": "high",
        "problem.severity": "warning",
    }
    levels = {each["ruleId"]: each["level"] for each in run["results"]}
    assert levels == {"SEC101": "warning", "CFG101": "warning", "ARG103": "warning", "ENV102": "note"}
    assert {each["partialFingerprints"][sarif.FINGERPRINT] for each in run["results"]} == {"0123456789abcdef"}


def test_every_finding_of_the_recorded_deployments_is_in_a_file_of_theirs(monkeypatch):
    recorded = sorted(Path(__file__).parents[1].glob("*/*/report-*.json"))
    seen = 0
    for file in recorded:
        monkeypatch.chdir(file.parent)
        report = msgspec.json.decode(file.read_bytes(), type=Report)
        for result in run_of(report, verbose=True)["results"]:
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert Path(unquote(uri.removeprefix("file://"))).is_file(), uri
            seen += 1
    assert seen > len(recorded)


def test_undecided_rules_are_no_alerts_but_notifications(scenario):
    run = run_of(Report.of([scenario]))
    [invocation] = run["invocations"]
    told = {each["associatedRule"]["id"]: each for each in invocation["toolExecutionNotifications"]}
    assert told["NET101"]["level"] == "note"
    assert "host.shm_mib unknown" in told["NET101"]["message"]["text"]
    assert "NET101" not in {each["ruleId"] for each in run["results"]}


def test_the_other_files_that_a_finding_was_read_from_are_related(scenario):
    run = run_of(Report.of([scenario]))
    result = next(each for each in run["results"] if each["ruleId"] == "ARG103")
    located = [each["physicalLocation"] for each in [*result["locations"], *result["relatedLocations"]]]
    assert [(each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in located] == [
        ("launch-fusion.sh", 15),
        ("environment.json", 1),
    ]


def test_what_is_suppressed_is_marked_so_that_it_is_no_alert(finding, deployment):
    muted = Suppressed(finding("SEC101"), "the gateway asks for the key")
    report = Report.of([deployment(suppressed=[muted])])
    assert run_of(report)["results"] == []
    [result] = run_of(report, verbose=True)["results"]
    assert result["suppressions"] == [{"kind": "external", "justification": "the gateway asks for the key"}]


@pytest.mark.parametrize(
    ("name", "uri", "line"),
    [
        ("./deploy/launch 1.sh:3", "deploy/launch%201.sh", 3),
        ("/srv/größe.sh:3", "file:///srv/gr%C3%B6%C3%9Fe.sh", 3),
        ("c:x#1.sh", "c%3Ax%231.sh", 1),
        ("launch-\udcff.sh:3", "launch-%FF.sh", 3),
    ],
)
def test_a_file_is_named_by_a_uri(finding, deployment, name, uri, line):
    told = place(finding, deployment, [Evidence("arg.host", "0.0.0.0", "launch", name)])
    assert told == {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}


def test_a_path_that_leads_upwards_is_made_absolute(finding, deployment, tmp_path, monkeypatch):
    """SARIF 3.10.2 allows no ".." in a path."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    told = place(finding, deployment, [Evidence("arg.host", "h", "launch", "../launch.sh:3")])
    assert unquote(told["artifactLocation"]["uri"]) == f"file://{tmp_path.resolve()}/launch.sh"


def test_a_server_that_was_only_asked_is_named_by_its_url(finding, deployment):
    url = "http://127.0.0.1:31000/server_info"
    read = [Evidence("kv.tokens", 8192, "http", url)]
    told = place(finding, deployment, read, looked_at=[Looked("server_info", url)])
    assert told["artifactLocation"]["uri"] == url


@settings(max_examples=30, deadline=None)
@given(reports())
def test_any_text_is_valid_sarif_and_no_markup_of_its(report):
    text = sarif.render(report)
    assert text.isascii()
    run = run_of(report)
    assert len(run["results"]) == 6
    for result in run["results"]:
        assert not MARKUP.search(result["message"]["text"].replace("{{", ""))
        for each in result["locations"] + result.get("relatedLocations", []):
            uri = each["physicalLocation"]["artifactLocation"]["uri"]
            assert uri
            assert re.fullmatch(r"[A-Za-z0-9:/?#\[\]@!$&'()*+,;=%._~-]+", uri)
            urlsplit(uri)
    told = {each["message"]["text"].replace("{{", "{").replace("}}", "}") for each in run["results"]}
    for deployment in report.deployments:
        for finding in deployment.findings:
            said = printable(finding.message).replace("](", "] (")
            assert any(said in each for each in told)
