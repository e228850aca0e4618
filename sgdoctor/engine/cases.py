"""A rule's own test cases: facts, or raw input that goes through the real collectors."""

from __future__ import annotations

import msgspec

from sgdoctor.engine.evaluate import evaluate
from sgdoctor.engine.model import Outcome, Result, TestCase
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.facts import Facts, Match


class CaseError(ValueError):
    """A test case that cannot be run as it is written."""


class Verdict(msgspec.Struct, frozen=True):
    """What a rule came to in one of its cases, and whether that is what the case expects."""

    case: TestCase
    result: Result

    @property
    def ok(self) -> bool:
        """Whether the outcome is the expected one."""
        return self.result.outcome.value == self.case.expect

    def __str__(self) -> str:
        told = f"{self.result.code} {self.case.name}: expected {self.case.expect}"
        why = [
            self.result.reason or "",
            f"missing {', '.join(self.result.missing)}" if self.result.missing else "",
        ]
        return f"{told}, got {self.result.outcome.value} ({'; '.join(filter(None, why)) or 'no reason'})"


def run_case(rule: CompiledRule, case: TestCase) -> Outcome:
    """Return the outcome of ``rule`` on ``case``; raises as `verdict` does."""
    return verdict(rule, case).result.outcome


def verdict(rule: CompiledRule, case: TestCase) -> Verdict:
    """Run one case.

    Raises CaseError when the case gives neither facts nor input, FactTypeError when a fact is not of the
    vocabulary or of its type, and what the collectors raise for input that is none.
    """
    return Verdict(case, evaluate([rule], case_facts(rule, case))[0])


def case_facts(rule: CompiledRule, case: TestCase) -> Facts:
    """Return the facts that a case gives; all others are unknown."""
    if case.input is not None:
        if case.facts is not None or case.match is not None:
            raise CaseError(f"{case.name}: a case has `facts` (with `match`), or `input`")
        # Above the engine in the order of layers, and needed by rule authors alone.
        from sgdoctor.examine import facts_from_case

        patterns = {} if rule.rule.match is None else {rule.code: rule.rule.match}
        found: Facts = facts_from_case(case.input, patterns)
        return found
    if case.facts is None and case.match is None:
        raise CaseError(f"{case.name}: a case has `facts` (with `match`), or `input`")
    facts = Facts()
    for name, value in (case.facts or {}).items():
        facts.set(name, value, source="assume", place="test case")
    if rule.rule.match is not None:
        facts.patterns_sought.add(rule.code)
        if case.match is not None:
            facts.matches[rule.code] = Match(1, "test case:1", "test case", case.match)
    return facts
