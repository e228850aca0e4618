"""Ends a process and all that it started, and takes their exit statuses where they are this process's."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_REAP_SECONDS = 0.5  # one that the kernel does not let go of is not waited for


def end(pid: int | None) -> None:
    """End the process with this number, all its descendants and their process groups."""
    if pid is None:
        return
    _send(pid, signal.SIGSTOP)  # so that it starts nothing meanwhile
    found = [pid, *descendants(pid)]
    for each in found:
        with contextlib.suppress(OSError):
            os.killpg(each, signal.SIGKILL)
        _send(each, signal.SIGKILL)
    for each in found:
        reap(each)


def reap(pid: int | None) -> None:
    """Take the exit status of a process that is ending, if it has become this process's child.

    It does where this is the first process of a container: orphans become its children.
    """
    if pid is None:
        return
    until = time.monotonic() + _REAP_SECONDS
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children and so on."""
    parents = _parents()
    found = [pid]
    for one in found:  # grows while it is gone through
        found += [child for child, parent in parents.items() if parent == one and child not in found]
    return found[1:]


def _parents() -> dict[int, int]:
    """Return the parent of every process that can be seen."""
    found: dict[int, int] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return found
    for name in names:
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123
                fields = stream.read().rpartition(b")")[2].split()
            found[int(name)] = int(fields[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
