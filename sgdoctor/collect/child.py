"""Child processes of a probe: with a timeout, never raising, their whole group ended when time is up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import msgspec


class Ended(msgspec.Struct, frozen=True):
    """How a child ended: its output and exit status, or why there is none."""

    stdout: str = ""
    stderr: str = ""
    status: int | None = None  # negative: the signal that ended it; null: it did not end by itself
    failure: str | None = None  # why it could not be started or did not finish; null: it ended by itself


def run(
    command: Sequence[str],
    timeout: float,
    *,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run ``command`` in the root folder, for at most ``timeout`` seconds."""
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",  # nothing of the operator's folder is importable by accident
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        return Ended(failure=f"{command[0]}: {error.strerror or error}")
    except ValueError as error:  # a NUL in a path
        return Ended(failure=f"{command[0]!r}: {error}")
    with child:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            return Ended(failure=f"{command[0]} did not finish within {timeout:g} s")
    return Ended(out.decode(errors="replace"), err.decode(errors="replace"), child.returncode)
