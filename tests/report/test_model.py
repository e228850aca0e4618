"""What a report comes to: its order, its counts, its exit code."""

from __future__ import annotations

import pytest

from sgdoctor.report.model import Broken, Looked, Report, UndecidedRule, exit_code

NOTHING = Looked("log", "server.log", state="nothing", said="nothing recognized")
PARTLY = Looked("http", "/server_info", state="partly", said="401 Unauthorized")
OPEN = UndecidedRule("CFG101", "A rule", ["moe.up.source"], "no source given tells")


def test_the_worst_comes_first(deployment, finding):
    report = Report.of(
        [
            deployment("healthy"),
            deployment("one warning", findings=[finding("MEM101")]),
            deployment("half read", looked_at=[PARTLY]),
            deployment("an error", findings=[finding("CFG102", "info"), finding("ARG101", "error")]),
            deployment("two warnings", findings=[finding("MEM101"), finding("CFG101")]),
        ]
    )
    assert [each.name for each in report.deployments] == [
        "an error",
        "two warnings",
        "one warning",
        "half read",
        "healthy",
    ]
    assert [each.code for each in report.deployments[0].findings] == ["ARG101", "CFG102"]
    assert report.worst == "error"


def test_a_suspicion_is_counted_by_itself(deployment, finding):
    report = Report.of([deployment(findings=[finding(severity="error", confidence="low"), finding()])])
    assert (report.summary.errors, report.summary.warnings, report.summary.low_confidence) == (0, 1, 1)
    assert report.worst == "warning"


@pytest.mark.parametrize(
    ("severity", "fail_on", "code"),
    [
        ("error", "error", 1),
        ("warning", "error", 0),
        ("warning", "warning", 1),
        ("info", "warning", 0),
        ("info", "info", 1),
        ("error", "never", 0),
    ],
)
def test_findings_at_or_above_fail_on_are_1(deployment, finding, severity, fail_on, code):
    assert exit_code(Report.of([deployment(findings=[finding(severity=severity)])]), fail_on) == code


def test_a_suspicion_alone_is_0(deployment, finding):
    report = Report.of([deployment(findings=[finding(severity="error", confidence="low")])])
    assert exit_code(report, "info") == 0


def test_nothing_to_check_is_3():
    assert exit_code(Report.of([])) == 3


@pytest.mark.parametrize("other", [[], [Looked("launch", "launch.sh")]])
def test_a_named_source_that_gave_nothing_is_3(deployment, other):
    assert exit_code(Report.of([deployment(looked_at=[NOTHING, *other])])) == 3


def test_a_source_that_nobody_named_may_give_nothing(deployment):
    seen = Looked("gpus", "nvml", state="nothing", said="no driver", named=False)
    assert exit_code(Report.of([deployment(looked_at=[seen, Looked("launch", "launch.sh")])])) == 0


def test_a_source_read_in_part_is_3_when_strict(deployment):
    report = Report.of([deployment(looked_at=[PARTLY])])
    assert (exit_code(report), exit_code(report, strict=True)) == (0, 3)


def test_sources_that_decide_no_rule_are_3(deployment):
    assert exit_code(Report.of([deployment(passed=[], unknown=[OPEN])])) == 3
    assert exit_code(Report.of([deployment(unknown=[OPEN])])) == 0


def test_one_of_several_deployments_is_enough_for_3(deployment):
    assert exit_code(Report.of([deployment("a"), deployment("b", looked_at=[NOTHING])])) == 3


def test_findings_win_over_a_broken_rule_and_that_over_the_undecided(deployment, finding):
    broken = deployment(broken=[Broken("MEM101", "KeyError")], looked_at=[NOTHING])
    assert exit_code(Report.of([broken])) == 4
    found = deployment(findings=[finding(severity="error")], looked_at=[NOTHING])
    assert exit_code(Report.of([broken, found])) == 1
