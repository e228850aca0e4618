"""``sgdoctor gate``: checks a launch command on this machine, then becomes it.

This process stays as it was started: it imports little, starts no thread, and leaves the check to a process
of its own (:mod:`sgdoctor.gate.asking`), so that what it becomes finds nothing of sgdoctor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from sgdoctor.gate.become import become

SWITCH = "SGDOCTOR_GATE"
_OFF = frozenset({"off", "0", "no", "false"})


def main(arguments: Sequence[str]) -> int:
    """Run ``sgdoctor gate`` with the words behind ``gate``: become the command, or return an exit code."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    command = arguments[at + 1 :]
    if command and os.environ.get(SWITCH, "").lower() in _OFF:
        return become(command)
    from sgdoctor.gate.guard import LAUNCH, decide

    code = decide(arguments[:at], command)
    return become(command) if code == LAUNCH else code
