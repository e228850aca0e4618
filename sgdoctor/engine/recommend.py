"""Findings together: their order, which are consequences of others, and advice that contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from sgdoctor.engine.model import SEVERITIES, Finding, Impact, Recommendation
from sgdoctor.engine.rules import CompiledRule

IMPACTS: Final[tuple[Impact, ...]] = ("stability", "correctness", "security", "performance")  # worst first

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(.*)")


class Conflict(msgspec.Struct, frozen=True):
    """Two findings that want one knob in different positions."""

    knob: str
    first: str
    first_code: str
    second: str
    second_code: str


def knob(recommendation: Recommendation) -> tuple[str, str] | None:
    """Return what a recommendation turns and to which position; None: nothing that another could turn too."""
    flag = recommendation.set or recommendation.remove
    if flag is not None:
        name = f"--{flag.lstrip('-').replace('_', '-')}"
        value = "" if recommendation.value is None else f" {recommendation.value}"
        return name, "removed" if recommendation.set is None else f"set{value}"
    if recommendation.env is not None:
        unset = recommendation.value is None
        return f"${recommendation.env}", "unset" if unset else f"={recommendation.value}"
    if recommendation.install is not None:
        found = _REQUIREMENT.match(recommendation.install)
        if found:
            return re.sub(r"[-_.]+", "-", found.group(1)).lower(), found.group(2) or "any version"
    return None


def conflicts(findings: Iterable[Finding]) -> list[Conflict]:
    """Return where two findings contradict each other; in a sound rule pack there are none."""
    seen: dict[str, tuple[str, str]] = {}
    found = []
    for finding in findings:
        for recommendation in finding.recommendation:
            turned = knob(recommendation)
            if turned is None:
                continue
            name, position = turned
            first, code = seen.setdefault(name, (position, finding.code))
            if first != position:
                found.append(Conflict(name, first, code, position, finding.code))
    return found


def arrange(findings: Iterable[Finding], parents: Mapping[str, str] | None = None) -> list[Finding]:
    """Return the findings, worst first: by severity, impact and code.

    ``parents`` are the `consequences`: each of them follows the finding that explains it, and both stand
    where the worse of them belongs.
    """
    parents = parents or {}
    groups: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda one: (one.code in parents, _badness(one))):
        groups.setdefault(parents.get(finding.code, finding.code), []).append(finding)
    ordered = sorted(groups.values(), key=lambda group: min(_badness(one) for one in group))
    return [finding for group in ordered for finding in group]


def _badness(finding: Finding) -> tuple[int, int, str]:
    return SEVERITIES.index(finding.severity), IMPACTS.index(finding.impact), finding.code


def consequences(findings: Iterable[Finding], rules: Iterable[CompiledRule]) -> dict[str, str]:
    """Return, for each finding that another one explains, the code of the one that explains it all.

    Of several explanations the first by code counts; a cycle explains nothing, and a suspicion (confidence
    low), which a report leaves out unless asked for it, explains other suspicions alone.
    """
    present = {finding.code: finding.confidence == "low" for finding in findings}
    parents: dict[str, str] = {}
    for rule in sorted(rules, key=lambda one: one.code):
        if rule.code in present:
            for code in rule.rule.explains:
                if code in present and code != rule.code and present[rule.code] <= present[code]:
                    parents.setdefault(code, rule.code)
    return {code: root for code in sorted(parents) if (root := _root(code, parents)) is not None}


def _root(code: str, parents: dict[str, str]) -> str | None:
    seen = {code}
    while code in parents:
        code = parents[code]
        if code in seen:
            return None
        seen.add(code)
    return code
