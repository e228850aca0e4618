"""What is different for a deployment at another release, worst first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sgdoctor.engine.model import SEVERITIES
from sgdoctor.report.model import Change
from sgdoctor.target import configs, flags, pins, rules, settings
from sgdoctor.target.walk import Walk

_FILES = ("config-lost", "config-gained", "config-other")


def changes(walk: Walk) -> list[Change]:
    """Return all changes on the way, worst first; none when the deployment stays where it is."""
    if walk.stays:
        return []
    removed = _to_be_removed(walk)
    found = flags.changes(walk.command, walk.path) if walk.command is not None else []
    found += settings.changes(walk)
    found += pins.changes(walk.start.facts, walk.path)
    files = configs.changes(walk)
    told = rules.TOLD | (
        rules.TOLD_OF_FILES if any(change.kind in _FILES for change in files) else frozenset()
    )
    found += files
    found += rules.changes(walk, told)
    found = [_agreeing(change, removed) for change in found]
    return sorted(found, key=lambda change: (change.minor, SEVERITIES.index(change.severity)))


def _to_be_removed(walk: Walk) -> dict[str, str]:
    """Return the flags that a finding at the other release wants removed, with its code."""
    return {
        recommendation.remove: result.code
        for result in walk.end.results.values()
        if result.finding is not None
        for recommendation in result.finding.recommendation
        if recommendation.remove is not None
    }


def _agreeing(change: Change, removed: Mapping[str, str]) -> Change:
    """Return a change that does not tell to replace what a finding tells to remove."""
    code = removed.get(change.subject)
    if code is None or change.do is None:
        return change
    return msgspec.structs.replace(change, do=f"remove {change.subject}: see {code}")
