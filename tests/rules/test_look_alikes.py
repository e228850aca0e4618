"""Whether every rule is held silent by a deployment that looks like one of its findings.

A look-alike is a case that expects `pass` or `not_applicable` and differs from a failing case of the rule in
at most two of the facts that the rule reads (a pattern that is found in the log is one, the release another).
It must come through the collectors as well: a launch line, a listing or a log as an operator has it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from sgdoctor import examine, vocabulary
from sgdoctor.engine import cases, rule_file, rules
from sgdoctor.engine.evaluate import RELEASE, evaluate
from sgdoctor.engine.model import TestCase
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.facts import Facts

MOST = 2
SILENT = ("pass", "not_applicable")

# A case gives one moment: only facts say what a server does while it is watched, and what a fleet is like.
WATCHED = ("window.", "server.", "fleet.")

# The log of the same server after it was started again, healthy.
STARTED_AGAIN = """
[2027-01-01 09:00:00 TP0] Decode batch, #running-req: 1, #token: 100, token usage: 0.00, #queue-req: 0
[2027-01-01 10:00:00] server_args=ServerArgs(model_path='/models/m', tp_size=4, host='127.0.0.1', port=30000)
[2027-01-01 10:00:20 TP0] Load weight begin. avail mem=78.00 GB
[2027-01-01 10:02:30] The server is fired up and ready to roll!
"""


@cache
def pack() -> tuple[CompiledRule, ...]:
    names = vocabulary.load()
    return tuple(
        rules.compile_rule(rule_file.read(path), names) for path in rules.find(vocabulary.rules_root())
    )


def reads(rule: CompiledRule, facts: Facts) -> dict[str, Any]:
    """Return what the rule sees of a case: unknown facts are left out."""
    names = rule.names if rule.releases is None else (*rule.names, RELEASE)
    seen: dict[str, Any] = {name: facts.value(name) for name in names if facts.known(name)}
    return seen | {"the pattern is found": rule.code in facts.matches}


def apart(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Return in how many facts two cases differ."""
    return sum(one.get(name, ...) != other.get(name, ...) for name in one.keys() | other.keys())


def nearest(rule: CompiledRule, silent: list[TestCase]) -> int | None:
    """Return in how many facts the nearest of these cases differs from a failing one."""
    failing = [case for case in rule.rule.tests if case.expect == "fail"]
    seen = [[reads(rule, cases.case_facts(rule, case)) for case in group] for group in (failing, silent)]
    return min((apart(fails, holds) for fails in seen[0] for holds in seen[1]), default=None)


def test_every_rule_is_silent_close_to_a_finding() -> None:
    far = {}
    for rule in pack():
        distance = nearest(rule, [case for case in rule.rule.tests if case.expect in SILENT])
        if distance is None or distance > MOST:
            far[rule.code] = distance
    assert far == {}


def test_every_rule_is_silent_on_something_that_operators_have() -> None:
    lacking = [
        rule.code
        for rule in pack()
        if not any(case.input is not None and case.expect in SILENT for case in rule.rule.tests)
        and not any(name.startswith(WATCHED) for name in rule.names)
    ]
    assert lacking == []


def logs_of_findings() -> list[Any]:
    return [
        pytest.param(rule, case, id=f"{rule.code}-{case.name}")
        for rule in pack()
        for case in rule.rule.tests
        if rule.rule.match and case.expect == "fail" and case.input is not None and "log" in case.input
    ]


@pytest.mark.parametrize(("rule", "case"), logs_of_findings())
def test_what_an_earlier_start_printed_is_past(rule: CompiledRule, case: TestCase) -> None:
    """Logs are appended to: a repaired server's begins with the line that is not true any more."""
    assert case.input is not None
    healthy = TestCase(
        "started again", "pass", input={**case.input, "log": case.input["log"] + STARTED_AGAIN}
    )
    assert cases.run_case(rule, healthy).value != "fail"


def test_what_a_client_asks_about_a_log_is_no_finding() -> None:
    """`--log-requests` prints prompts, and people paste logs into them."""
    every = rules.load()
    pasted = [line for param in logs_of_findings() for line in param.values[1].input["log"].splitlines()]
    for form in (
        "Receive: obj=GenerateReqInput(text={!r})",
        "Finish: obj=GenerateReqInput(text={!r}), out=''",
    ):
        log = f"{STARTED_AGAIN}[2027-01-01 10:03:00] {form.format(chr(10).join(pasted))}\n"
        facts = examine.facts_from_case({"log": log}, every.patterns())
        assert [result.code for result in evaluate(every, facts) if result.finding] == []
        assert (facts.value("log.starts"), facts.value("log.ready")) == (1, True)
