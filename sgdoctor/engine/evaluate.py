"""Rules over the facts of one deployment: a result for each rule, a finding for each that fired."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from sgdoctor import vocabulary
from sgdoctor.engine import releases
from sgdoctor.engine.expr import Truth
from sgdoctor.engine.expr_tree import NO_FACTS
from sgdoctor.engine.messages import Filler
from sgdoctor.engine.model import Confidence, Evidence, Finding, Outcome, Result
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.facts import Facts, Known, Match

RELEASE = "sglang.version"
LOG = "log.records"
LOG_START = "log.has_start"

_LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}


class _Decision(NamedTuple):
    """The truth of a part of a rule, and why it is not known."""

    truth: Truth
    reason: str | None = None


def evaluate(rules: Iterable[CompiledRule], facts: Facts, *, subject: str | None = None) -> list[Result]:
    """Return the result of every rule, in the order of ``rules``.

    ``subject`` is what the findings are about, a part of their fingerprints; by default the model's name.
    """
    about = str(facts.value("model.name", "")) if subject is None else subject
    return [_result(rule, facts, about) for rule in rules]


def _result(rule: CompiledRule, facts: Facts, subject: str) -> Result:
    try:
        return _evaluate(rule, facts, subject)
    except Exception as error:  # noqa: BLE001 (one broken rule must not take the others' results away)
        return Result(rule.code, Outcome.ERROR, reason=f"{type(error).__name__}: {error}")


def _evaluate(rule: CompiledRule, facts: Facts, subject: str) -> Result:
    read: set[str] = set()
    scope = _in_range(rule, facts)
    if scope.truth.value is None:
        return _unknown(rule, scope)
    if scope.truth.value is False:
        return Result(rule.code, Outcome.NOT_APPLICABLE, reason=scope.reason)
    read |= scope.truth.facts
    if rule.applies is not None:
        truth = rule.applies.evaluate(facts)
        if truth.value is None:
            return _unknown(rule, _Decision(truth))
        if truth.value is False:
            return Result(rule.code, Outcome.NOT_APPLICABLE, reason=f"not so: {rule.applies.text.strip()}")
        read |= truth.facts
    problem = _both(_matched(rule, facts), _holds(rule, facts))
    if problem.truth.value is None:
        return _unknown(rule, problem)
    if problem.truth.value is False:
        return Result(rule.code, Outcome.PASS)
    read |= problem.truth.facts
    about = (text for name in sorted(read) for text in facts.vocabulary.subjects(name, facts.value(name)))
    return Result(rule.code, Outcome.FAIL, _finding(rule, facts, read, subject), about=tuple(about))


def _unknown(rule: CompiledRule, decision: _Decision) -> Result:
    return Result(
        rule.code, Outcome.UNKNOWN, missing=tuple(sorted(decision.truth.missing)), reason=decision.reason
    )


def _in_range(rule: CompiledRule, facts: Facts) -> _Decision:
    if rule.releases is None:
        return _Decision(Truth(True))
    names = frozenset((RELEASE,))
    release = facts.get(RELEASE)
    if not isinstance(release, Known):
        return _Decision(Truth(None, missing=names))
    inside = rule.releases.contains(release.value)
    if inside is None:
        return _Decision(Truth(None, missing=names), f"{release.value} does not say which release it is")
    return _Decision(
        Truth(inside, names), None if inside else f"about {rule.rule.releases}, not {release.value}"
    )


def _matched(rule: CompiledRule, facts: Facts) -> _Decision:
    """Whether the log has the rule's pattern; absence counts only in a log that begins at the start."""
    if rule.rule.match is None or rule.code in facts.matches:
        return _Decision(Truth(True))
    log = frozenset((LOG,))
    if not facts.known(LOG):
        return _Decision(Truth(None, missing=log))
    if rule.code not in facts.patterns_sought:
        return _Decision(Truth(None, missing=log), "the log was not searched for this rule's pattern")
    if facts.value(LOG_START) is not True:
        missing = frozenset((LOG_START,))
        return _Decision(Truth(None, missing=missing), "the log does not begin at the server's start")
    return _Decision(Truth(False, frozenset((LOG, LOG_START))))


def _holds(rule: CompiledRule, facts: Facts) -> _Decision:
    return _Decision(Truth(True) if rule.when is None else rule.when.evaluate(facts))


def _both(one: _Decision, two: _Decision) -> _Decision:
    """Return the three-valued `and`."""
    for decision in (one, two):
        if decision.truth.value is False:
            return decision
    if one.truth.value and two.truth.value:
        return _Decision(Truth(True, one.truth.facts | two.truth.facts))
    undecided = [decision for decision in (one, two) if decision.truth.value is None]
    missing = NO_FACTS.union(*(decision.truth.missing for decision in undecided))
    return _Decision(
        Truth(None, missing=missing), next((one.reason for one in undecided if one.reason), None)
    )


def _finding(rule: CompiledRule, facts: Facts, read: set[str], subject: str) -> Finding:
    told = rule.rule
    match = facts.matches.get(rule.code) if told.match is not None else None
    filler = Filler(facts, match)
    release = facts.value(RELEASE)
    unsure = isinstance(release, str) and releases.between_releases(release)
    order = [RELEASE, *rule.names]
    names = sorted(read, key=order.index)
    return Finding(
        code=told.code,
        name=told.name,
        title=told.title,
        case=[told.case] if isinstance(told.case, str) else list(told.case),
        severity=told.severity,
        impact=told.impact,
        confidence=_LOWER[told.confidence] if unsure else told.confidence,
        message=filler.fill(told.message),
        evidence=_evidence(facts, names, match),
        recommendation=[filler.recommendation(one) for one in told.recommend],
        why=told.why,
        sources=list(told.sources),
        fingerprint=fingerprint(told.code, subject, _named(facts, names)),
        fix=told.fix,
    )


def _evidence(facts: Facts, names: list[str], match: Match | None) -> list[Evidence]:
    """Return what was read of the facts, each traced to where it was read, and the place in the log."""
    roots: dict[str, Known] = {}
    for name in names:
        roots.update(facts.roots(name) or _itself(facts, name))
    found = [_one_evidence(name, fact) for name, fact in roots.items()]
    if match is not None:
        found.append(Evidence("log.match", match.text, "log", match.place, match.count))
    return found


def _itself(facts: Facts, name: str) -> dict[str, Known]:
    """Return a derived fact whose roots are not known, so that no finding lacks its evidence."""
    fact = facts.get(name)
    return {name: fact} if isinstance(fact, Known) else {}


def _one_evidence(name: str, fact: Known) -> Evidence:
    source: Any = fact.provenance[0] if fact.provenance else None
    if source is None:
        return Evidence(name, fact.value, "derived", ", ".join(fact.inputs), fact.count)
    return Evidence(name, fact.value, source.source, source.place, fact.count)


def _named(facts: Facts, names: Iterable[str]) -> list[str]:
    """Return the names of facts, each with what the finding is about by its value, where it tells that."""
    return [" ".join([name, *facts.vocabulary.subjects(name, facts.value(name))]) for name in names]


def subjects(finding: Finding) -> list[str]:
    """Return what a finding is about, where its evidence names that; what is derived is no evidence."""
    known = vocabulary.load()
    return [text for each in finding.evidence for text in known.subjects(each.fact, each.value)]


def fingerprint(code: str, subject: str, names: Iterable[str]) -> str:
    """Return what identifies a finding from run to run: no measured values, no texts of rules, no places."""
    told = "\n".join([code, subject, *sorted(names)])
    return hashlib.sha256(told.encode()).hexdigest()[:16]
