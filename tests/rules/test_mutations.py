"""Whether a rule's own cases notice when the rule is made wrong.

Every rule is changed in small ways: a bound of its releases is dropped, a condition is inverted, one part of
an `and` or an `or` is left out, the log's pattern is sought where it was not found. At least one of its cases
must then come to something else. The changes that no case notices are listed by code.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from sgdoctor import vocabulary
from sgdoctor.engine import cases, rule_file, rules
from sgdoctor.engine.evaluate import evaluate
from sgdoctor.engine.model import TestCase
from sgdoctor.engine.rules import CompiledRule, RulePackError
from sgdoctor.facts import Facts, Match

CAUGHT = 0.95  # of the rules: every bound and every condition of theirs
PARTS_CAUGHT = 0.8  # of the single parts; a guard that another part implies makes no difference

Case = tuple[TestCase, Facts]


def bounds(rule: CompiledRule) -> Iterator[tuple[str, dict[str, str | None]]]:
    parts = rule.rule.releases.split(",") if rule.rule.releases else []
    for part in parts:
        left = [other for other in parts if other != part]
        yield f"releases without {part}", {"releases": ",".join(left) or None}


def inversions(rule: CompiledRule) -> Iterator[tuple[str, dict[str, str | None]]]:
    for key in ("applies", "when"):
        text = getattr(rule.rule, key)
        if text is not None:
            yield f"not ({key})", {key: f"not ({text.strip()})"}


def parts_left_out(rule: CompiledRule) -> Iterator[tuple[str, dict[str, str | None]]]:
    for key in ("applies", "when"):
        text = getattr(rule.rule, key)
        if text is None:
            continue
        for node in ast.walk(tree := ast.parse(f"({text.strip()})", mode="eval")):
            for index in range(len(node.values)) if isinstance(node, ast.BoolOp) else ():
                part = node.values.pop(index)
                yield f"{key} without {ast.unparse(part)}", {key: ast.unparse(tree)}
                node.values.insert(index, part)


def noticed(rule: CompiledRule, own: list[Case], change: dict[str, str | None]) -> bool:
    """Whether one of the cases fails, or the changed rule is refused when it is loaded."""
    changed = msgspec.structs.replace(rule.rule, **change)
    file = msgspec.structs.replace(rule.file, rule=changed)
    try:
        mutant = rules.compile_rule(file, names())
    except RulePackError:
        return True
    return any(evaluate([mutant], facts)[0].outcome.value != case.expect for case, facts in own)


def noticed_without_pattern(rule: CompiledRule, own: list[Case]) -> bool:
    """Whether one of the cases fails when the pattern is found where it is not, and the other way round."""
    for case, facts in own:
        swapped = copy.copy(facts)
        swapped.matches = {} if rule.code in facts.matches else {rule.code: Match(1, "log:1", "", {})}
        if evaluate([rule], swapped)[0].outcome.value != case.expect:
            return True
    return False


@cache
def names() -> vocabulary.Vocabulary:
    return vocabulary.load()


@cache
def pack() -> tuple[tuple[CompiledRule, list[Case]], ...]:
    every = [
        rules.compile_rule(rule_file.read(path), names()) for path in rules.find(vocabulary.rules_root())
    ]
    return tuple((rule, [(case, cases.case_facts(rule, case)) for case in rule.rule.tests]) for rule in every)


@pytest.mark.parametrize("changes", [bounds, inversions], ids=lambda one: one.__name__)
def test_a_changed_rule_is_noticed_by_its_cases(changes):
    missed = {
        rule.code: unnoticed
        for rule, own in pack()
        if (unnoticed := [what for what, change in changes(rule) if not noticed(rule, own, change)])
    }
    assert len(missed) <= (1 - CAUGHT) * len(pack()), "\n".join(
        f"{code}: {'; '.join(what)}" for code, what in missed.items()
    )


def test_a_part_that_is_left_out_is_noticed_by_the_cases():
    made = [
        (rule.code, what, noticed(rule, own, change))
        for rule, own in pack()
        for what, change in parts_left_out(rule)
    ]
    missed = [f"{code}: {what}" for code, what, caught in made if not caught]
    assert len(missed) <= (1 - PARTS_CAUGHT) * len(made), "\n".join(missed)


def test_a_pattern_that_matches_elsewhere_is_noticed():
    with_pattern = [(rule, own) for rule, own in pack() if rule.rule.match is not None]
    missed = [rule.code for rule, own in with_pattern if not noticed_without_pattern(rule, own)]
    assert len(missed) <= (1 - CAUGHT) * len(with_pattern), missed


def test_what_is_changed():
    [rule] = [rule for rule, _ in pack() if rule.code == "ARG105"]
    assert [change for _, change in inversions(rule)][-1] == {"when": f"not ({rule.rule.when})"}
    bounded = next(rule for rule, _ in pack() if re.fullmatch(r">=.*,<.*", rule.rule.releases or ""))
    assert [change["releases"] for _, change in bounds(bounded)] == list(
        reversed((bounded.rule.releases or "").split(","))
    )
