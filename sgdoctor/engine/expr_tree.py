"""The nodes of a checked condition, and their values over known and unknown facts.

A node's value is a Python value, or UNKNOWN. With it comes the set of facts that it rests on; of UNKNOWN, the
facts that are lacking. So `a and b` that is false because `a` is false rests on `a` alone, and one that is
undecided because `b` is unknown lacks `b` alone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from sgdoctor.facts import Facts, Known

if TYPE_CHECKING:
    from packaging.version import Version


class Unknown:
    """The third truth value; neither true nor false, so asking for its truth is an error."""

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
NO_FACTS: Final[frozenset[str]] = frozenset()


class Value(NamedTuple):
    """A value and the facts that it rests on, or UNKNOWN and the facts that are lacking."""

    value: Any
    facts: frozenset[str] = NO_FACTS


class Scope(NamedTuple):
    """Where names are looked up: the facts, and the variables of `any` and `all` with what they rest on."""

    facts: Facts
    variables: Mapping[str, Value] = {}


class Node(Protocol):
    """One part of a condition."""

    def evaluate(self, scope: Scope) -> Value:
        """Return the value of this part."""


@functools.lru_cache(maxsize=1024)
def parse_version(text: str) -> Version | None:
    """Return the PEP 440 version that ``text`` is, or None when it is not one."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return None


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Return the compiled RE2 ``pattern``; raises ValueError with RE2's own words when it is not one."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0] if error.args else error
        raise ValueError(text.decode() if isinstance(text, bytes) else str(text)) from None


def _as_version(value: Any, facts: frozenset[str]) -> Value:
    version = parse_version(value)
    return Value(UNKNOWN if version is None else version, facts)


def _lacking(*values: Value) -> Value | None:
    """Return the UNKNOWN that comes of unknown operands, or None when all are known."""
    unknown = [value.facts for value in values if value.value is UNKNOWN]
    return Value(UNKNOWN, NO_FACTS.union(*unknown)) if unknown else None


class Constant(msgspec.Struct, frozen=True):
    """A literal: a number, string, None, a version, or a list of those."""

    value: Any

    def evaluate(self, scope: Scope) -> Value:  # noqa: ARG002 (the form of all nodes)
        """Return the literal, which rests on nothing."""
        return Value(self.value)


class FactRef(msgspec.Struct, frozen=True):
    """A fact by its name. One of type version that is not a PEP 440 version counts as unknown."""

    name: str
    version: bool = False

    def evaluate(self, scope: Scope) -> Value:
        """Look the fact up."""
        fact = scope.facts.get(self.name)
        names = frozenset((self.name,))
        if not isinstance(fact, Known):
            return Value(UNKNOWN, names)
        if self.version and fact.value is not None:
            return _as_version(fact.value, names)
        return Value(fact.value, names)


class FieldRef(msgspec.Struct, frozen=True):
    """The variable of `any` or `all` (field: None) or a field of it.

    A field that a record lacks is unknown, and so is a null one that cannot be null.
    """

    variable: str
    field: str | None = None
    version: bool = False
    nullable: bool = False

    def evaluate(self, scope: Scope) -> Value:
        """Look the field up."""
        element = scope.variables[self.variable]
        if self.field is None:
            return element
        record = element.value if isinstance(element.value, dict) else {}
        value = record.get(self.field, UNKNOWN)
        if value is None and not self.nullable:
            value = UNKNOWN
        if self.version and value is not None and value is not UNKNOWN:
            return _as_version(value, element.facts)
        return Value(value, element.facts)


class Not(msgspec.Struct, frozen=True):
    """`not x`."""

    operand: Node

    def evaluate(self, scope: Scope) -> Value:
        """Negate; unknown stays unknown."""
        value, facts = self.operand.evaluate(scope)
        return Value(value if value is UNKNOWN else not value, facts)


class Junction(msgspec.Struct, frozen=True):
    """`a and b ...` (decisive: False) or `a or b ...` (decisive: True); also the links of `a < b <= c`."""

    operands: tuple[Node, ...]
    decisive: bool

    def evaluate(self, scope: Scope) -> Value:
        """Return the decisive value of the first operand that has it, else unknown if any is."""
        return _join(((operand, scope) for operand in self.operands), decisive=self.decisive)


class Binary(msgspec.Struct, frozen=True):
    """A comparison or an arithmetic operation of two values that its types allow."""

    symbol: str
    left: Node
    right: Node

    def evaluate(self, scope: Scope) -> Value:
        """Apply Python's own operator when both sides are known."""
        left, right = self.left.evaluate(scope), self.right.evaluate(scope)
        return _lacking(left, right) or Value(
            OPERATORS[self.symbol](left.value, right.value), left.facts | right.facts
        )


class Negative(msgspec.Struct, frozen=True):
    """`-x`."""

    operand: Node

    def evaluate(self, scope: Scope) -> Value:
        """Negate a number."""
        value, facts = self.operand.evaluate(scope)
        return Value(value if value is UNKNOWN else -value, facts)


class Length(msgspec.Struct, frozen=True):
    """`len(list)`."""

    operand: Node

    def evaluate(self, scope: Scope) -> Value:
        """Count the elements."""
        value, facts = self.operand.evaluate(scope)
        return Value(value if value is UNKNOWN else len(value), facts)


class Matches(msgspec.Struct, frozen=True):
    """`matches(text, "pattern")`: the RE2 pattern occurs somewhere in the text."""

    operand: Node
    pattern: str

    def evaluate(self, scope: Scope) -> Value:
        """Search the text."""
        value, facts = self.operand.evaluate(scope)
        found = value if value is UNKNOWN else compile_pattern(self.pattern).search(value) is not None
        return Value(found, facts)


class Quantified(msgspec.Struct, frozen=True):
    """`any(condition for x in list)` (decisive: True) or `all(...)` (decisive: False)."""

    variable: str
    elements: Node
    condition: Node
    decisive: bool

    def evaluate(self, scope: Scope) -> Value:
        """Hold the condition against the elements in order, up to one that decides."""
        elements, facts = self.elements.evaluate(scope)
        if elements is UNKNOWN:
            return Value(UNKNOWN, facts)
        parts = (
            (self.condition, Scope(scope.facts, {**scope.variables, self.variable: Value(element, facts)}))
            for element in elements
        )
        value, rests = _join(parts, decisive=self.decisive)
        return Value(value, rests if value is UNKNOWN else rests | facts)


def _join(parts: Iterable[tuple[Node, Scope]], *, decisive: bool) -> Value:
    """Return the three-valued `or` (decisive: True) or `and` (decisive: False) of the parts.

    Behind an unknown part Python might have stopped, so what cannot be computed there (a division by zero) is
    unknown too.
    """
    rests, lacking, unknown = NO_FACTS, NO_FACTS, False
    for node, scope in parts:
        try:
            value, facts = node.evaluate(scope)
        except ArithmeticError:
            if not unknown:
                raise
            continue
        if value is UNKNOWN:
            unknown, lacking = True, lacking | facts
        elif value is decisive:
            return Value(decisive, facts)
        else:
            rests |= facts
    return Value(UNKNOWN, lacking) if unknown else Value(not decisive, rests)


OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
