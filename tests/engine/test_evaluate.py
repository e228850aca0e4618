"""What a rule comes to, and what a finding says."""

from __future__ import annotations

import pytest

from sgdoctor.engine.evaluate import evaluate
from sgdoctor.engine.model import Outcome
from sgdoctor.facts import Facts, Match

MOE = {"sglang.version": "0.5.12", "model.is_moe": True, "moe.runner": "triton", "moe.up.source": "default"}


def result(rule, facts: Facts, **options):
    (found,) = evaluate([rule], facts, **options)
    return found


@pytest.mark.parametrize(
    ("changed", "outcome", "missing"),
    [
        ({}, Outcome.FAIL, ()),
        ({"moe.up.source": "exact"}, Outcome.PASS, ()),
        ({"moe.runner": "marlin", "moe.up.source": None}, Outcome.PASS, ()),
        ({"moe.up.source": None}, Outcome.UNKNOWN, ("moe.up.source",)),
        ({"model.is_moe": False}, Outcome.NOT_APPLICABLE, ()),
        ({"model.is_moe": None}, Outcome.UNKNOWN, ("model.is_moe",)),
        ({"sglang.version": "0.5.13"}, Outcome.NOT_APPLICABLE, ()),
        ({"sglang.version": "0.5.12.post1"}, Outcome.FAIL, ()),
        ({"sglang.version": None}, Outcome.UNKNOWN, ("sglang.version",)),
        ({"sglang.version": "0.0.0.dev1+gabc"}, Outcome.UNKNOWN, ("sglang.version",)),
        # Out of the range nothing else is asked.
        ({"sglang.version": "0.5.13", "model.is_moe": None}, Outcome.NOT_APPLICABLE, ()),
    ],
)
def test_range_then_applies_then_condition(rule, deployment, changed, outcome, missing):
    facts = deployment({name: value for name, value in {**MOE, **changed}.items() if value is not None})
    found = result(rule(), facts)
    assert (found.outcome, found.missing) == (outcome, missing)


def test_a_rule_without_a_range_asks_for_no_release(rule, deployment):
    facts = deployment({name: value for name, value in MOE.items() if name != "sglang.version"})
    assert result(rule(releases=None), facts).outcome is Outcome.FAIL


def test_why_a_rule_does_not_apply_or_is_undecided(rule, deployment):
    assert (
        result(rule(), deployment({"sglang.version": "0.5.13"})).reason == "about >=0.5.9,<0.5.13, not 0.5.13"
    )
    assert result(rule(), deployment({**MOE, "model.is_moe": False})).reason == "not so: model.is_moe"
    assert "which release" in result(rule(), deployment({"sglang.version": "main"})).reason


def test_a_finding_shows_where_its_facts_were_read(rule):
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="packages", place="sglang-0.5.12.dist-info/METADATA")
    facts.set("model.experts", 256, source="model", place="config.json")
    facts.set("model.name", "qwen", source="server_info", place="/server_info")
    facts.derive("model.is_moe", True, ["model.experts"])
    facts.set("moe.runner", "triton", source="log", place="server.log:7", count=4)
    facts.derive("moe.up.source", "default", ["model.experts", "sglang.version"])
    facts.derive("moe.up.expected_file", "E=256,N=256.json", ["model.experts"])
    finding = result(rule(), facts).finding
    assert finding is not None
    assert finding.message == "qwen looks for E=256,N=256.json on some GPUs."
    assert [(one.fact, one.value, one.source, one.place, one.count) for one in finding.evidence] == [
        ("sglang.version", "0.5.12", "packages", "sglang-0.5.12.dist-info/METADATA", 1),
        ("model.experts", 256, "model", "config.json", 1),
        ("moe.runner", "triton", "log", "server.log:7", 4),
    ]
    assert (finding.case, finding.fix, finding.confidence) == (["M02"], "tune-moe", "high")


def test_a_derived_fact_without_roots_is_its_own_evidence(rule, deployment):
    facts = deployment({name: value for name, value in MOE.items() if name != "moe.runner"})
    facts.derive("moe.runner", "triton", ["gpu.name"])
    last = result(rule(), facts).finding.evidence[-2]
    assert (last.fact, last.source, last.place) == ("moe.runner", "derived", "gpu.name")


def test_a_build_between_releases_lowers_the_confidence(rule, deployment):
    facts = deployment({**MOE, "sglang.version": "0.5.12.dev7"})
    assert result(rule(), facts).finding.confidence == "medium"
    assert result(rule(confidence="medium"), facts).finding.confidence == "low"
    assert result(rule(confidence="low"), facts).finding.confidence == "low"


def test_the_fingerprint_is_of_code_subject_and_fact_names_not_of_values(rule, deployment):
    finding = result(rule(), deployment(MOE)).finding
    again = result(rule(message="Something else."), deployment({**MOE, "sglang.version": "0.5.10"})).finding
    assert finding.fingerprint == again.fingerprint
    assert len(finding.fingerprint) == 16
    other = result(rule(), deployment(MOE), subject="another model").finding
    assert other.fingerprint != finding.fingerprint
    named = result(rule(), deployment({**MOE, "model.name": "another model"})).finding
    assert named.fingerprint == other.fingerprint


def test_the_fingerprint_holds_what_a_finding_is_about(rule, deployment):
    """The flags, packages or files that a fact names, whatever else is told of them and in whatever order."""
    unknown = rule(applies=None, when="launch.unrecognized != []")
    deprecated = rule(applies=None, when="launch.deprecated != []")
    invalid = rule(applies=None, when="launch.invalid is not None")

    def of(about, **facts):
        named = {name.replace("_", ".", 1): value for name, value in facts.items()}
        return result(about, deployment({"sglang.version": "0.5.12", **named})).finding.fingerprint

    one = of(unknown, launch_unrecognized=["--one", "--two"])
    assert one == of(unknown, launch_unrecognized=["--two", "--one", "--one"])
    assert one != of(unknown, launch_unrecognized=["--one"])
    old = of(deprecated, launch_deprecated=[{"flag": "--a", "effect": "will go"}])
    assert old == of(deprecated, launch_deprecated=[{"flag": "--a", "effect": "will be gone"}])
    assert old != of(deprecated, launch_deprecated=[{"flag": "--b", "effect": "will go"}])
    wrong = of(invalid, launch_invalid="argument --a: invalid choice: 'x' (choose from 'y', 'z')")
    assert wrong == of(invalid, launch_invalid="argument --a: invalid choice: 'x' (choose from y)")
    assert wrong != of(invalid, launch_invalid="argument --b: invalid choice: 'x' (choose from y)")


LOG = {"log.records": 90, "log.has_start": True}


def test_a_pattern_that_was_found_is_a_finding_with_its_groups(rule, deployment):
    facts = deployment(LOG)
    text = "queue waiting is full (7)"
    facts.matches["RUN901"] = Match(
        4, "server.log:34", text, {"queue": "waiting", "size": "7"}, ("TP0", "TP1")
    )
    finding = result(rule(match=r"'queue (?P<queue>\w+) is full \((?P<size>\d+)\)'"), facts).finding
    assert finding.message == "The queue waiting holds 7."
    (evidence,) = finding.evidence
    assert (evidence.fact, evidence.value, evidence.place, evidence.count) == (
        "log.match",
        text,
        "server.log:34",
        4,
    )


def test_a_pattern_that_was_not_found_passes_only_in_a_log_from_the_start(rule, deployment):
    pattern = rule(match="full")
    whole = deployment(LOG)
    whole.patterns_sought.add("RUN901")
    assert result(pattern, whole).outcome is Outcome.PASS

    tail = deployment({**LOG, "log.has_start": False})
    tail.patterns_sought.add("RUN901")
    undecided = result(pattern, tail)
    assert (undecided.outcome, undecided.reason) == (
        Outcome.UNKNOWN,
        "the log does not begin at the server's start",
    )
    assert result(pattern, deployment({})).missing == ("log.records",)
    # A snapshot may have been taken before the rule was written.
    assert "not searched" in result(pattern, deployment(LOG)).reason


@pytest.mark.parametrize(
    ("found", "died", "outcome"),
    [
        (True, True, Outcome.FAIL),
        (True, False, Outcome.PASS),
        (True, None, Outcome.UNKNOWN),
        (None, False, Outcome.PASS),
        (None, True, Outcome.UNKNOWN),
        (False, None, Outcome.PASS),
    ],
)
def test_pattern_and_condition_must_both_hold(rule, deployment, found, died, outcome):
    facts = deployment({"log.records": 9, "log.has_start": found is False})
    facts.patterns_sought.add("RUN901")
    if found:
        facts.matches["RUN901"] = Match(1, "server.log:1", "full")
    if died is not None:
        facts.set("log.died", died, source="assume", place="test")
    assert result(rule(match="full", when="log.died", message='"x"'), facts).outcome is outcome


def test_a_rule_that_breaks_is_told_apart_and_takes_no_other_with_it(rule, deployment):
    broken = rule(when="8 / gpu.count > 1", releases=None, applies=None)
    sound = rule(releases=None)
    results = evaluate([broken, sound], deployment({**MOE, "gpu.count": 0}))
    assert [one.outcome for one in results] == [Outcome.ERROR, Outcome.FAIL]
    assert results[0].reason == "ZeroDivisionError: division by zero"
