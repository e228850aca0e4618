"""Conditions over facts, with three truth values: true, false, unknown.

The language is a small part of Python's expressions: `and or not`, comparisons (chained too), `in`,
`+ - * / // %`, literals, fact names, `version("0.5.12")`, `matches(fact, "RE2 pattern")`, `len(list)`, and
`any(condition for x in list)` or `all(...)`. Where all facts are known and not null, the value is Python's.

Versions compare by PEP 440: `1.0.post1 > 1.0`, `1.0.dev1 < 1.0`, and a local part counts:
`3.6.0+rocm > 3.6.0`, and not equal to it.
"""

from __future__ import annotations

import msgspec

from sgdoctor.engine.expr_check import check
from sgdoctor.engine.expr_tree import NO_FACTS, UNKNOWN, Node, Scope
from sgdoctor.engine.expr_types import ExprError
from sgdoctor.facts import Facts
from sgdoctor.vocabulary import Vocabulary

__all__ = ["Condition", "ExprError", "Truth", "compile_condition"]


class Truth(msgspec.Struct, frozen=True):
    """The value of a condition; None: unknown.

    ``facts`` are those that the value rests on, ``missing`` the unknown ones for want of which it is unknown.
    """

    value: bool | None
    facts: frozenset[str] = NO_FACTS
    missing: frozenset[str] = NO_FACTS


class Condition(msgspec.Struct, frozen=True):
    """A checked condition, with the facts that it names, in their order, and the patterns of matches()."""

    text: str
    node: Node
    names: tuple[str, ...]
    patterns: tuple[str, ...] = ()

    def evaluate(self, facts: Facts) -> Truth:
        """Hold the condition against ``facts``.

        Raises ArithmeticError for a division by zero, as Python would, and ValueError for a bad pattern.
        """
        value, names = self.node.evaluate(Scope(facts))
        return Truth(None, missing=names) if value is UNKNOWN else Truth(value, names)


def compile_condition(text: str, vocabulary: Vocabulary) -> Condition:
    """Return the condition that ``text`` is; raises ExprError, with the place, when it is none."""
    return Condition(text, *check(text, vocabulary))
