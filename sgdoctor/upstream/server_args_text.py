"""The start-up banner: `server_args=` as a server prints it, read without running any of it.

Up to 0.5.18 it is the repr of a dataclass, ``ServerArgs(model_path='...', tp_size=1, ...)``; from 0.5.19 on
that of a dict, ``{'model_path': '...', ...}`` (srt/entrypoints/engine.py). Both are printed after resolution.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec

START = re.compile(r"server_args=(?:(?P<repr>ServerArgs\()|(?P<dict>\{))")

# A string that is not closed goes to the end: trying again from each of its quotes would take quadratic time.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|[\[\](){}<>,]", re.DOTALL)
_OPENS = "[({<"
_CLOSES = "])}>"
_REPR_ITEM = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>.*)\Z", re.DOTALL)
_DICT_ITEM = re.compile(r"\s*'(?P<name>[A-Za-z_]\w*)'\s*:\s*(?P<value>.*)\Z", re.DOTALL)
# Dataclasses of srt/model_executor/cuda_graph_config.py (0.5.14 to 0.5.23)
_GRAPHS = ("CudaGraphConfig", "PhaseConfig")


class Banner(msgspec.Struct, frozen=True):
    """What a banner says. ``opaque`` are fields whose value is no Python literal (an object's repr)."""

    values: dict[str, Any]
    opaque: tuple[str, ...]
    complete: bool  # it was closed; else the end is missing and with it the last fields
    is_dict: bool

    def fields(self) -> list[str]:
        """Return all field names."""
        return [*self.values, *self.opaque]


def parse(text: str) -> Banner | None:
    """Return the banner in ``text``, or None when there is none."""
    start = START.search(text)
    if not start:
        return None
    is_dict = start["dict"] is not None
    items, complete = _items(text, start.end())
    values: dict[str, Any] = {}
    opaque: list[str] = []
    pattern = _DICT_ITEM if is_dict else _REPR_ITEM
    for item in items:
        if found := pattern.match(item):
            try:
                values[found["name"]] = _value(found["value"].strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                opaque.append(found["name"])
    return Banner(values, tuple(opaque), complete, is_dict)


def _value(text: str) -> Any:
    """Return what a value stands for; raises what ast.literal_eval raises for other objects' reprs."""
    if not text.startswith(f"{_GRAPHS[0]}("):
        return ast.literal_eval(text)
    return _graphs(ast.parse(text, mode="eval").body)


def _graphs(node: ast.expr) -> Any:
    """Return the repr of a CUDA graph configuration as the dict that /server_info has in its place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _GRAPHS:
        return {str(each.arg): _graphs(each.value) for each in node.keywords}
    return ast.literal_eval(node)


def _items(text: str, start: int) -> tuple[list[str], bool]:
    """Split what follows ``start`` at its outermost commas; also whether the bracket was closed."""
    items: list[str] = []
    depth = 0
    begin = start
    for token in _TOKEN.finditer(text, start):
        char = token[0]
        if char in _OPENS:
            depth += 1
        elif char in _CLOSES:
            if depth == 0:
                items.append(text[begin : token.start()])
                return items, True
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[begin : token.start()])
            begin = token.end()
    return items, False
