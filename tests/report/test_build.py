"""From facts and results to a deployment's report."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdoctor.engine import rules
from sgdoctor.engine.evaluate import evaluate
from sgdoctor.facts import Facts
from sgdoctor.report import build, options
from sgdoctor.report.model import Gpus, Looked, Report, exit_code

RULE = """\
code: CFG901
name: too-many-layers
title: More layers than fit
severity: warning
impact: performance
confidence: high
case: M02
when: model.layers > 128
message: "{model.layers} layers."
why: For this test.
verified: for this test
sources: [https://github.com/sgl-project/sglang]
tests: []
"""


@pytest.fixture
def pack(tmp_path):
    (tmp_path / "CFG901.yaml").write_text(RULE)
    return rules.load(root=Path(tmp_path))


def report_on(pack, facts, **given):
    results = evaluate(pack, facts)
    return build.deployment("launch.sh", facts, results, {one.code: one.rule for one in pack}, **given)


def test_a_finding_a_summary_and_what_was_looked_at(pack):
    facts = Facts()
    facts.set("model.layers", 256, source="model", place="config.json")
    facts.set("sglang.version", "0.5.12", source="log", place="server.log:1")
    facts.set("arg.tp_size", 4, source="log", place="server.log:3")
    facts.set("arg.dp_size", 1, source="log", place="server.log:3")
    facts.set("log.records", 1412, source="log", place="server.log")
    facts.set("log.release", "0.5.12", source="log", place="server.log")
    gpu = {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771}
    facts.set("gpus", [gpu] * 4, source="gpus", place="NVML")
    report = report_on(pack, facts)
    assert [finding.message for finding in report.findings] == ["256 layers."]
    assert report.summary.gpus == [Gpus(4, "NVIDIA H200", "9.0")]
    assert report.summary.parallel == {"tp": 4}
    assert {(each.place, each.said) for each in report.looked_at} == {
        ("config.json", ""),
        ("server.log", "1,412 records of SGLang 0.5.12"),
        ("NVML", ""),
    }


def test_how_much_of_a_source_was_understood_is_said_with_the_source(pack):
    facts = Facts()
    facts.set("log.records", 162, source="log", place="server.log")
    facts.notes += ["server.log: 162 of 163 lines recognized, grammar of 0.5.12", "something else"]
    report = report_on(pack, facts, looked_at=[Looked("log", "server.log")])
    assert [each.said for each in report.looked_at] == ["162 of 163 lines recognized, grammar of 0.5.12"]
    assert report.notes == ["something else"]


def test_an_undecided_rule_names_the_option_that_was_not_given(pack):
    (undecided,) = report_on(pack, Facts()).unknown
    assert (undecided.missing, undecided.options) == (["model.layers"], ["--model"])
    (undecided,) = report_on(pack, Facts(), given=["--model"]).unknown
    assert undecided.options == []


def test_an_undecided_rule_says_why_the_fact_is_unknown(pack):
    facts = Facts()
    facts.set_unknown("model.layers", "config.json names no number of layers")
    (undecided,) = report_on(pack, facts).unknown
    assert undecided.reason == "config.json names no number of layers"


def test_what_is_missing_is_what_would_have_to_be_read():
    facts = Facts()
    facts.set("arg.tp_size", 4, source="launch", place="launch.sh:3")
    facts.set_unknown("moe.up.source", "an input is unknown", ["moe.local_experts", "arg.tp_size"])
    facts.set_unknown("moe.local_experts", "an input is unknown", ["model.experts"])
    assert build.missing_roots(facts, "moe.up.source") == ["model.experts"]


def test_facts_that_wait_for_each_other_do_not_loop():
    facts = Facts()
    facts.set_unknown("moe.topk", "an input is unknown", ["moe.dtype"])
    facts.set_unknown("moe.dtype", "an input is unknown", ["moe.topk"])
    assert build.missing_roots(facts, "moe.topk") == ["moe.dtype"]


def test_only_an_option_that_gives_all_that_is_missing_is_named():
    assert options.giving(["kv.tokens", "log.records"]) == ["--log"]
    assert options.giving(["kv.tokens", "gpus"]) == []
    assert options.giving(["gpu.compute_capability"], ["--gpu"]) == ["--environment"]


def test_an_option_that_was_given_in_another_form_is_not_named():
    assert options.giving(["host.python"], ["--environment"]) == []
    assert options.giving(["asked.host"], ["--"]) == []


def test_every_fact_of_the_vocabulary_has_an_option():
    facts = Facts()
    without = [name for name in facts.vocabulary.specs if not options.giving([name])]
    assert without == ["sources.conflicts"], "name the family's option in sgdoctor/report/options.py"


def test_sources_that_disagree_are_in_the_report(pack):
    facts = Facts()
    facts.set("triton.version", "3.6.0", source="environment", place="environment.json")
    facts.set("triton.version", "3.5.1", source="log", place="server.log:3")
    (conflict,) = report_on(pack, facts).conflicts
    assert (conflict.kept.value, conflict.other.place) == ("3.6.0", "server.log:3")


def test_no_facts_decide_nothing(pack):
    assert exit_code(Report.of([report_on(pack, Facts())])) == 3
