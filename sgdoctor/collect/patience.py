"""Work that may never come back: it is given its time and then left behind."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what ``work`` returns, or raise what it raises.

    Raises TimeoutError when it has not come back after ``seconds``. It runs in a daemon thread of its own, so
    that one stuck in a driver, in name resolution or in a read holds up neither the caller nor the exit.
    """
    answers: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:  # noqa: BLE001 (handed over to the caller)
            answers.put((None, error))

    threading.Thread(target=run, name="sgdoctor-probe", daemon=True).start()
    try:
        result, error = answers.get(timeout=max(seconds, 0))
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only where `work` returned None
