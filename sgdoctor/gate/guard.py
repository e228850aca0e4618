"""Decides whether a command is launched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sgdoctor.gate.stopping import Stopped, stoppable
from sgdoctor.gate.telling import say, write

LAUNCH = -1  # instead of an exit code
USAGE, UNDECIDED, INTERNAL = 2, 3, 4
REQUIRE = "--require-known"

_STARTED = time.monotonic()

Progress = Callable[[str], None]


class Answer(NamedTuple):
    """What a check came to: the exit code of `sgdoctor check`, a line that says why, and the report.

    ``blocks``: the command is not launched, whatever is wanted where nothing could be decided.
    """

    code: int
    line: str
    report: str = ""
    blocks: bool = False


def decide(options: Sequence[str], command: Sequence[str]) -> int:
    """Return LAUNCH or the exit code to end with, for the words before and behind ``--``.

    An installation in which not even the options can be read launches, unless it is told not to.
    """
    try:
        with stoppable():
            code = _run(options, command)
    except Stopped as stopped:
        return stopped.end()
    if code in (UNDECIDED, INTERNAL) and command and REQUIRE not in options:
        return LAUNCH
    return code


def _run(options: Sequence[str], command: Sequence[str]) -> int:
    try:
        from sgdoctor.cli.group import run
    except Exception as error:  # noqa: BLE001 (a module that is missing or broken, whichever)
        broken = Answer(INTERNAL, f"sgdoctor does not work here: {type(error).__name__}: {error}")
        return _followed(broken, require_known=REQUIRE in options or not command)
    return run(["gate", *options, *(["--", *command] if command else [])])


def guard(judge: Callable[[Progress], Answer], deadline: float, *, require_known: bool) -> int:
    """Have the command judged within ``deadline`` seconds of the start; return LAUNCH or an exit code."""
    try:
        from sgdoctor.gate.asking import ask

        answer = ask(judge, _STARTED + deadline, f"{deadline:g} s")
    except Exception as error:  # noqa: BLE001 (no more processes, no more descriptors, a broken module)
        answer = Answer(INTERNAL, f"the check did not start: {type(error).__name__}: {error}")
    return _followed(answer, require_known=require_known)


def _followed(answer: Answer, *, require_known: bool) -> int:
    """Say what becomes of the command; return LAUNCH or an exit code."""
    write(answer.report)
    if answer.blocks:
        say(f"{answer.line}; not launched")
        return answer.code
    if answer.code and require_known:
        say(f"{answer.line}; not launched ({REQUIRE})")
        return answer.code
    say(f"{answer.line}; launching")
    return LAUNCH
