"""Which fields of ServerArgs a release may set by itself after the command line was parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

# Where SGLang resolves its arguments: any of these may write any field.
_RESOLVERS = ("srt/server_args.py", "srt/arg_groups")
# Calls whose keyword arguments name fields that are set.
_SETTERS = frozenset({"declare_resolution", "declare", "_declare", "override", "replace_resolved", "replace"})
# Names under which the code that runs later knows the arguments.
_RECORDS = frozenset({"server_args", "args", "cfg", "get_global_server_args"})


def read_rewrites(package_dir: Path, fields: Iterable[str]) -> frozenset[str]:
    """Return those of ``fields`` that some code below ``package_dir`` may set after parsing.

    Errs on the side of naming a field: an assignment counts wherever it stands, whatever its condition.
    """
    names = frozenset(fields)
    found: set[str] = set()
    for path in sorted((package_dir / "srt").rglob("*.py")):
        relative = path.relative_to(package_dir).as_posix()
        resolves = relative.startswith(_RESOLVERS)
        text = path.read_text(encoding="utf-8")
        if relative.startswith("srt/arg_groups/fields/") or not (resolves or "server_args" in text):
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            found |= _written(node, names, resolves=resolves)
    return frozenset(found)


def _written(node: ast.AST, names: frozenset[str], *, resolves: bool) -> set[str]:
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name for target in targets for name in _targets(target, resolves=resolves) if name in names}
    if isinstance(node, ast.Call):
        return _set_by_call(node, resolves=resolves) & names
    if resolves and isinstance(node, ast.Dict):
        return {key.value for key in node.keys if isinstance(key, ast.Constant)} & names
    return set()


def _targets(target: ast.expr, *, resolves: bool) -> Iterable[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _targets(element, resolves=resolves)
    elif isinstance(target, ast.Attribute):
        base = _last_name(target.value)
        if base in _RECORDS or (resolves and base == "self"):
            yield target.attr
    elif resolves and isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        yield str(target.slice.value)


def _set_by_call(node: ast.Call, *, resolves: bool) -> set[str]:
    function = _last_name(node.func)
    if function in ("setattr", "__setattr__"):
        return {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    if function in _SETTERS or (resolves and function in ("update", "dict")):
        return {key.arg for key in node.keywords if key.arg}
    return set()


def _last_name(node: ast.expr) -> str:
    """Return ``c`` of ``a.b.c``, of ``c`` and of ``c()``."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
