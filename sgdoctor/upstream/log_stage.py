"""How far a server's start has got, by the steps that its log names.

The words were looked up in the sources of 0.5.7 to 0.5.23: srt/model_executor/model_runner.py and its
successors, the graph runners, srt/managers/scheduler.py, srt/entrypoints/http_server.py. The HTTP server is
started only after all schedulers are ready, so that a server which answers at all has loaded its model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# A step: its name, the record that begins it, the one that ends it. Each rank writes both.
_STEPS: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = (
    # up to 0.5.20; later ones go from the banner straight to the weights
    (
        "joining",
        re.compile(r"Init torch distributed begin\."),
        re.compile(r"Init torch distributed ends\."),
    ),
    (
        "loading",
        re.compile(r"Load weight begin\."),
        re.compile(r"Load weight end\. (?:elapsed=|type=)"),
    ),
    (
        "capturing",
        re.compile(r"Capture [\w -]*graph begin\b", re.IGNORECASE),
        re.compile(r"Capture [\w -]*graph end\b", re.IGNORECASE),
    ),
)
_START = re.compile(r"server_args=(?:ServerArgs\(|\{)")
_MARKS = (
    ("sizing", re.compile(r"(?:KV Cache is allocated|KV Cache VA upper bound|Mamba Cache is allocated)")),
    ("warming_up", re.compile(r"Uvicorn running on ")),
    ("ready", re.compile(r"The server is fired up and ready to roll!")),
)
_WORTH = re.compile(r"server_args=|torch distributed|Load weight|Capture |Cache |Uvicorn running|fired up")


def stage_of(texts: Iterable[str]) -> str | None:
    """Return the step that the last start is in: joining, loading, sizing, capturing, warming_up, ready.

    A step that a rank has begun and not ended is the one the server is in, whatever other ranks have written
    since. None when the log names none.
    """
    open_steps = dict.fromkeys((name for name, _, _ in _STEPS), 0)
    last: str | None = None
    for text in texts:
        if not _WORTH.search(text):
            continue
        if _START.search(text):
            open_steps = dict.fromkeys(open_steps, 0)
            last = None
        for name, begin, end in _STEPS:
            if begin.search(text):
                open_steps[name] += 1
                last = name
            elif end.search(text):
                open_steps[name] = max(0, open_steps[name] - 1)
                last = "sizing" if name == "loading" else name
        last = next((name for name, mark in _MARKS if mark.search(text)), last)
    if last in ("warming_up", "ready"):
        return last
    return next((name for name, number in open_steps.items() if number), last)
