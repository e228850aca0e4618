"""The values that the evaluator of SGLang's source knows beside Python's own."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

SUPPRESS = "==SUPPRESS=="  # argparse.SUPPRESS


@dataclasses.dataclass(frozen=True)
class Unresolved:
    """A value that the source alone does not tell, as its source text."""

    source: str


@dataclasses.dataclass(frozen=True)
class EnumMember:
    """One member of an enumeration."""

    name: str
    value: Any


@dataclasses.dataclass(frozen=True)
class EnumClass:
    """An enumeration with its members in order."""

    name: str
    members: tuple[EnumMember, ...]


@dataclasses.dataclass(frozen=True)
class ClassRef:
    """A class that is no enumeration."""

    module: str
    node: ast.ClassDef


@dataclasses.dataclass(frozen=True)
class FunctionRef:
    """A function, by where it is defined."""

    module: str
    node: ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class ModuleRef:
    """A module."""

    name: str


@dataclasses.dataclass(frozen=True)
class Builtin:
    """A built-in type such as ``int``."""

    name: str


def items_of(value: Any) -> list[Any] | None:
    """Return what iterating over ``value`` gives, or None when that is not known."""
    if isinstance(value, EnumClass):
        return list(value.members)
    return list(value) if isinstance(value, list | tuple | set | frozenset | dict) else None


def plain(value: Any) -> Any:
    """Return ``value`` as JSON has it: enumeration members as their values, sets sorted, tuples as lists.

    An Unresolved stays what it is.
    """
    if isinstance(value, EnumMember):
        return plain(value.value)
    if isinstance(value, EnumClass):
        return [plain(member) for member in value.members]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value
