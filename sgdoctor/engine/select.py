"""Which rules take part: `--select` and `--ignore` with codes, beginnings of codes, and names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sgdoctor.engine.expr_types import nearest
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
            words = [word for rule in every for word in (rule.code, rule.rule.name)]
            hint = nearest(wanted, words) or nearest(wanted.upper(), words) or "; see `sgdoctor rules list`"
            raise UsageError(f"no rule is named {wanted}{hint}")
    return [
        rule
        for rule in every
        if (not select or any(_named(rule, one) for one in select))
        and not any(_named(rule, one) for one in ignore)
    ]


def _named(rule: CompiledRule, wanted: str) -> bool:
    return bool(wanted) and (rule.code.startswith(wanted) or rule.rule.name == wanted)
