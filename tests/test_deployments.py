"""Whole deployments: what a report must say, must not say, and looks like.

Each folder of ``captures``, ``scenarios`` and ``launch_files`` has an ``expect.yaml`` with one or more
reports: the sources, the codes that must appear (all others are forbidden) and texts that must be in the
terminal report. The reports themselves lie beside it; ``make goldens`` writes them anew, and a person reads
the difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sgdoctor import examine
from sgdoctor.engine import recommend
from sgdoctor.report import json, layout, terminal
from sgdoctor.report.model import Report
from sgdoctor.sources import Sources

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/*/expect.yaml"))


def cases() -> list[Any]:
    return [
        pytest.param(folder, expected, id=f"{folder.name}-{expected['name']}")
        for folder in FOLDERS
        for expected in yaml.safe_load((folder / "expect.yaml").read_text())["reports"]
    ]


def report_of(folder: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(folder)
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in expected["sources"].items()
    }
    return examine.check(Sources(**given), target=expected.get("target"))


def test_every_capture_has_an_expectation() -> None:
    captured = {path.parent.name for path in HERE.glob("captures/*/command.txt")}
    assert captured == {folder.name for folder in FOLDERS if folder.parent.name == "captures"}


@pytest.mark.parametrize(("folder", "expected"), cases())
def test_report(
    folder: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    report = report_of(folder, expected, monkeypatch)
    [deployment] = report.deployments
    if expected.get("undecided"):
        assert not deployment.decided
    codes = sorted(finding.code for finding in deployment.findings)
    assert codes == sorted(expected.get("codes", [])), [finding.message for finding in deployment.findings]
    assert deployment.broken == []
    assert recommend.conflicts(deployment.findings) == []
    fatal = ("error", "stability")
    ends = {each.code for each in deployment.findings if (each.severity, each.impact) == fatal}
    assert "RUN101" not in ends or len(ends) == 1 or "RUN101" in deployment.consequences
    text = layout.plain(terminal.render(report, width=80))
    for said in expected.get("says", []):
        assert said in " ".join(text.split()), text
    golden(folder / f"report-{expected['name']}.txt", text, request)
    golden(folder / f"report-{expected['name']}.json", json.render(report), request)


def golden(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-goldens"):
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing: `make goldens` writes it, then read it"
    assert text == path.read_text(encoding="utf-8")


def test_an_empty_log_is_undecided_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.log").touch()
    report = report_of(tmp_path, {"sources": {"logs": ["empty.log"]}}, monkeypatch)
    assert not report.deployments[0].decided
