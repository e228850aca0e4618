"""The advice that `sgdoctor fix --flags` follows unasked: it changes nothing for a server that runs."""

from __future__ import annotations

import re

import pytest

from sgdoctor.engine import rules as packs
from sgdoctor.upstream import catalogue

SAFE = [(rule.rule, one) for rule in packs.load() for one in rule.rule.recommend if one.safe]
NO_EFFECT = re.compile(r"has no effect|does nothing")
# --ep-size is read before an all-to-all backend overwrites it, and 0.5.12 refuses a draft model without it.
NEVER = ("--ep-size",)


def name(given) -> str:
    rule, one = given
    return f"{rule.code} {one.remove or one.set}"


@pytest.mark.parametrize("given", SAFE, ids=name)
def test_safe_is_what_has_no_effect_or_stops_the_start(given):
    rule, one = given

    assert rule.confidence == "high"
    assert (one.remove or one.set) not in NEVER
    stops = rule.severity == "error"
    assert stops or (one.remove is not None and NO_EFFECT.search(rule.title)), rule.title


@pytest.mark.parametrize("given", [each for each in SAFE if each[1].set], ids=name)
def test_a_value_that_is_set_unasked_is_the_default(given):
    _rule, one = given
    for version in catalogue.releases():
        flag = catalogue.resolve(version).option(one.set)
        assert flag.default == one.value, version
        assert one.value in flag.choices, version


def test_there_are_some():
    assert {"ARG103", "ARG104", "HW201"} <= {rule.code for rule, _ in SAFE}
