"""Where a start of a server begins in its log: some lines before the one that shows it.

The start-up banner is not the first that a start prints: what SGLang changes by itself while it reads its
arguments comes before it. The words were looked up in the sources of 0.5.7 to 0.5.23: the banner is printed
once by the main process of a node (_launch_subprocesses in srt/entrypoints/engine.py), by no scheduler and
no data-parallel controller, and once more by Engine.__init__ where a Python program starts the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# A frame that a start has at most once, which ends with it.
_REFUSED = ", in prepare_server_args"
# What only a server writes that has printed its banner, or one that ends. Requests' errors are among it,
# as they may be the last that is heard of a server.
_LATER = re.compile(
    r"server_args=(?:ServerArgs\(|\{)|Init torch distributed |Load weight (?:begin|end)\.|#tokens: "
    r"|Memory pool end|Capture [\w -]*graph (?:begin|end)|max_total_num_tokens=|INFO:     "
    r"|The server is fired up|(?:Prefill|Decode) batch|Retract requests|Health check failed|KVTransferError"
    r"|Too many open files|watchdog timeout|[Rr]eceived sigquit|SIGQUIT received|SIGTERM received"
    r"|Gracefully exiting|crashed with exit code|scheduler (?:is dead|died)|hit an exception"
    r"|Fatal Python error|terminate called|: error: |usage: (?:sglang serve|launch_server\.py) "
    r"|^(?:\S+: line \d+: +\d+ )?(?:Killed|Aborted|Segmentation fault|Bus error)\b"
)


class Line(NamedTuple):
    """One record of a log, or a line without a prefix."""

    number: int
    text: str
    ranks: bool = False


def first_line(shown: int, before: Iterable[Line]) -> int:
    """Return the line on which a start begins that shows on line ``shown``.

    ``before`` are the lines in front of that, the nearest first. Those are the start's own down to the last
    one that only a server writes that was started earlier.
    """
    first = shown
    header: int | None = None  # of a traceback that is not closed, and so the start's own
    unindented: list[int] = []
    chained = False
    for line in before:
        text = line.text
        if _TRACEBACK in text and (chained or not (unindented or header)):
            header, unindented, chained = line.number, [], False
        elif _TRACEBACK in text or _REFUSED in text:
            return unindented[-1] + 1 if unindented else header or shown
        elif line.ranks or _LATER.search(text):
            break
        elif text.strip() in _CHAINED:
            chained = True
        elif text[:1] not in ("", " ", "\t", "|", "+"):
            unindented.append(line.number)
        first = line.number
    return first
