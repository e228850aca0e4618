"""``sgdoctor rules``: list, lint and test."""

from __future__ import annotations

import json

RULE = """\
code: CFG901
name: house-rule
title: A rule of the house
severity: info
impact: performance
confidence: medium
case: M01
when: model.layers > 40
message: "{model.layers} layers."
why: For this test.
verified: in this test
sources: [https://github.com/sgl-project/sglang/pull/5955]
tests:
  - {name: many layers, facts: {model.layers: 48}, expect: fail}
  - {name: few layers, facts: {model.layers: 4}, expect: pass}
  - {name: nothing known, facts: {}, expect: unknown}
"""


def pack(folder, text=RULE):
    (folder / "cfg").mkdir()
    (folder / "cfg" / "CFG901-house-rule.yaml").write_text(text)
    return folder


def test_the_list_has_a_line_a_rule(sgdoctor, tmp_path):
    done = sgdoctor("rules", "list", "--rules", pack(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "CFG901  info     A rule of the house" in lines
    assert lines[-1].endswith("rules.  sgdoctor explain CODE")


def test_the_list_as_json(sgdoctor, tmp_path):
    rules = json.loads(sgdoctor("rules", "list", "--rules", pack(tmp_path), "--format", "json").stdout)
    rule = next(each for each in rules if each["code"] == "CFG901")
    assert rule["name"] == "house-rule"
    assert rule["file"].endswith("CFG901-house-rule.yaml")
    assert [each["code"] for each in rules] == sorted(each["code"] for each in rules)


def test_lint_names_file_line_and_problem(sgdoctor, tmp_path):
    done = sgdoctor("rules", "lint", "--rules", pack(tmp_path))
    assert done.returncode == 2
    problem, total = done.stdout.splitlines()
    assert problem.startswith(str(tmp_path / "cfg" / "CFG901-house-rule.yaml:"))
    assert "no case has `input`" in problem
    assert total == "1 rule, 1 problem"


def test_lint_goes_on_behind_a_file_that_cannot_be_read(sgdoctor, tmp_path):
    pack(tmp_path)
    (tmp_path / "cfg" / "CFG902-not-yaml.yaml").write_text("code: [\n")
    done = sgdoctor("rules", "lint", "--rules", tmp_path)
    assert done.returncode == 2
    assert "CFG902-not-yaml.yaml:2: not YAML" in done.stdout
    assert done.stdout.endswith("2 rules, 2 problems\n")


def test_the_cases_of_a_folder(sgdoctor, tmp_path):
    done = sgdoctor("rules", "test", "--rules", pack(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 cases, 0 failed\n", "")


def test_a_case_that_fails_is_2_and_says_what_it_came_to(sgdoctor, tmp_path):
    done = sgdoctor("rules", "test", "--rules", pack(tmp_path, RULE.replace("layers > 40", "layers > 50")))
    assert done.returncode == 2
    problem, total = done.stdout.splitlines()
    assert problem.endswith("CFG901 many layers: expected fail, got pass (no reason)")
    assert total == "3 cases, 1 failed"


def test_a_duplicate_code_is_2(sgdoctor, tmp_path):
    pack(tmp_path)
    (tmp_path / "cfg" / "CFG901-again.yaml").write_text(RULE)
    done = sgdoctor("rules", "list", "--rules", tmp_path)
    assert done.returncode == 2
    assert "CFG901 is taken by" in done.stderr
