"""Rule packs: what is loaded, and the one line that says what is wrong with a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sgdoctor.engine import rules
from sgdoctor.engine.rules import RulePackError
from sgdoctor.errors import UsageError


def test_a_pack_is_all_rule_files_of_a_folder_by_code(pack_folder):
    (pack_folder / "facts.yaml").write_text("not: a rule")
    (pack_folder / ".cache").mkdir()
    (pack_folder / ".cache" / "CFG902-x.yaml").write_text("not: a rule")
    pack = rules.load(root=pack_folder)
    assert [rule.code for rule in pack] == ["CFG901", "RUN901"]
    assert pack.get("queue-full") is pack.get("RUN901")
    assert pack.get("CFG999") is None
    assert pack.patterns() == {"RUN901": r"queue (?P<queue>\w+) is full \((?P<size>\d+)\)"}
    assert pack.get("CFG901").names == ("model.is_moe", "moe.runner", "moe.up.source")


def test_test_cases_are_loaded_when_asked_for_with_shared_facts_merged(pack_folder):
    assert rules.load(root=pack_folder).get("CFG901").rule.tests == []
    cases = rules.load(root=pack_folder, tests=True).get("CFG901").rule.tests
    assert [case.name for case in cases][:2] == ["no file", "a file"]
    assert cases[1].facts == {**cases[0].facts, "moe.up.source": "exact"}


def test_keys_behind_the_tests_count_too(pack_folder):
    path = pack_folder / "cfg" / "CFG901-moe-config-missing.yaml"
    path.write_text(path.read_text().replace("applies: model.is_moe\n", "") + "applies: log.died\n")
    assert rules.load(root=pack_folder).get("CFG901").applies.names == ("log.died",)


def test_other_packs_are_added(pack_folder, tmp_path):
    more = tmp_path / "more"
    more.mkdir()
    text = (pack_folder / "run" / "RUN901-queue-full.yaml").read_text()
    (more / "mine.yaml").write_text(text.replace("RUN901", "RUN902"))
    assert [rule.code for rule in rules.load([more], root=pack_folder)] == ["CFG901", "RUN901", "RUN902"]


def test_a_code_is_taken_once(pack_folder, tmp_path):
    path = tmp_path / "again.yaml"
    path.write_text((pack_folder / "run" / "RUN901-queue-full.yaml").read_text())
    with pytest.raises(RulePackError, match=r"again.yaml:1: RUN901 is taken by .*RUN901-queue-full.yaml"):
        rules.load([path], root=pack_folder)


def test_a_pattern_of_another_pack_is_checked_at_once(pack_folder, tmp_path):
    path = tmp_path / "mine.yaml"
    text = (pack_folder / "run" / "RUN901-queue-full.yaml").read_text().replace("RUN901", "RUN902")
    path.write_text(re.sub("(?m)^match: .*", "match: '(?=queue)'", text))
    with pytest.raises(RulePackError, match=r"mine.yaml:8: match: not an RE2 pattern"):
        rules.load([path], root=pack_folder)


def test_a_folder_that_does_not_exist_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such folder of rules"):
        rules.load([tmp_path / "nowhere"])


def test_a_folder_without_a_rule_is_no_folder_of_rules(tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "ARG901-hidden.yaml").touch()
    with pytest.raises(UsageError, match="no rule in it"):
        rules.load([tmp_path])


def test_the_rules_that_come_with_sgdoctor_load():
    assert len(rules.load()) > 0


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("code: CFG901", "code: [CFG901", r":2: not YAML: .+"),
        (
            "severity: warning",
            "severity: warning\nseverity: error",
            r":5: `severity` is given twice; keep one",
        ),
        ("fix: tune-moe", "fixes: tune-moe", r":15: unknown key `fixes`; did you mean fix\?"),
        ("- run: sgd", "- runs: sgd", r":14: recommend\[0\]: Object contains unknown field `runs`"),
        ("- run: sgdoctor", "- do: tune\n    run: sgdoctor", r":14: a recommendation has exactly one of run"),
        (
            "- run: sgdoctor",
            "- safe: true\n    run: sgdoctor",
            r":14: `safe` is for a flag: `remove` or `set`",
        ),
        ("severity: warning", "severity: fatal", r":4: severity: Invalid enum value 'fatal'"),
        ("case: M02", "case: on", r":7: `on` without quotes is a boolean to YAML; quote it"),
        ("title: No", "titel: No", r":3: unknown key `titel`; did you mean title\?"),
        ("name: moe-config-missing\n", "", r":1: Object missing required field `name`"),
        (
            "when: moe.runner",
            "when: moe.runer",
            r":10: when: column 1: unknown fact moe.runer; did you mean moe",
        ),
        (
            "when: moe.runner",
            "when: |\n  log.died and\n  moe.runer",
            r":12: when: column 1: unknown fact moe",
        ),
        (
            "applies: model.is_moe",
            "applies: model.name",
            r":9: applies: column 1: this is str, not true or fal",
        ),
        ("<0.5.13", "<=0.5.13", r":8: releases: write releases as >=0.5.10,<0.5.14: post releases fall out"),
        ('when: moe.runner == "triton" and moe.up.source == "default"\n', "", r":1: a rule has a condition"),
        ("title: No", "? [a]\n: b\ntitle: No", r":3: a key is a plain word"),
        ("title: No", "<<: [a]\ntitle: No", r":3: `<<` takes the alias of a mapping"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(pack_folder, old, new, error):
    path = pack_folder / "cfg" / "CFG901-moe-config-missing.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RulePackError) as raised:
        rules.load(root=pack_folder)
    told = str(raised.value)
    assert re.match(re.escape(str(path)) + error, told), told
    assert "\n" not in told
    assert raised.value.exit_code == 2


def test_a_misspelt_fact_is_drawn_with_a_caret(pack_folder):
    path = pack_folder / "cfg" / "CFG901-moe-config-missing.yaml"
    path.write_text(path.read_text().replace("and moe.up.source", "and moe.up.sourc"))
    with pytest.raises(RulePackError) as raised:
        rules.load(root=pack_folder)
    assert raised.value.detail.splitlines()[1] == (
        "                           ^ unknown fact moe.up.sourc; did you mean moe.up.source?"
    )


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\xff\xfe", "cannot be read as UTF-8 text"),
        (b"", "a rule file is a mapping"),
        (b"- a", "is a mapping"),
    ],
)
def test_what_is_no_rule_file_at_all(tmp_path: Path, content, error):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(RulePackError, match=error):
        rules.load([path])


def test_values_mean_what_they_look_like(tmp_path, pack_folder):
    path = pack_folder / "run" / "RUN901-queue-full.yaml"
    facts = "{a: 0.5.12, b: 010, c: 1:30, d: 2026-11-30, e: 1_0.5, f: ~, g: true, h: 'true', i: -7}"
    text = path.read_text().replace("facts: {}", f"facts: {facts}")
    path.write_text(text)
    case = rules.load(root=pack_folder, tests=True).get("RUN901").rule.tests[2]
    assert case.facts == {
        "a": "0.5.12",
        "b": 10,
        "c": "1:30",
        "d": "2026-11-30",
        "e": 10.5,
        "f": None,
        "g": True,
        "h": "true",
        "i": -7,
    }
