"""Findings together."""

from __future__ import annotations

import msgspec
import pytest

from sgdoctor.engine import recommend, rules
from sgdoctor.engine.model import Finding, Recommendation


def finding(code: str, *recommendation: Recommendation, severity="warning", impact="performance") -> Finding:
    return Finding(
        code,
        code.lower(),
        code,
        ["X"],
        severity,
        impact,
        "high",
        code,
        [],
        list(recommendation),
        "",
        [],
        "0" * 16,
    )


R = Recommendation


@pytest.mark.parametrize(
    ("one", "two", "knob"),
    [
        (
            R(set="--mem-fraction-static", value=0.8),
            R(set="mem_fraction_static", value=0.9),
            "--mem-fraction-static",
        ),
        (R(set="--enable-x"), R(remove="--enable-x"), "--enable-x"),
        (R(env="SGLANG_X", value="1"), R(env="SGLANG_X"), "$SGLANG_X"),
        (R(install="sgl_kernel==0.3"), R(install="sgl-kernel==0.4"), "sgl-kernel"),
    ],
)
def test_one_knob_in_two_positions_is_a_conflict(one, two, knob):
    (conflict,) = recommend.conflicts([finding("CFG101", one), finding("CFG102", two)])
    assert (conflict.knob, conflict.first_code, conflict.second_code) == (knob, "CFG101", "CFG102")
    assert conflict.first != conflict.second


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (R(set="--tp", value=2), R(set="--tp", value=2)),
        (R(set="--tp", value=2), R(set="--dp", value=4)),
        (R(remove="--tp"), R(remove="tp")),
        (R(run="a"), R(run="b")),
        (R(do="raise it"), R(do="lower it")),
        (R(install="https://host/x.whl"), R(install="x==1")),
    ],
)
def test_other_recommendations_go_together(one, two):
    assert recommend.conflicts([finding("CFG101", one), finding("CFG102", two)]) == []


def test_findings_stand_worst_first():
    given = [
        finding("RUN101", severity="info"),
        finding("CFG102"),
        finding("CFG101"),
        finding("SEC101", impact="security"),
        finding("NET101", severity="error"),
    ]
    assert [one.code for one in recommend.arrange(given)] == [
        "NET101",
        "SEC101",
        "CFG101",
        "CFG102",
        "RUN101",
    ]


def test_a_finding_that_another_explains_is_its_consequence(tmp_path, pack_folder):
    text = (pack_folder / "run" / "RUN901-queue-full.yaml").read_text()
    explained = {
        "RUN901": "[RUN902, RUN905]",
        "RUN902": "[RUN903]",
        "RUN903": "[]",
        "RUN911": "[RUN912]",
        "RUN912": "[RUN911]",
    }
    for code, codes in explained.items():
        (tmp_path / f"{code}.yaml").write_text(
            text.replace("RUN901", code).replace("tests:", f"explains: {codes}\ntests:")
        )
    (pack_folder / "run" / "RUN901-queue-full.yaml").unlink()
    pack = rules.load([tmp_path / f"{code}.yaml" for code in explained], root=pack_folder)
    findings = [finding(code) for code in explained]
    # RUN911 and RUN912 explain each other, which explains nothing; RUN905 did not fire.
    assert recommend.consequences(findings, pack) == {"RUN902": "RUN901", "RUN903": "RUN901"}
    assert recommend.consequences(findings[1:3], pack) == {"RUN903": "RUN902"}


def test_a_consequence_follows_its_cause_where_the_worse_of_both_belongs():
    given = [
        finding("CFG101"),
        finding("RUN101", severity="error"),
        finding("ENV101", severity="info"),
        finding("NET101", severity="error"),
    ]
    ordered = recommend.arrange(given, {"RUN101": "ENV101"})
    assert [one.code for one in ordered] == ["NET101", "ENV101", "RUN101", "CFG101"]


def test_a_suspicion_explains_nothing_that_is_certain(tmp_path, pack_folder):
    text = (pack_folder / "run" / "RUN901-queue-full.yaml").read_text()
    (tmp_path / "RUN902.yaml").write_text(
        text.replace("RUN901", "RUN902").replace("tests:", "explains: [RUN901]\ntests:")
    )
    pack = rules.load([tmp_path / "RUN902.yaml"], root=pack_folder)
    suspicion = msgspec.structs.replace(finding("RUN902"), confidence="low")
    assert recommend.consequences([suspicion, finding("RUN901")], pack) == {}
    other = msgspec.structs.replace(finding("RUN901"), confidence="low")
    assert recommend.consequences([suspicion, other], pack) == {"RUN901": "RUN902"}
