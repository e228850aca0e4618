"""A line on standard error while something takes long, when somebody is looking at it."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from types import TracebackType

PATIENCE = 1.0  # seconds before the line appears
PERIOD = 0.2  # seconds between its updates


class Progress:
    """Shows what is being done and for how long, from the first second on; leaves nothing behind."""

    def __init__(self) -> None:
        self._what = "looking"
        self._since = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, what: str) -> None:
        """Tell what is being done now."""
        self._what = what

    def __enter__(self) -> Progress:  # noqa: PYI034 (Self is newer than Python 3.10)
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._done.wait(PATIENCE):
            return
        while True:
            line = f"sgdoctor: {self._what} ({time.monotonic() - self._since:.0f} s)"
            _write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            if self._done.wait(PERIOD):
                break
        _write("\r\x1b[K")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return
