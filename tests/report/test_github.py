"""Annotations, read back as the runner reads them."""

from __future__ import annotations

import re

from hypothesis import given, settings

from sgdoctor.report import github
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Report
from sgdoctor.report.places import Place

from .hostile import reports

COMMAND = re.compile(r"::(?P<level>error|warning|notice) (?P<properties>[^\n]*?)::(?P<data>[^\r\n]*)")


def read(line):
    """Return a command's level, properties and message."""
    found = COMMAND.fullmatch(line)
    assert found, line
    properties = dict(each.split("=", 1) for each in found["properties"].split(","))
    return found["level"], {name: _back(value) for name, value in properties.items()}, _back(found["data"])


def _back(text):
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_an_annotation_a_finding_and_a_line_that_counts(scenario):
    *lines, last = github.render(Report.of([scenario])).splitlines()
    told = [read(line) for line in lines]
    assert [level for level, _, _ in told] == ["warning", "warning", "warning", "notice"]
    exposed = next(each for each in told if each[1]["title"] == "SEC101: A rule")
    assert exposed[1] == {"file": "launch-fusion.sh", "line": "11", "title": "SEC101: A rule"}
    assert exposed[2].endswith(
        '\nDo: set --host 127.0.0.1\nDo: --api-key "$SGLANG_API_KEY" (or both, behind a proxy)'
    )
    found, rest = last.split(". ", 1)
    assert found == "0 errors, 3 warnings, 1 info, 1 only suspected"
    assert rest == "58 rules passed, 15 could not be decided, 34 do not apply."


def test_what_was_lost_and_what_broke_is_told_too(fleet):
    told = [read(line) for line in github.render(fleet).splitlines()[:-1]]
    titles = [properties["title"] for _, properties, _ in told]
    assert "MEM101: the rule itself broke (m · broken · SGLang 0.5.23)" in titles
    messages = [message for _, _, message in told]
    assert "other.log: no record of SGLang's in 1,204 lines" in messages
    assert "/server_info: 401 Unauthorized: pass its --api-key" in messages
    assert "ZeroDivisionError: division by zero" in messages


def test_what_is_no_file_is_not_called_one():
    line = github.command("error", "a title", "text", Place("http://host/server_info", is_file=False))
    assert line == "::error title=a title::text"


def test_what_would_end_a_command_or_a_property_is_escaped():
    line = github.command("error", "a,b::c", "100%\n::error::x", Place("a:b,c.sh", 3))
    assert line == "::error file=a%3Ab%2Cc.sh,line=3,title=a%2Cb%3A%3Ac::100%25%0A::error::x"


@settings(max_examples=30, deadline=None)
@given(reports())
def test_any_text_stays_in_its_command(report):
    *lines, last = github.render(report).split("\n")[:-1]
    assert not last.startswith("::")
    told = [read(line) for line in lines]
    assert len(told) == sum(2 + 1 + 1 + 1 for _ in report.deployments) + len(report.notes) + 1
    messages = [message for _, _, message in told]
    for deployment in report.deployments:
        for finding in deployment.findings:
            assert any(each.startswith(printable(finding.message)) for each in messages)
