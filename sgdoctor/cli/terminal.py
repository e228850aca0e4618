"""Text for the terminal that standard output is, or for the pipe or file that it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

from sgdoctor.report import colour
from sgdoctor.report.layout import Line, plain

WIDEST = 120  # longer lines are hard to read
PIPE = 80


def show(render: Callable[[int, str], Iterable[Line]], *, to_file: bool = False) -> str:
    """Return what ``render`` makes of the terminal's width and encoding, in colour where it can be seen."""
    if to_file or sys.stdout is None:
        return plain(render(_columns() or PIPE, "utf-8"))
    lines = render(_width(), sys.stdout.encoding or "ascii")
    return colour.painted(lines) if colour.wanted(sys.stdout) else plain(lines)


def _width() -> int:
    """Return COLUMNS, else the terminal's width up to what can be read well, else that of a pipe."""
    asked = _columns()
    if asked:
        return asked
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns or PIPE, WIDEST)
    except (OSError, ValueError):
        return PIPE


def _columns() -> int:
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() else 0
