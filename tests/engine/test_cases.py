"""A rule's own test cases."""

from __future__ import annotations

import pytest

from sgdoctor.engine import cases, rules
from sgdoctor.engine.cases import CaseError
from sgdoctor.engine.model import Outcome, TestCase
from sgdoctor.vocabulary import FactTypeError


@pytest.fixture
def pack(pack_folder):
    return rules.load(root=pack_folder, tests=True)


def test_every_case_of_facts_comes_to_what_it_expects(pack):
    for rule in pack:
        for case in rule.rule.tests:
            if case.input is None:
                assert cases.verdict(rule, case).ok, case.name


def test_a_case_that_comes_to_something_else_says_what_was_missing(pack):
    verdict = cases.verdict(pack.get("CFG901"), TestCase("x", "fail", facts={"sglang.version": "0.5.12"}))
    assert not verdict.ok
    assert str(verdict) == "CFG901 x: expected fail, got unknown (missing model.is_moe)"


def test_a_match_is_as_if_found_in_the_log(pack):
    assert cases.run_case(pack.get("RUN901"), TestCase("x", "fail", match={})) is Outcome.FAIL


@pytest.mark.parametrize("case", [TestCase("x", "fail"), TestCase("x", "fail", facts={}, input={"log": ""})])
def test_a_case_is_facts_or_input(pack, case):
    with pytest.raises(CaseError, match="x: a case has `facts`"):
        cases.run_case(pack.get("RUN901"), case)


def test_a_fact_of_the_wrong_type_is_no_case(pack):
    with pytest.raises(FactTypeError, match=r"sglang\.version is of type version, not float"):
        cases.run_case(pack.get("CFG901"), TestCase("x", "fail", facts={"sglang.version": 0.5}))
