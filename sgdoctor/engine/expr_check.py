"""From the text of a condition to a checked tree: names, types and guards against null."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from sgdoctor.engine.expr_tree import (
    NO_FACTS,
    Binary,
    Constant,
    FactRef,
    FieldRef,
    Junction,
    Length,
    Matches,
    Negative,
    Node,
    Not,
    Quantified,
    parse_version,
)
from sgdoctor.engine.expr_types import LISTS, NULL, NUMBERS, ExprError, Type, Typed, comparable, nearest
from sgdoctor.vocabulary import FieldSpec, Vocabulary

MAX_LENGTH = 4000  # characters of one condition; deeper nesting than this allows would exhaust the stack

BOOL = Type("bool")
_EQUALITY = {ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not"}
_ORDER = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_MEMBER = {ast.In: "in", ast.NotIn: "not in"}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_LITERAL_KINDS = {bool: "bool", int: "int", float: "float", str: "str", type(None): NULL}
_OTHER_SPELLINGS = {"true": "True", "false": "False", "null": "None", "none": "None", "nil": "None"}
_FUNCTIONS = 'version("..."), matches(fact, "pattern"), len(list), any(... for x in list), all(...)'


class Checked(NamedTuple):
    """The tree of a condition; the facts it names, in the order of the text; the patterns of matches()."""

    node: Node
    names: tuple[str, ...]
    patterns: tuple[str, ...]


def check(text: str, vocabulary: Vocabulary) -> Checked:
    """Check the condition ``text``. The patterns are not: that takes RE2, which is slow to load.

    Raises ExprError when it is not a condition: bad syntax, an unknown name, types that do not go together,
    or an order or a calculation on what may be null.
    """
    checker = _Checker(text, vocabulary)
    body = checker.parse()
    try:
        found = checker.check(body, NO_FACTS)
    except RecursionError:
        raise ExprError("nested too deep; make it a derived fact", text) from None
    checker.require_bool(body, found)
    return Checked(found.node, tuple(dict.fromkeys(checker.names)), tuple(checker.patterns))


class _Checker:
    """Checks one condition. ``safe`` is, throughout, the names known not to be null at that place."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self.text = text
        self.vocabulary = vocabulary
        self.names: list[str] = []
        self.patterns: list[str] = []
        self.variables: dict[str, tuple[str, Mapping[str, FieldSpec]]] = {}

    def parse(self) -> ast.expr:
        """Return Python's own tree of the text."""
        if len(self.text) > MAX_LENGTH:
            raise ExprError(f"longer than {MAX_LENGTH} characters; make it a derived fact", self.text)
        if not self.text.strip():
            raise ExprError("not an expression: it is empty", self.text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return ast.parse(f"(\n{self.text}\n)", mode="eval").body
        except SyntaxError as error:
            line = max((error.lineno or 2) - 2, 0)
            raise ExprError(
                f"not an expression: {error.msg}", self.text, line, max((error.offset or 1) - 1, 0)
            ) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise ExprError(f"not an expression: {error}", self.text) from None

    def fail(self, node: ast.expr, reason: str) -> NoReturn:
        """Raise the error with the place of ``node``."""
        line = max(node.lineno - 2, 0)
        lines = self.text.splitlines()
        before = lines[line].encode()[: node.col_offset] if line < len(lines) else b""
        raise ExprError(reason, self.text, line, len(before.decode(errors="ignore")))

    def check(self, node: ast.expr, safe: frozenset[str]) -> Typed:
        """Check one part of the condition."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            self.fail(node, f"{type(node).__name__} is not part of the condition language")
        found: Typed = method(node, safe)
        return found

    def require_bool(self, node: ast.expr, found: Typed) -> None:
        """Fail unless the part is true or false."""
        if found.type.kind != "bool":
            self.fail(node, f"this is {found.type}, not true or false; compare it with something")
        if found.type.nullable:
            self.fail(node, f"this may be null; write `{ast.unparse(node)} == True`, or guard it")

    def require_value(self, node: ast.expr, found: Typed, kinds: tuple[str, ...], what: str) -> None:
        """Fail unless the part is of one of ``kinds`` and cannot be null."""
        if found.type.kind not in kinds:
            self.fail(node, f"{what} takes {' or '.join(kinds)}, and this is {found.type}")
        if found.type.nullable:
            source = ast.unparse(node)
            self.fail(node, f"{source} may be null; guard it: `{source} is not None and ...`")

    # --- names and literals ---

    def _constant(self, node: ast.Constant, _safe: frozenset[str]) -> Typed:
        kind = _LITERAL_KINDS.get(type(node.value))
        if kind is None:
            self.fail(node, f"{type(node.value).__name__} literals are not part of the condition language")
        return Typed(Constant(node.value), Type(kind, kind == NULL, kind == NULL), literal=True)

    def _list(self, node: ast.List | ast.Tuple, safe: frozenset[str]) -> Typed:
        elements = [self.check(element, safe) for element in node.elts]
        for element, found in zip(node.elts, elements, strict=True):
            if not isinstance(found.node, Constant):
                self.fail(element, "a list holds literals only")
        kinds = {found.type.kind for found in elements}
        null = NULL in kinds
        kinds.discard(NULL)
        if kinds == set(NUMBERS):
            kinds = {"float"}
        if len(kinds) > 1:
            self.fail(node, f"a list of mixed types ({', '.join(sorted(kinds))})")
        plural = {single: kind for kind, single in LISTS.items()}
        kind = plural.get(kinds.pop(), "") if kinds else "empty"
        if not kind:
            self.fail(node, "a list of lists is not part of the condition language")
        values = [found.node.value for found in elements if isinstance(found.node, Constant)]
        # `nullable` of a literal list says that None is among its elements.
        return Typed(Constant(values), Type(kind, null), literal=True)

    _tuple = _list

    def _name(self, node: ast.Name, safe: frozenset[str]) -> Typed:
        return self._dotted(node, node.id, safe)

    def _attribute(self, node: ast.Attribute, safe: frozenset[str]) -> Typed:
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            self.fail(node, "only facts and the variables of any(...) and all(...) have dots")
        return self._dotted(node, ".".join([inner.id, *parts]), safe)

    def _dotted(self, node: ast.expr, name: str, safe: frozenset[str]) -> Typed:
        variable, _, field = name.partition(".")
        if variable in self.variables:
            return self._field(node, variable, field, safe)
        spec = self.vocabulary.spec(name)
        if spec is None:
            hint = _OTHER_SPELLINGS.get(name)
            meant = f"; did you mean {hint}?" if hint else nearest(name, self.vocabulary.specs)
            self.fail(node, f"unknown fact {name}{meant}")
        self.names.append(name)
        nullable = spec.nullable and name not in safe
        return Typed(
            FactRef(name, spec.type == "version"), Type(spec.type, nullable, spec.nullable), name=name
        )

    def _field(self, node: ast.expr, variable: str, field: str, safe: frozenset[str]) -> Typed:
        kind, fields = self.variables[variable]
        if kind != "records":
            if field:
                self.fail(node, f"{variable} is {kind}, it has no fields")
            return Typed(FieldRef(variable), Type(kind), name=variable)
        if not field:
            self.fail(node, f"{variable} is a record; name a field of it: {', '.join(sorted(fields))}")
        spec = fields.get(field)
        if spec is None:
            self.fail(node, f"unknown field {field}; the fields are {', '.join(sorted(fields))}")
        name = f"{variable}.{field}"
        nullable = spec.nullable and name not in safe
        reference = FieldRef(variable, field, spec.type == "version", spec.nullable)
        return Typed(reference, Type(spec.type, nullable, spec.nullable), name=name)

    # --- and, or, not ---

    def _boolop(self, node: ast.BoolOp, safe: frozenset[str]) -> Typed:
        conjunction = isinstance(node.op, ast.And)
        operands: list[Node] = []
        decided: list[frozenset[str]] = []  # not null where that operand has the decisive value
        gathered = NO_FACTS  # not null where all operands have the other value
        for part in node.values:
            found = self.check(part, safe | gathered)
            self.require_bool(part, found)
            operands.append(found.node)
            gathered |= found.if_true if conjunction else found.if_false
            decided.append(found.if_false if conjunction else found.if_true)
        either = frozenset.intersection(*decided)
        tree = Junction(tuple(operands), decisive=not conjunction)
        return Typed(tree, BOOL, gathered, either) if conjunction else Typed(tree, BOOL, either, gathered)

    def _unaryop(self, node: ast.UnaryOp, safe: frozenset[str]) -> Typed:
        found = self.check(node.operand, safe)
        if isinstance(node.op, ast.Not):
            self.require_bool(node.operand, found)
            return Typed(Not(found.node), BOOL, found.if_false, found.if_true)
        if not isinstance(node.op, ast.USub):
            self.fail(node, "only `not` and `-` stand before a value")
        self.require_value(node.operand, found, NUMBERS, "`-`")
        if isinstance(found.node, Constant):
            return Typed(Constant(-found.node.value), found.type, literal=True)
        return Typed(Negative(found.node), found.type)

    # --- comparisons and arithmetic ---

    def _compare(self, node: ast.Compare, safe: frozenset[str]) -> Typed:
        parts = [node.left, *node.comparators]
        checked = [self.check(part, safe) for part in parts]
        links = [
            self._link(operator, (parts[at], checked[at]), (parts[at + 1], checked[at + 1]))
            for at, operator in enumerate(node.ops)
        ]
        return links[0] if len(links) == 1 else Typed(Junction(tuple(one.node for one in links), False), BOOL)

    def _link(self, op: ast.cmpop, left: tuple[ast.expr, Typed], right: tuple[ast.expr, Typed]) -> Typed:
        if type(op) in _MEMBER:
            return self._member(_MEMBER[type(op)], left, right)
        if type(op) in _ORDER:
            symbol = _ORDER[type(op)]
            self._order(symbol, left, right)
            return Typed(Binary(symbol, left[1].node, right[1].node), BOOL)
        return self._equality(_EQUALITY[type(op)], left, right)

    def _order(self, symbol: str, left: tuple[ast.expr, Typed], right: tuple[ast.expr, Typed]) -> None:
        kinds = {left[1].type.kind, right[1].type.kind}
        if "version" in kinds and kinds != {"version"}:
            self._version_mix(left, right)
        for part, found in (left, right):
            self.require_value(part, found, (*NUMBERS, "version"), f"`{symbol}`")

    def _version_mix(self, left: tuple[ast.expr, Typed], right: tuple[ast.expr, Typed]) -> NoReturn:
        part, other = (left[0], right[1]) if left[1].type.kind == "version" else (right[0], left[1])
        self.fail(
            part, f'{ast.unparse(part)} is a version; compare it with version("..."), not with {other.type}'
        )

    def _equality(self, symbol: str, left: tuple[ast.expr, Typed], right: tuple[ast.expr, Typed]) -> Typed:
        one, two = left[1], right[1]
        kinds = (one.type.kind, two.type.kind)
        if symbol in ("is", "is not") and kinds[1] != NULL:
            self.fail(right[0], "`is` compares with None only; use `==`")
        if NULL in kinds:
            part, other = left if kinds[1] == NULL else right
            if not other.type.declared:
                self.fail(part, f"{ast.unparse(part)} is never null; unknown facts need no test")
        elif not comparable(one.type, two.type):
            if "version" in kinds:
                self._version_mix(left, right)
            self.fail(left[0], f"compares {one.type} with {two.type}, which are never equal")
        return self._narrowed(Binary(symbol, one.node, two.node), one, two)

    def _narrowed(self, tree: Binary, one: Typed, two: Typed) -> Typed:
        """Return the comparison with what it says about null: only one with a literal says something."""
        name, literal = (one.name, two) if two.literal else (two.name, one)
        if name is None or not literal.literal:
            return Typed(tree, BOOL)
        names = frozenset((name,))
        # == None is true for null alone; == 8 is false for null.
        true_means_value = (tree.symbol in ("==", "is")) is not (literal.type.kind == NULL)
        return Typed(tree, BOOL, names, NO_FACTS) if true_means_value else Typed(tree, BOOL, NO_FACTS, names)

    def _member(self, symbol: str, left: tuple[ast.expr, Typed], right: tuple[ast.expr, Typed]) -> Typed:
        (part, found), (list_part, listed) = left, right
        if listed.type.kind == "str":
            self.fail(list_part, f"`{symbol}` takes a list; for a part of a text use matches(...)")
        if listed.type.kind not in (*LISTS, "empty"):
            self.fail(list_part, f"`{symbol}` takes a list, and this is {listed.type}")
        if not listed.literal:
            self.require_value(list_part, listed, tuple(LISTS), f"`{symbol}`")
        element = LISTS.get(listed.type.kind, found.type.kind)
        if found.type.kind == NULL or not comparable(Type(found.type.kind), Type(element)):
            if found.type.kind == "version":
                self.fail(list_part, f'{ast.unparse(part)} is a version; list version("...")')
            self.fail(part, f"looks for {found.type} in a list of {element}")
        tree = Binary(symbol, found.node, listed.node)
        if found.name is None or not listed.literal or listed.type.nullable:
            return Typed(tree, BOOL)
        names = frozenset((found.name,))
        return Typed(tree, BOOL, names) if symbol == "in" else Typed(tree, BOOL, NO_FACTS, names)

    def _binop(self, node: ast.BinOp, safe: frozenset[str]) -> Typed:
        symbol = _ARITHMETIC.get(type(node.op))
        if symbol is None:
            self.fail(node, "the arithmetic of conditions is + - * / // %")
        left, right = self.check(node.left, safe), self.check(node.right, safe)
        for part, found in ((node.left, left), (node.right, right)):
            self.require_value(part, found, NUMBERS, f"`{symbol}`")
        whole = symbol != "/" and left.type.kind == right.type.kind == "int"
        return Typed(Binary(symbol, left.node, right.node), Type("int" if whole else "float"))

    # --- functions ---

    def _call(self, node: ast.Call, safe: frozenset[str]) -> Typed:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in ("version", "matches", "len", "any", "all"):
            self.fail(node, f"unknown function; there are {_FUNCTIONS}")
        if node.keywords or len(node.args) != (2 if name == "matches" else 1):
            self.fail(node, f"wrong arguments; there are {_FUNCTIONS}")
        if name in ("any", "all"):
            return self._quantified(node.args[0], name, safe)
        if name == "version":
            return self._version(node.args[0])
        found = self.check(node.args[0], safe)
        if name == "len":
            self.require_value(node.args[0], found, ("strings", "ints", "records"), "len()")
            return Typed(Length(found.node), Type("int"))
        self.require_value(node.args[0], found, ("str", "version"), "matches()")
        raw = FactRef(found.node.name) if isinstance(found.node, FactRef) else found.node
        if isinstance(raw, FieldRef):
            raw = FieldRef(raw.variable, raw.field, nullable=raw.nullable)
        self.patterns.append(self._literal(node.args[1], "the pattern of matches()"))
        return Typed(Matches(raw, self.patterns[-1]), BOOL)

    def _literal(self, node: ast.expr, what: str) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            self.fail(node, f"{what} is a string literal")
        return node.value

    def _version(self, node: ast.expr) -> Typed:
        version = parse_version(self._literal(node, "the argument of version()"))
        if version is None:
            self.fail(node, "not a PEP 440 version")
        return Typed(Constant(version), Type("version"), literal=True)

    def _quantified(self, node: ast.expr, name: str, safe: frozenset[str]) -> Typed:
        if not isinstance(node, ast.GeneratorExp) or len(node.generators) != 1:
            self.fail(node, f"write {name}(condition for x in list)")
        loop = node.generators[0]
        if loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name):
            self.fail(node, f"write {name}(condition for x in list), joining conditions with `and`")
        variable = loop.target.id
        taken = variable in self.variables or variable in self.vocabulary
        if taken or any(fact.startswith(f"{variable}.") for fact in self.vocabulary.specs):
            self.fail(loop.target, f"{variable} has a meaning already; take another name")
        elements = self.check(loop.iter, safe)
        self.require_value(loop.iter, elements, ("strings", "ints", "records"), f"{name}()")
        spec = self.vocabulary.spec(elements.name or "")
        fields: Mapping[str, Any] = spec.fields if spec else {}
        self.variables[variable] = (LISTS.get(elements.type.kind, "records"), fields)
        condition = self.check(node.elt, safe)
        self.require_bool(node.elt, condition)
        del self.variables[variable]
        return Typed(Quantified(variable, elements.node, condition.node, decisive=name == "any"), BOOL)
