"""`python sglang_tuner_child.py PARENT SCRIPT ...`: become SCRIPT, and die with the process that started it.

Runs with the deployment's interpreter: standard library alone, Python 3.9 and newer.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept across exec


def main() -> None:
    """Ask the kernel for a SIGKILL when the parent ends, then run the script in this process."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])  # noqa: S606 (our own interpreter)


if __name__ == "__main__":
    main()
