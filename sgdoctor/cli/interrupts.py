"""Ctrl-C and SIGTERM while a server is watched: the first ends the watching, and the report comes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgdoctor.sources import Sources

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def ends_the_watching(sources: Sources) -> Iterator[None]:
    """Let the first interrupt end what ``--watch`` began; before that, and at the second, the program stops.

    A signal that is ignored (``nohup``, a job in the background) stays so.
    """
    if sources.watch is None:
        yield
        return
    from sgdoctor import watching

    watching.begin()
    before = {
        number: handler
        for number in _SIGNALS
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }

    def as_before() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def first(number: int, _frame: FrameType | None) -> None:
        as_before()
        if not watching.end():
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        as_before()
