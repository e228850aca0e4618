"""Reads the fields of ServerArgs out of an unpacked or installed SGLang, from its source text alone.

Up to 0.5.19 they stand in the class itself, a dataclass; from 0.5.14 on their annotations carry what the
command line needs. From 0.5.20 on they stand in the structs of arg_groups/fields/ that ``_INPUT_NAMESPACES``
in server_args.py lists.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

from sgdoctor.upstream.source_eval import Evaluator
from sgdoctor.upstream.source_modules import Package
from sgdoctor.upstream.source_values import ClassRef, Unresolved, plain

SERVER_ARGS = "sglang.srt.server_args"
_FIELD_ORDER = "sglang.srt.arg_groups.field_order"
_ANNOTATED = frozenset({"A", "Annotated", "typing.Annotated"})


class SourceError(Exception):
    """This SGLang's source is not laid out like any release that sgdoctor knows."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of ServerArgs as declared.

    ``default`` is an Unresolved where the source alone does not tell it (``pre_warm_nccl``, which follows the
    platform in 0.5.10 to 0.5.13) and None for a ``required`` field. ``annotation`` is the bare type. ``meta``
    has the values of ``Arg(...)`` (0.5.14+), None when there is none; ``raw`` their source text.
    """

    name: str
    annotation: ast.expr
    default: Any
    required: bool
    meta: dict[str, Any] | None = None
    raw: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fallback(self) -> Any:
        """What stands in for a null that nothing resolves (0.5.20+)."""
        return plain((self.meta or {}).get("fallback"))


class ServerArgsSource:
    """The class ServerArgs of one SGLang package.

    Raises SourceError when there is none.
    """

    def __init__(self, package_dir: Path) -> None:
        self.package = Package(package_dir)
        self.evaluator = Evaluator(self.package)
        module = self.package.module(SERVER_ARGS)
        if module is None:
            raise SourceError(f"{package_dir} has no srt/server_args.py that can be parsed")
        definition = module.names.get("ServerArgs")
        if not isinstance(definition, ast.ClassDef):
            raise SourceError(f"{module.path} defines no class ServerArgs")
        self.module = module
        self.node = definition

    def fields(self) -> list[Field]:
        """Return the fields in their order, which is that of the log banner.

        From 0.5.20 on POSITIONAL_FIELD_ORDER gives it. A field that a class declares twice (dcp_size, 0.5.15
        and 0.5.16) keeps its first place and takes its last declaration, as in Python.
        """
        found: dict[str, Field] = {}
        for module, cls in [(SERVER_ARGS, self.node), *self._namespaces()]:
            for statement in cls.body:
                if (
                    isinstance(statement, ast.AnnAssign)
                    and isinstance(statement.target, ast.Name)
                    and "ClassVar" not in ast.unparse(statement.annotation)
                ):
                    name = statement.target.id
                    found[name] = self._field(module, name, statement)
        order = self.evaluator.lookup(_FIELD_ORDER, "POSITIONAL_FIELD_ORDER")
        if isinstance(order, tuple):
            place = {name: index for index, name in enumerate(order)}
            return sorted(found.values(), key=lambda field: place.get(field.name, len(place)))
        return list(found.values())

    def method(self, name: str) -> ast.FunctionDef:
        """Return a method of the class.

        Raises SourceError when it has none of that name.
        """
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return statement
        raise SourceError(f"ServerArgs has no {name}")

    def _namespaces(self) -> list[tuple[str, ast.ClassDef]]:
        """Return the structs that make up ServerArgs (0.5.20+), in the order of _INPUT_NAMESPACES."""
        listed = self.module.names.get("_INPUT_NAMESPACES")
        if not isinstance(listed, ast.List | ast.Tuple):
            return []
        found = []
        for element in listed.elts:
            value = self.evaluator.evaluate(element, SERVER_ARGS, {})
            if not isinstance(value, ClassRef):
                raise SourceError(f"no source for the fields of {ast.unparse(element)}")
            found.append((value.module, value.node))
        return found

    def _field(self, module: str, name: str, statement: ast.AnnAssign) -> Field:
        annotation, meta, raw = self._annotation(module, statement.annotation)
        required = statement.value is None
        default = None
        if statement.value is not None:
            default = plain(self.evaluator.evaluate(statement.value, module, {}))
        return Field(name, annotation, default, required, meta, raw)

    def _annotation(
        self, module: str, node: ast.expr
    ) -> tuple[ast.expr, dict[str, Any] | None, dict[str, str]]:
        """Split ``A[T, "help"]`` and ``A[T, Arg(...)]`` into T, the Arg's values and their source text."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)):
            return node, None, {}
        if ast.unparse(node.value) not in _ANNOTATED:
            return node, None, {}
        inner, *metadata = node.slice.elts
        for item in metadata:
            if not isinstance(item, ast.Call):
                text = self.evaluator.evaluate(item, module, {})
                if isinstance(text, str):
                    return inner, {"help": text}, {}
            elif ast.unparse(item.func).split(".")[-1] == "Arg":
                named = {key.arg: key.value for key in item.keywords if key.arg}
                values = {name: self.evaluator.evaluate(value, module, {}) for name, value in named.items()}
                if item.args:
                    values.setdefault("help", self.evaluator.evaluate(item.args[0], module, {}))
                return inner, values, {name: ast.unparse(value) for name, value in named.items()}
        return inner, None, {}


def known(value: Any) -> bool:
    """Whether ``value`` could be told from the source, all of it."""
    if isinstance(value, dict):
        return all(known(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(known(item) for item in value)
    return not isinstance(value, Unresolved)
