"""Which rules take part: `--select` and `--ignore` with codes, beginnings of codes, and names.

And what the operator's settings make of them: other severities. What becomes of their findings is
:mod:`sgdoctor.engine.suppress`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sgdoctor.engine.expr_types import nearest
from sgdoctor.engine.model import Severity
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.errors import UsageError


def select(
    rules: Iterable[CompiledRule], select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> list[CompiledRule]:
    """Return the rules that one of ``select`` names (none given: all) and none of ``ignore``.

    CFG names the family, CFG1 its first hundred, CFG101 one rule, moe-config-missing the same by name. Raises
    UsageError for one that names no rule.
    """
    every = list(rules)
    for wanted in (*select, *ignore):
        if not any(_named(rule, wanted) for rule in every):
            raise _nothing_named(every, wanted)
    return [
        rule
        for rule in every
        if (not select or any(_named(rule, one) for one in select))
        and not any(_named(rule, one) for one in ignore)
    ]


def _named(rule: CompiledRule, wanted: str) -> bool:
    return bool(wanted) and (rule.code.startswith(wanted) or rule.rule.name == wanted)


def with_severities(rules: Iterable[CompiledRule], severities: Mapping[str, Severity]) -> list[CompiledRule]:
    """Return the rules, those that ``severities`` names by code or name with the severity given there."""
    return [
        rule if severity is None else _with_severity(rule, severity)
        for rule in rules
        for severity in [severities.get(rule.code) or severities.get(rule.rule.name)]
    ]


def must_exist(rules: Iterable[CompiledRule], wanted: Iterable[str]) -> None:
    """Raise UsageError for the first of ``wanted`` that is neither the code nor the name of one rule."""
    every = list(rules)
    words = {word for rule in every for word in (rule.code, rule.rule.name)}
    for word in wanted:
        if word not in words:
            raise _nothing_named(every, word)


def _with_severity(rule: CompiledRule, severity: Severity) -> CompiledRule:
    return msgspec.structs.replace(rule, rule=msgspec.structs.replace(rule.rule, severity=severity))


def _nothing_named(rules: Iterable[CompiledRule], wanted: str) -> UsageError:
    words = [word for rule in rules for word in (rule.code, rule.rule.name)]
    hint = nearest(wanted, words) or nearest(wanted.upper(), words) or "; see `sgdoctor rules list`"
    return UsageError(f"no rule is named {wanted}{hint}")
