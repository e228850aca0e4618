"""Which fields of ServerArgs a release may set by itself after the command line was parsed.

SGLang resolves its arguments in many ways: assignments in ServerArgs._handle_* and in hooks, passes that
return a dict of decisions, ``declare_resolution(server_args, source, field=value)``, and ``override(...)`` or
plain assignments while the model is loaded. The reader errs on the side of naming a field: a write counts
whatever its condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# Where SGLang resolves its arguments: a dict key or a keyword there may be a decision about a field.
_RESOLVERS = (
    "srt/server_args.py",
    "srt/arg_groups/",
    "srt/parser/template_detection.py",
    "srt/managers/template_detection.py",
)
# Where a platform sets its own defaults, on ``args``.
_PLATFORMS = ("srt/hardware_backend/", "srt/platforms/")
# What is no decision about the server's arguments: their declarations, the sizes of the process groups as
# they were formed (runtime_context, distributed), an encoder's workers.
_ELSEWHERE = (
    "srt/arg_groups/fields/",
    "srt/disaggregation/encode",
    "srt/distributed/",
    "srt/runtime_context.py",
)
# Methods that only copy what was parsed.
_COPIES = frozenset({"from_cli_args", "add_cli_args"})
# Names under which the arguments are known.
_RECORDS = frozenset({"server_args", "sa", "get_global_server_args", "get_server_args"})
_PLATFORM_RECORDS = _RECORDS | {"args"}
_RESOLVER_RECORDS = _PLATFORM_RECORDS | {"self", "config"}
# Without one of these a module writes none: parsing all of them takes long.
_MAY_WRITE = re.compile(
    r"\b(args|\w*server_args(\(\))?|sa)\.\w+ *(=(?!=)|\W{1,2}=|,.*=)"
    r"|setattr\(|declare|override|replace_resolved"
)
# Calls whose keyword arguments are fields with their new values: declare_resolution, declare_late_resolution,
# override, replace_resolved; in resolvers also those that fill a dict of decisions.
_SETTER = re.compile(r"declare|override|replace_resolved")
_RESOLVER_SETTER = re.compile(r"declare|override|replace|^dict$|^update$")


def read_rewrites(package_dir: Path, fields: Iterable[str], resolvable: Iterable[str] = ()) -> frozenset[str]:
    """Return those of ``fields`` that some code below ``package_dir`` may set after parsing.

    ``resolvable`` are those that their own declaration allows resolution to set (0.5.15+).
    """
    names = frozenset(fields)
    found = set(resolvable)
    for path in sorted((package_dir / "srt").rglob("*.py")):
        relative = path.relative_to(package_dir).as_posix()
        if relative.startswith(_ELSEWHERE):
            continue
        reader = _Reader(names)
        if relative.startswith(_RESOLVERS):
            reader.resolves, reader.records = True, _RESOLVER_RECORDS
        elif relative.startswith(_PLATFORMS):
            reader.records = _PLATFORM_RECORDS
        text = path.read_text(encoding="utf-8")
        if reader.resolves or _MAY_WRITE.search(text):
            reader.visit(ast.parse(text))
            found |= reader.found
    return frozenset(found)


class _Reader(ast.NodeVisitor):
    """Collects the fields that one module may write."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.resolves = False
        self.records = _RECORDS
        self.found: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Skip what only copies; where field names are computed, every field named in the function counts."""
        if node.name in _COPIES:
            return
        inside = list(ast.walk(node))
        if any(self._sets_computed_names(child) for child in inside):
            self._add(child.value for child in inside if isinstance(child, ast.Constant))
            for call in inside:
                if isinstance(call, ast.Call) and _RESOLVER_SETTER.search(_last_name(call.func)):
                    self._add(key.arg for key in call.keywords)
            for prefix in filter(None, map(_prefix, inside)):
                self._add(name for name in self.names if name.startswith(prefix))
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (NodeVisitor's name)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Record the fields assigned to."""
        for target in node.targets:
            self._add(self._assigned(target))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Record the field assigned to."""
        self._add(self._assigned(node.target))
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Record the field assigned to."""
        self._add(self._assigned(node.target))
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Record a resolver's decisions."""
        if self.resolves:
            self._add(key.value for key in node.keys if isinstance(key, ast.Constant))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Record ``declare_resolution(..., field=value)`` and ``setattr(server_args, "field", value)``."""
        function = _last_name(node.func)
        if (_RESOLVER_SETTER if self.resolves else _SETTER).search(function):
            self._add(key.arg for key in node.keywords)
        elif function == "setattr" and self._is_record(node.args[0]):
            self._add(part.value for part in node.args[1:2] if isinstance(part, ast.Constant))
        self.generic_visit(node)

    def _add(self, names: Iterable[object]) -> None:
        self.found.update(name for name in names if isinstance(name, str) and name in self.names)

    def _is_record(self, node: ast.expr) -> bool:
        return _last_name(node) in self.records

    def _assigned(self, target: ast.expr) -> Iterator[str]:
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                yield from self._assigned(element)
        elif isinstance(target, ast.Attribute) and self._is_record(target.value):
            yield target.attr
        elif self.resolves and isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            yield str(target.slice.value)

    def _sets_computed_names(self, node: ast.AST) -> bool:
        """Whether ``node`` is ``setattr(server_args, name, value)`` or ``override(..., **decisions)``."""
        if not isinstance(node, ast.Call):
            return False
        function = _last_name(node.func)
        if function == "setattr":
            return self._is_record(node.args[0]) and not isinstance(node.args[1], ast.Constant)
        return bool(_SETTER.search(function)) and any(key.arg is None for key in node.keywords)


def _prefix(node: ast.AST) -> str | None:
    """Return ``watermark_`` of ``f"watermark_{field}"``."""
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        text = str(node.values[0].value)
        return text if text.isidentifier() and text.endswith("_") else None
    return None


def _last_name(node: ast.expr) -> str:
    """Return ``c`` of ``a.b.c``, of ``c`` and of ``c()``."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
