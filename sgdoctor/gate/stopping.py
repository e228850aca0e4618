"""Signals that end the gate while it is still checking: then nothing may be launched, nor be left behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Stopped(BaseException):
    """A signal came that ends this process; no ``except Exception`` on the way may stop it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def end(self) -> int:
        """End this process by the signal, so that a shell sees what a command without a gate would show.

        Returns the exit code for it where the signal has no effect: the first process of a container.
        """
        atexit._run_exitfuncs()  # noqa: SLF001 (the archive's temporary folder)
        os.kill(os.getpid(), self.number)
        return 128 + self.number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped for signals that would end this process; afterwards they end it as before.

    What whoever started this process ignores (``nohup``, a shell's background jobs) stays ignored.
    """
    mine = [
        each for each in _ENDING if signal.getsignal(each) in (signal.SIG_DFL, signal.default_int_handler)
    ]

    def stop(number: int, _frame: FrameType | None) -> None:
        release(mine)
        raise Stopped(number)

    for each in mine:
        signal.signal(each, stop)
    try:
        yield
    finally:
        release(mine)


def release(signals: list[signal.Signals]) -> None:
    """Give signals their default action; one that is pending is seen to before."""
    for each in signals:
        signal.signal(each, signal.SIG_DFL)
