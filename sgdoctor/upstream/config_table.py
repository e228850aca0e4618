"""A kernel configuration file as SGLang reads it: a JSON object whose keys are whole numbers.

Every family reads its files in the same way: ``{int(key): value for key, value in json.load(file).items()}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Table = dict[int, Any]


class BrokenFile(Exception):  # noqa: N818 (a file, not an error of ours)
    """A file that SGLang cannot turn into a table.

    ``code`` and ``text`` say what is wrong with ``file``, ``raised`` is the exception that ends SGLang's
    lookup.
    """

    def __init__(self, code: str, file: str, text: str, raised: str) -> None:
        super().__init__(raised)
        self.code = code
        self.file = file
        self.text = text
        self.raised = raised


def read(path: Path) -> Table:
    """Read a file; raises BrokenFile where SGLang raises, OSError when the file cannot be read."""
    return parse(path.read_bytes(), path.name)


def parse(raw: bytes, name: str) -> Table:
    """Return the table that SGLang makes of ``raw``, the content of the file ``name``."""
    try:
        content = json.loads(raw.decode("utf-8"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise _broken("not-json", f"is not JSON: {error}", error, name) from error
    except RecursionError as error:
        raise _broken("not-json", "is nested too deeply to be read", error, name) from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raised = AttributeError(f"{kind!r} object has no attribute 'items'")
        raise _broken("not-an-object", f"holds a {kind} instead of an object of batch sizes", raised, name)
    try:
        return {int(key): value for key, value in content.items()}
    except ValueError as error:
        raise _broken("key-not-a-number", _odd_keys(content), error, name) from error


def _broken(code: str, text: str, error: Exception, name: str) -> BrokenFile:
    return BrokenFile(code, name, text, f"{type(error).__name__}: {error} ({name})")


def _odd_keys(keys: Iterable[str]) -> str:
    """Return which keys are no whole numbers."""
    odd = [key for key in keys if not _is_number(key)]
    if "triton_version" in odd:
        return "has the key triton_version, which vLLM writes and SGLang cannot read"
    shown = ", ".join(repr(key)[:40] for key in odd[:3])
    return f"has keys that are no whole numbers: {shown}{', ...' if len(odd) > 3 else ''}"


def _is_number(key: str) -> bool:
    try:
        int(key)
    except ValueError:
        return False
    return True
