"""Whether findings are told from their cause: `explains`, over every log that a rule has as a case.

The whole pack is held against each of those logs, with what else the case gives.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from sgdoctor import examine
from sgdoctor.engine import recommend, rules
from sgdoctor.engine.evaluate import evaluate
from sgdoctor.engine.model import Finding

DIED = "RUN101"


@cache
def pack() -> rules.Pack:
    return rules.load(tests=True)


def logs() -> list[Any]:
    return [
        pytest.param(case.input, id=f"{rule.code}-{case.name}")
        for rule in pack()
        for case in rule.rule.tests
        if case.input is not None and "log" in case.input and case.expect == "fail"
    ]


def findings(given: dict[str, Any]) -> list[Finding]:
    facts = examine.facts_from_case(given, pack().patterns())
    return [result.finding for result in evaluate(pack(), facts) if result.finding]


def may_end_it(finding: Finding) -> bool:
    """Whether this finding, by itself, says that the server does not start or ends."""
    return finding.severity == "error" and finding.impact == "stability" and finding.confidence != "low"


@pytest.mark.parametrize("given", logs())
def test_a_death_is_not_reported_beside_its_cause(given):
    found = findings(given)
    causes = [one.code for one in found if may_end_it(one) and one.code != DIED]
    if causes and DIED in [one.code for one in found]:
        assert recommend.consequences(found, pack()).get(DIED) in causes, causes


def test_what_explains_is_not_explained_by_it():
    explains = {rule.code: rule.rule.explains for rule in pack()}

    def reached(code: str, way: tuple[str, ...]) -> None:
        assert code not in way, " explains ".join([*way, code])
        for other in explains[code]:
            reached(other, (*way, code))

    for code in explains:
        reached(code, ())


def test_every_relation_is_between_findings_that_can_stand_together():
    """Two rules for releases that have none in common never fire together."""
    for rule in pack():
        for code in rule.rule.explains:
            other = pack().get(code)
            assert other is not None
            releases = [one.releases for one in (rule, other) if one.releases is not None]
            assert any(all(each.contains(name) for each in releases) for name in known_releases()), (
                f"{rule.code} ({rule.rule.releases}) explains {code} ({other.rule.releases})"
            )


def known_releases() -> list[str]:
    from sgdoctor.upstream import catalogue

    return ["0.5.6", *catalogue.releases()]
