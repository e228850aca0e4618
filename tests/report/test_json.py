"""The report as JSON, held against its schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from sgdoctor.report import json as report_json
from sgdoctor.report.model import Report

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "report.schema.json"


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_whole_report_keeps_to_its_schema(fleet, validator):
    told = json.loads(report_json.render(fleet))
    validator.validate(told)
    assert told["schema"] == "sgdoctor-report-1"
    assert [each["name"] for each in told["deployments"]] == [each.name for each in fleet.deployments]


def test_a_finding_has_all_that_was_promised(scenario, validator):
    told = json.loads(report_json.render(Report.of([scenario])))
    finding = next(each for each in told["deployments"][0]["findings"] if each["code"] == "CFG101")
    promised = {"code", "name", "case", "severity", "impact", "confidence", "message", "evidence"}
    assert promised | {"recommendation", "sources", "fingerprint"} <= set(finding)
    assert {"fact", "value", "source", "place"} <= set(finding["evidence"][0])
    assert finding["recommendation"] == [
        {"run": "sgdoctor fix --tune-moe", "note": "makes both files on this GPU, checks them"}
    ]


def test_what_is_only_suspected_is_always_in_it(scenario):
    told = json.loads(report_json.render(Report.of([scenario])))
    assert "low" in {each["confidence"] for each in told["deployments"][0]["findings"]}
    assert told["summary"]["low_confidence"] == 1


@pytest.mark.parametrize("harm", [{"schema": "sgdoctor-report-2"}, {"summary": {}}, {"deployments": [{}]}])
def test_the_schema_refuses_what_is_no_report(scenario, validator, harm):
    told = json.loads(report_json.render(Report.of([scenario])))
    assert not validator.is_valid({**told, **harm})


def test_a_file_name_that_is_not_utf_8_is_spelt_out(deployment, validator):
    told = json.loads(report_json.render(Report.of([deployment(name="launch-\udcff.sh")])))
    validator.validate(told)
    assert told["deployments"][0]["name"] == r"launch-\udcff.sh"


def test_the_schema_in_docs_is_what_the_structs_say():
    tool = ROOT / "tools" / "report_schema.py"
    subprocess.run([sys.executable, tool, "--check"], check=True, cwd=ROOT)
