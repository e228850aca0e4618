"""A constant evaluator for SGLang's source: enough Python to know a flag's choices and default.

It follows imports inside SGLang, class attributes, enumerations, list arithmetic, comprehensions and helper
functions without arguments. What it cannot know is an ``Unresolved``, never a guess.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any

from sgdoctor.upstream.source_modules import Imported, ImportedModule, Module, Package
from sgdoctor.upstream.source_values import (
    SUPPRESS,
    Builtin,
    ClassRef,
    EnumClass,
    EnumMember,
    FunctionRef,
    ModuleRef,
    Unresolved,
    items_of,
    plain,
)

Scope = dict[str, Any]
Seen = tuple[tuple[str, ...], ...]

_BUILTINS = frozenset({"str", "int", "float", "bool", "list", "dict", "set", "tuple"})
_CONSTANTS = {"sys.maxsize": sys.maxsize, "argparse.SUPPRESS": SUPPRESS}
_ENUM_BASES = ("Enum", "StrEnum", "IntEnum", "Flag", "IntFlag")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
}


class Evaluator:
    """Evaluates expressions in the scope of a module of one SGLang package."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._values: dict[tuple[str, str], Any] = {}

    # --- names ---------------------------------------------------------------------------------------------

    def lookup(self, module_name: str, name: str, seen: Seen = ()) -> Any:
        """Return the value that ``name`` has at the end of ``module_name``."""
        key = (module_name, name)
        if key in self._values:
            return self._values[key]
        if key in seen:
            return Unresolved(name)
        module = self.package.module(module_name)
        if module is None:
            return Unresolved(f"{module_name}:{name}")
        seen = (*seen, key)
        if name not in module.names:
            for star in module.star_imports:
                if self._defines(star, name):
                    return self.lookup(star, name, seen)
            return Unresolved(f"{module_name}:{name}")
        value = self._define(module, name, seen)
        self._values[key] = value
        return value

    def _defines(self, module_name: str, name: str) -> bool:
        module = self.package.module(module_name)
        if module is None:
            return False
        return name in module.names or any(self._defines(star, name) for star in module.star_imports)

    def _define(self, module: Module, name: str, seen: Seen) -> Any:
        definition = module.names[name]
        if isinstance(definition, Imported):
            if self._defines(definition.module, definition.name):
                return self.lookup(definition.module, definition.name, seen)
            submodule = f"{definition.module}.{definition.name}"
            return ModuleRef(submodule) if self.package.path(submodule) else Unresolved(submodule)
        if isinstance(definition, ImportedModule):
            return ModuleRef(definition.module)
        if isinstance(definition, ast.ClassDef):
            return self._class(module.name, definition, seen)
        if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            return FunctionRef(module.name, definition)
        value = self.evaluate(definition, module.name, {}, seen)
        for grown, how, argument in module.growth:
            if grown == name and isinstance(value, list | set):
                value = self._grow(value, how, self.evaluate(argument, module.name, {}, seen))
        return value

    @staticmethod
    def _grow(value: list[Any] | set[Any], how: str, argument: Any) -> list[Any] | set[Any]:
        if how == "append":
            return type(value)([*value, argument])
        if isinstance(argument, list | tuple | set):
            return type(value)([*value, *argument])
        return value

    def _class(self, module_name: str, node: ast.ClassDef, seen: Seen) -> EnumClass | ClassRef:
        bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
        if not bases & set(_ENUM_BASES):
            return ClassRef(module_name, node)
        members: list[EnumMember] = []
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = self.evaluate(statement.value, module_name, {}, seen)
                if isinstance(value, Unresolved) and value.source.endswith("auto()"):
                    value = len(members) + 1
                members.append(EnumMember(statement.targets[0].id, value))
        return EnumClass(node.name, tuple(members))

    def class_attribute(self, cls: ClassRef, name: str, seen: Seen = ()) -> Any:
        """Return the value of an attribute in a class body, where sibling attributes are in scope."""
        key = (cls.module, cls.node.name, name)
        if key in seen:
            return Unresolved(f"{cls.node.name}.{name}")
        seen = (*seen, key)
        attributes: dict[str, ast.expr | None] = {}
        for statement in cls.node.body:
            if isinstance(statement, ast.Assign):
                attributes.update(
                    {
                        target.id: statement.value
                        for target in statement.targets
                        if isinstance(target, ast.Name)
                    }
                )
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                attributes[statement.target.id] = statement.value
        expression = attributes.get(name)
        if expression is None:
            return Unresolved(f"{cls.node.name}.{name}")
        used = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        scope = {
            other: self.class_attribute(cls, other, seen) for other in used & set(attributes) if other != name
        }
        return self.evaluate(expression, cls.module, scope, seen)

    # --- expressions ---------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, module: str, scope: Scope, seen: Seen = ()) -> Any:
        """Return the value of ``node`` in ``module``, with ``scope`` over the module's names."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        value = method(node, module, scope, seen) if method else None
        if method is None or value is NotImplemented:
            return Unresolved(ast.unparse(node))
        return value

    def _constant(self, node: ast.Constant, module: str, scope: Scope, seen: Seen) -> Any:  # noqa: ARG002
        return node.value

    def _elements(self, nodes: Iterable[ast.expr], module: str, scope: Scope, seen: Seen) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items = items_of(self.evaluate(node.value, module, scope, seen))
                values.extend([Unresolved(ast.unparse(node))] if items is None else items)
            else:
                values.append(self.evaluate(node, module, scope, seen))
        return values

    def _list(self, node: ast.List, module: str, scope: Scope, seen: Seen) -> Any:
        return self._elements(node.elts, module, scope, seen)

    def _tuple(self, node: ast.Tuple, module: str, scope: Scope, seen: Seen) -> Any:
        return tuple(self._elements(node.elts, module, scope, seen))

    def _set(self, node: ast.Set, module: str, scope: Scope, seen: Seen) -> Any:
        return set(self._elements(node.elts, module, scope, seen))

    def _dict(self, node: ast.Dict, module: str, scope: Scope, seen: Seen) -> Any:
        found: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            value = self.evaluate(value_node, module, scope, seen)
            if key_node is None:
                if not isinstance(value, dict):
                    return NotImplemented
                found.update(value)
                continue
            key = self.evaluate(key_node, module, scope, seen)
            key = key.value if isinstance(key, EnumMember) else key
            try:
                found[key] = value
            except TypeError:
                return NotImplemented
        return found

    def _name(self, node: ast.Name, module: str, scope: Scope, seen: Seen) -> Any:
        if node.id in scope:
            return scope[node.id]
        if node.id in _BUILTINS:
            return Builtin(node.id)
        return self.lookup(module, node.id, seen)

    def _unaryop(self, node: ast.UnaryOp, module: str, scope: Scope, seen: Seen) -> Any:
        value = self.evaluate(node.operand, module, scope, seen)
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return NotImplemented

    def _binop(self, node: ast.BinOp, module: str, scope: Scope, seen: Seen) -> Any:
        left = self.evaluate(node.left, module, scope, seen)
        right = self.evaluate(node.right, module, scope, seen)
        if (
            isinstance(node.op, ast.Add)
            and isinstance(left, list | tuple)
            and isinstance(right, list | tuple)
        ):
            return [*left, *right]
        apply = _OPERATORS.get(type(node.op))
        if apply is None or isinstance(left, Unresolved) or isinstance(right, Unresolved):
            return NotImplemented
        try:
            return apply(left, right)
        except (TypeError, ValueError, ArithmeticError):
            return NotImplemented

    def _joinedstr(self, node: ast.JoinedStr, module: str, scope: Scope, seen: Seen) -> Any:
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                value = plain(self.evaluate(part.value, module, scope, seen))
                known = isinstance(value, str | int | float | list)
                text += str(value) if known else "{" + ast.unparse(part.value) + "}"
        return text

    def _attribute(self, node: ast.Attribute, module: str, scope: Scope, seen: Seen) -> Any:
        constant = _CONSTANTS.get(ast.unparse(node))
        if constant is not None:
            return constant
        base = self.evaluate(node.value, module, scope, seen)
        if isinstance(base, EnumClass):
            return next((member for member in base.members if member.name == node.attr), NotImplemented)
        if isinstance(base, EnumMember) and node.attr in ("name", "value"):
            return getattr(base, node.attr)
        if isinstance(base, ClassRef):
            return self.class_attribute(base, node.attr, seen)
        if isinstance(base, ModuleRef):
            return self.lookup(base.name, node.attr, seen)
        return NotImplemented

    def _comprehension(self, node: Any, module: str, scope: Scope, seen: Seen) -> Any:
        generator = node.generators[0]
        if len(node.generators) != 1 or generator.ifs or not isinstance(generator.target, ast.Name):
            return NotImplemented
        items = items_of(self.evaluate(generator.iter, module, scope, seen))
        if items is None:
            return NotImplemented
        name = generator.target.id
        return [self.evaluate(node.elt, module, {**scope, name: item}, seen) for item in items]

    _listcomp = _setcomp = _generatorexp = _comprehension

    def _subscript(self, node: ast.Subscript, module: str, scope: Scope, seen: Seen) -> Any:
        base = self.evaluate(node.value, module, scope, seen)
        index = self.evaluate(node.slice, module, scope, seen)
        try:
            return base[index]
        except (TypeError, KeyError, IndexError):
            return NotImplemented

    # --- calls ---------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, module: str, scope: Scope, seen: Seen) -> Any:
        called = ast.unparse(node.func)
        if called in ("field", "dataclasses.field", "msgspec.field"):
            return self._field(node, module, scope, seen)
        if called == "get_args":
            return self._literal(node.args[0], module, scope, seen)
        arguments = [self.evaluate(argument, module, scope, seen) for argument in node.args]
        if called in ("list", "tuple", "set", "frozenset", "sorted"):
            return _collect(called, arguments)
        if called == "dict" and not arguments:
            return {
                key.arg: self.evaluate(key.value, module, scope, seen) for key in node.keywords if key.arg
            }
        if isinstance(node.func, ast.Name):
            function = self.lookup(module, node.func.id, seen)
            if isinstance(function, FunctionRef) and not node.args and not node.keywords:
                return self._returned(function, seen)
            return NotImplemented
        if isinstance(node.func, ast.Attribute):
            base = self.evaluate(node.func.value, module, scope, seen)
            return _call_method(base, node.func.attr, arguments)
        return NotImplemented

    def _field(self, node: ast.Call, module: str, scope: Scope, seen: Seen) -> Any:
        for keyword in node.keywords:
            if keyword.arg == "default":
                return self.evaluate(keyword.value, module, scope, seen)
            if keyword.arg == "default_factory":
                if isinstance(keyword.value, ast.Lambda):
                    return self.evaluate(keyword.value.body, module, scope, seen)
                empty: dict[str, Any] = {"list": [], "dict": {}, "set": set()}
                return empty.get(ast.unparse(keyword.value), NotImplemented)
        return NotImplemented

    def _literal(self, node: ast.expr, module: str, scope: Scope, seen: Seen) -> Any:
        """Evaluate ``get_args(Literal[...])``, also by way of a name and of another module's name."""
        if isinstance(node, ast.Name):
            found = self.package.module(module)
            definition = found.names.get(node.id) if found else None
            if isinstance(definition, Imported):
                return self._literal(ast.Name(definition.name), definition.module, {}, seen)
            if not isinstance(definition, ast.expr):
                return NotImplemented
            node = definition
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            value = self.evaluate(node.slice, module, scope, seen)
            return list(value) if isinstance(value, tuple) else [value]
        return NotImplemented

    def _returned(self, function: FunctionRef, seen: Seen) -> Any:
        """Return what a function without arguments returns last, its own imports and assignments in scope."""
        scope: Scope = {}
        result: Any = NotImplemented
        for statement in function.node.body:
            if isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    scope[alias.asname or alias.name] = self.lookup(statement.module, alias.name, seen)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = self.evaluate(statement.value, function.module, scope, seen)
                scope[statement.targets[0].id] = value
            elif isinstance(statement, ast.Return) and statement.value is not None:
                result = self.evaluate(statement.value, function.module, scope, seen)
        return result


def _collect(function: str, arguments: list[Any]) -> Any:
    items = items_of(arguments[0]) if arguments else []
    if items is None:
        return NotImplemented
    if function == "sorted":
        return sorted(items, key=str)
    if function == "tuple":
        return tuple(items)
    return set(items) if "set" in function else items


def _call_method(base: Any, method: str, arguments: list[Any]) -> Any:
    if isinstance(base, dict) and method in ("keys", "values", "copy"):
        return dict(base) if method == "copy" else list(base.values() if method == "values" else base)
    if isinstance(base, str):
        if method in ("lower", "upper"):
            return getattr(base, method)()
        if method == "join" and arguments and isinstance(arguments[0], list | tuple):
            return base.join(str(plain(item)) for item in arguments[0])
    return NotImplemented
