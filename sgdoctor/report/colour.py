"""Colour, for terminals that have it; the text is the same without."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TextIO

from sgdoctor.report.layout import Line

STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
    "ok": "bold green",
    "unknown": "bold magenta",
    "note": "magenta",
    "title": "bold",
    "code": "bold",
    "strong": "bold",
    "label": "dim",
    "dim": "dim",
    "command": "green",
}


def wanted(stream: TextIO) -> bool:
    """Whether ``stream`` shows colour: a terminal, unless NO_COLOR or FORCE_COLOR decides."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def painted(lines: Iterable[Line]) -> str:
    """Return ``lines`` as text with colours; what has one style is one piece, so that it can be searched."""
    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", highlight=False, soft_wrap=True
    )
    with console.capture() as capture:
        for line in lines:
            pieces = [
                ("".join(text for text, _ in group), STYLES.get(style, ""))
                for style, group in groupby(line, key=itemgetter(1))
            ]
            console.print(Text.assemble(*pieces))
    return capture.get()
