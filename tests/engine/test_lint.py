"""The rule linter."""

from __future__ import annotations

import pytest

from sgdoctor.engine import lint

CFG = "cfg/CFG901-moe-config-missing.yaml"
RUN = "run/RUN901-queue-full.yaml"


def test_sound_rules_pass(pack_folder):
    assert lint.lint_folder(pack_folder) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (CFG, "code: CFG901", "code: CFG91", ":1: CFG91 is not a code"),
        (CFG, "code: CFG901", "code: XYZ901", ":1: XYZ is no family"),
        (CFG, "code: CFG901", "code: ARG901", ":1: ARG901 belongs into the folder arg/, not cfg/"),
        (CFG, "code: CFG901", "code: CFG902", "call it CFG902-moe-config-missing.yaml"),
        (CFG, "name: moe-config", "name: moe_config", ":2: moe_config-missing is not lower case words"),
        (
            RUN,
            "name: queue-full",
            "name: moe-config-missing",
            ":2: the name moe-config-missing is taken by CFG901",
        ),
        (
            CFG,
            "sources: [srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py@0.5.12]",
            "sources: []",
            ":17: no source",
        ),
        (
            CFG,
            "why: The built-in config is made for no GPU in particular.",
            "why: ' '",
            ":12: `why` is empty",
        ),
        (CFG, ">=0.5.9,<0.5.13", ">=0.5,<0.5.13", ":8: 0.5 is not a full release"),
        (CFG, ">=0.5.9,<0.5.13", "==0.5.12", ":8: releases: write releases as"),
        (CFG, "expect: pass", "expect: fail", "no case expects pass"),
        (CFG, 'input: {log: "", assume: {}}', "facts: {}", "no case has `input`"),
        (CFG, "name: dense", "name: a file", "two cases are named a file"),
        (RUN, "facts: {}, ", "", ":16: no log: a case has `facts` (with `match`), or `input`"),
        (CFG, "{model.name|The", "{model.nam|The", ":11: {model.nam} is neither a fact nor a group; did you"),
        (
            CFG,
            "{gpu.count|some}",
            "{gpu.count}",
            ":11: {gpu.count} may be unknown here; write {gpu.count|words",
        ),
        (CFG, "--tune-moe", "{triton.version}", ":14: {triton.version} may be unknown here"),
        (RUN, "{size}", "{seize}", "{seize} is neither a fact nor a group; did you mean size?"),
        (
            RUN,
            "is full \\(",
            "is (?!not) full \\(",
            ":8: not an RE2 pattern (no look-around): invalid perl operator",
        ),
        (CFG, "applies: model.is_moe", "applies: matches(model.name, '(?=x)')", ":9: not an RE2 pattern"),
        (RUN, "match: '", "match: '|", ":8: the pattern matches every record"),
        (RUN, 'size: "7"', 'sise: "7"', "full: sise is no group of the pattern"),
        (
            CFG,
            "expect: unknown",
            "match: {a: b}\n    expect: unknown",
            "gives `match`, but the rule has no pattern",
        ),
        (
            CFG,
            "sglang.version: 0.5.12, model.is_moe: true}",
            "sglang.versio: 0.5.12}",
            ":27: runner unknown: unknown fact sglang.versio; did you mean sglang.version?",
        ),
        (
            CFG,
            "model.is_moe: true}",
            "model.is_moe: 1}",
            "runner unknown: model.is_moe is of type bool, not int",
        ),
        (
            RUN,
            "no log, facts: {}, expect: unknown",
            "no log, facts: {}, expect: not_applicable",
            "expects not_applicable, but the rule has neither",
        ),
        (
            RUN,
            "case: [R01",
            "explains: [CFG902]\ncase: [R01",
            ":7: explains CFG902, which is no rule; did you mean",
        ),
        (RUN, "code: RUN901", "code: CFG901", "CFG901 is taken by"),
        (CFG, "impact: performance", "impact: speed", ":5: impact: Invalid enum value"),
        (CFG, "when: moe.runner", "when: moe.runer", "^ unknown fact moe.runer"),
    ],
)
def test_each_fault_is_found_at_its_place(pack_folder, file, old, new, problem):
    path = pack_folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    found = lint.lint_folder(pack_folder)
    assert any(problem in one for one in found), found


def test_a_merged_fact_is_told_of_the_facts_it_was_merged_into(pack_folder):
    path = pack_folder / CFG
    path.write_text(path.read_text().replace("moe.up.source: default}", "moe.up.source: 3}"))
    lines = [one.removeprefix(str(path)).split(" ")[0] for one in lint.lint_folder(pack_folder)]
    assert lines == [":21:", ":30:"]


def test_tests_come_last(pack_folder):
    path = pack_folder / CFG
    path.write_text(path.read_text() + "explains: []\n")
    (problem,) = lint.lint_folder(pack_folder)
    assert "`tests` comes last" in problem


def test_facts_that_are_set_together_need_no_other_words(pack_folder):
    path = pack_folder / CFG
    # moe.up.expected_file is known where moe.up.source is; log facts are where the log matched.
    assert "{moe.up.expected_file}" in path.read_text()
    path = pack_folder / RUN
    path.write_text(path.read_text().replace("holds {size}", "holds {size} of {log.ranks}"))
    assert lint.lint_folder(pack_folder) == []
