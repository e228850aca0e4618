"""Every test case of every rule that comes with sgdoctor."""

from __future__ import annotations

import pytest

from sgdoctor import vocabulary
from sgdoctor.engine import cases, rule_file, rules
from sgdoctor.engine.rules import CompiledRule, RulePackError


def every_case():
    names = vocabulary.load()
    for path in rules.find(vocabulary.rules_root()):
        try:
            rule = rules.compile_rule(rule_file.read(path), names)
        except RulePackError as error:
            yield pytest.param(error, None, id=path.stem)
            continue
        for case in rule.rule.tests:
            yield pytest.param(rule, case, id=f"{rule.code}-{case.name}")


@pytest.mark.parametrize(("rule", "case"), list(every_case()))
def test_case(rule, case):
    if not isinstance(rule, CompiledRule):
        raise rule
    verdict = cases.verdict(rule, case)
    assert verdict.ok, str(verdict)
