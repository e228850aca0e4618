"""Where a tuner is, on standard error: a display in place on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from sgdoctor.cli.output import complain
from sgdoctor.tune.model import Progress

PERIOD = 10.0  # seconds between two lines
_PER_LINE = 6  # batch sizes


class Tuning:
    """Listens to a tuner; ``interactive`` says whether standard error is a terminal."""

    def __init__(self, *, interactive: bool | None = None) -> None:
        on_terminal = sys.stderr is not None and sys.stderr.isatty()
        self.interactive = on_terminal if interactive is None else interactive
        self._live: Any = None
        self._doing = ""
        self._said = 0.0

    def __enter__(self) -> Tuning:  # noqa: PYI034 (typing has Self from 3.11 on)
        if self.interactive:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show where the tuner is."""
        if self._live is not None:
            self._live.update(_display(progress), refresh=True)
            return
        moment = time.monotonic()
        if progress.doing != self._doing or moment - self._said >= PERIOD:
            self._doing, self._said = progress.doing, moment
            complain(line(progress))


def line(progress: Progress) -> str:
    """Return where a tuner is, in a line."""
    said = f"{progress.doing}: {progress.done} of {progress.total}"
    if progress.best:
        said += f"; {len(progress.best)} batch sizes, {_best(progress.best)}"
    return said + _left(progress)


def _best(best: Mapping[int, float]) -> str:
    highest = max(best, key=lambda tokens: best[tokens])
    tokens = "1 token" if highest == 1 else f"{highest} tokens"
    return f"best {best[highest]:.2f}x over the default at {tokens}"


def _left(progress: Progress) -> str:
    if progress.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"; about {minutes}:{seconds:02} left"


def _display(progress: Progress) -> Any:
    """Return a bar and, for every batch size, the best so far against the built-in default."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text(progress.doing),
        ProgressBar(total=max(1, progress.total), completed=progress.done, width=30),
        Text(f"{progress.done}/{progress.total}{_left(progress)}"),
    )
    found = Table.grid(padding=(0, 2))
    cells = [f"{tokens:>6} {ratio:5.2f}x" for tokens, ratio in sorted(progress.best.items())]
    for start in range(0, len(cells), _PER_LINE):
        found.add_row(*cells[start : start + _PER_LINE])
    title = [Text("best so far over the built-in default, by tokens", style="dim")] if cells else []
    return Group(head, *title, found)
