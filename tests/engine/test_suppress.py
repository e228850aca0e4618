"""Which findings a suppression covers, and what is said of those that ended or are not needed."""

from __future__ import annotations

import datetime as dt

import pytest

from sgdoctor.config import Config, Settings, Suppression
from sgdoctor.engine import rules
from sgdoctor.engine.evaluate import evaluate
from sgdoctor.engine.select import must_exist, with_severities
from sgdoctor.engine.suppress import Subject, Suppressor
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts

TODAY = dt.date(2026, 12, 1)
STAGING = Subject("staging-a on port 30000", "Qwen/Qwen3-8B", 30000, ("deploy/run.sh", "-"))


def results(pack, *, found=True):
    """Return what the rules come to: the experts have no tuned config or they have; of the log nothing."""
    facts = Facts()
    known = {"sglang.version": "0.5.12", "model.is_moe": True, "moe.runner": "triton"}
    for name, value in {**known, "moe.up.source": "default" if found else "exact"}.items():
        facts.set(name, value, source="test", place="here")
    return evaluate(pack, facts)


def suppressor(pack, folder, *suppressions):
    return Suppressor(Config(folder / "sgdoctor.toml", Settings(suppress=list(suppressions))), pack, TODAY)


def of(code="CFG901", **settings):
    return Suppression(code=code, reason="known", **settings)


@pytest.fixture
def pack(pack_folder):
    return rules.load(root=pack_folder)


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"code": "moe-config-missing"},
        {"deployment": "staging-*"},
        {"model": "Qwen/*"},
        {"model": "Qwen/Qwen3-?B"},
        {"port": 30000},
        {"file": "run.sh"},
        {"file": "deploy/*.sh"},
        {"file": "*.sh", "port": 30000, "model": "Qwen/Qwen3-8B"},
        {"until": TODAY},
    ],
)
def test_what_it_is_about_is_suppressed(pack, tmp_path, monkeypatch, scope):
    monkeypatch.chdir(tmp_path)
    judge = suppressor(pack, tmp_path, of(**scope))
    kept, muted = judge.split(results(pack), STAGING)
    assert [(each.finding.code, each.suppression.reason) for each in muted] == [("CFG901", "known")]
    assert [each.code for each in kept] == ["RUN901"]
    assert judge.notes() == []


@pytest.mark.parametrize(
    "scope",
    [
        {"code": "RUN901"},
        {"deployment": "staging"},
        {"model": "qwen*"},
        {"port": 30001},
        {"file": "deploy"},
        {"file": "other/run.sh"},
        {"file": "*.sh", "port": 30001},
    ],
)
def test_what_it_is_not_about_stays_and_nothing_is_said(pack, tmp_path, monkeypatch, scope):
    monkeypatch.chdir(tmp_path)
    judge = suppressor(pack, tmp_path, of(**scope))
    kept, muted = judge.split(results(pack), STAGING)
    assert muted == []
    assert [each.code for each in kept if each.finding] == ["CFG901"]
    assert judge.notes() == []


def test_a_file_is_seen_from_the_folder_of_the_settings(pack, tmp_path, monkeypatch):
    (tmp_path / "deploy").mkdir()
    monkeypatch.chdir(tmp_path / "deploy")
    judge = suppressor(pack, tmp_path, of(file="deploy/run.sh"))
    assert judge.split(results(pack), Subject("x", files=("run.sh",)))[1]


def test_a_deployment_without_a_model_is_of_no_model(pack, tmp_path):
    judge = suppressor(pack, tmp_path, of(model="*"))
    assert judge.split(results(pack), Subject("x"))[1] == []


@pytest.mark.parametrize(
    ("about", "covered"), [(["pil*"], True), (["numpy", "pillow"], True), (["num*"], False)]
)
def test_a_package_that_a_derived_fact_names_is_what_a_finding_is_about(tmp_path, about, covered):
    facts, real = Facts(), rules.load()
    known = {"sglang.version": "0.5.12", "torch.version": "2.11.0", "packages.complete": True}
    for name, value in known.items():
        facts.set(name, value, source="test", place="here")
    wrong = [{"name": "pillow", "installed": "9.0", "required": "11.0"}]
    facts.derive("packages.mismatched", wrong, ["packages.complete"])
    judge = suppressor(real, tmp_path, of("ENV104", about=about))
    _, muted = judge.split(evaluate([real.get("ENV104")], facts), STAGING)
    assert [each.finding.code for each in muted] == ["ENV104"] * covered


def test_the_day_after_its_last_it_counts_again_and_that_is_said(pack, tmp_path):
    yesterday = dt.date(2026, 11, 30)
    judge = suppressor(pack, tmp_path, of(until=yesterday))
    kept, muted = judge.split(results(pack), STAGING)
    assert muted == []
    assert [each.code for each in kept if each.finding] == ["CFG901"]
    (note,) = judge.notes()
    assert note.endswith(
        "sgdoctor.toml: the suppression of CFG901 (known) ended on 2026-11-30: it counts again"
    )


def test_one_that_matches_nothing_is_told_of(pack, tmp_path):
    judge = suppressor(pack, tmp_path, of())
    judge.split(results(pack, found=False), STAGING)
    (note,) = judge.notes()
    assert "the suppression of CFG901 (known) matches nothing here: " in note


def test_one_that_another_deployment_needs_is_not_told_of(pack, tmp_path):
    judge = suppressor(pack, tmp_path, of())
    judge.split(results(pack, found=False), STAGING)
    judge.split(results(pack), STAGING)
    assert judge.notes() == []


def test_severities_by_code_and_by_name(pack):
    changed = with_severities(pack, {"CFG901": "error", "queue-full": "info"})
    assert {each.code: each.rule.severity for each in changed} == {"CFG901": "error", "RUN901": "info"}
    assert {each.code: each.rule.severity for each in pack} == {"CFG901": "warning", "RUN901": "error"}


@pytest.mark.parametrize(
    ("word", "hint"), [("RUN902", "did you mean RUN901"), ("run901", "did you mean"), ("x", "see `sgdoctor")]
)
def test_a_rule_that_there_is_not(pack, word, hint):
    must_exist(pack, ["RUN901", "queue-full"])
    with pytest.raises(UsageError, match=f"no rule is named {word}; {hint}"):
        must_exist(pack, [word])
