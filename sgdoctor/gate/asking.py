"""Has a check made by a process of its own, for so long and no longer, and leaves nothing of it behind.

A driver can hang in C, even in the kernel, where no timeout within the process helps. The process that
checks is therefore ended from outside, with all that it started. It is a grandchild: one that cannot be ended
becomes the init process's, and whatever this process becomes has no child that it does not know.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from sgdoctor.gate.guard import INTERNAL, UNDECIDED, Answer, Progress
from sgdoctor.gate.processes import end, reap

_GRACE = 2  # seconds after which the check ends itself, were nobody there to do it
_PROCESS, _DOING, _ANSWER = b"#", b"~", b"="  # what a line on the pipe is


def ask(judge: Callable[[Progress], Answer], until: float, within: str) -> Answer:
    """Return what ``judge`` returns in another process, or why it did not before ``until`` (monotonic time).

    ``within`` is the time that it had, in words. Raises OSError when no process can be had.
    """
    reading, writing = (_above_standard(descriptor) for descriptor in os.pipe())
    said = bytearray()
    finished = False
    try:
        _start(judge, writing, until)
        os.close(writing)
        finished = _listen(reading, said, until)
    finally:
        if not finished:
            _end(reading, said)
        os.close(reading)
    if not finished:
        doing = [line[1:] for line in said.split(b"\n") if line[:1] == _DOING]
        last = f" ({doing[-1].decode(errors='replace')})" if doing else ""
        return Answer(UNDECIDED, f"no result within {within}{last}")
    reap(_process(said))
    return _answer(bytes(said))


def _above_standard(descriptor: int) -> int:
    """Return the descriptor under a number that is none of the standard streams', which may be closed."""
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _start(judge: Callable[[Progress], Answer], writing: int, until: float) -> None:
    middle = os.fork()
    if not middle:
        with contextlib.suppress(BaseException):
            if not os.fork():
                _work(judge, writing, until)
        os._exit(0)
    with contextlib.suppress(ChildProcessError):  # SIGCHLD may be ignored
        os.waitpid(middle, 0)


def _listen(reading: int, said: bytearray, until: float) -> bool:
    """Read to the end; return False when time was up before."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while poll.poll(max(until - time.monotonic(), 0) * 1000):
        part = os.read(reading, 1 << 16)
        if not part:
            return True
        said += part
    return False


def _end(reading: int, said: bytearray) -> None:
    """End the check; one that has only just begun is given the time to say which process it is."""
    if _process(said) is None:
        _listen(reading, said, time.monotonic() + 0.1)
    end(_process(said))


def _process(said: bytearray) -> int | None:
    first = bytes(said).partition(b"\n")
    return int(first[0][1:]) if first[1] and first[0][:1] == _PROCESS else None


def _answer(said: bytes) -> Answer:
    _, found, answer = said.partition(b"\n" + _ANSWER)
    if not found:
        return Answer(INTERNAL, "the check died")
    code, blocks, line, report = answer.decode(errors="backslashreplace").split("\n", 3)
    return Answer(int(code), line, report, blocks == "True")


# --- in the process that checks -----------------------------------------------------------------------------


def _work(judge: Callable[[Progress], Answer], writing: int, until: float) -> NoReturn:
    """Check, write down the answer and end, without a way back into what was copied from the gate."""
    try:
        os.setsid()
        _write(writing, _PROCESS, str(os.getpid()))
        _limit(until)
        _isolate(writing)
        try:
            answer = judge(lambda what: _write(writing, _DOING, what))
        except BaseException as error:  # noqa: BLE001 (whatever it is, production goes on)
            answer = _broken(error)
        line = " ".join(answer.line.split())
        _write(writing, _ANSWER, f"{answer.code}\n{answer.blocks}\n{line}\n{answer.report}")
    finally:
        os._exit(0)


def _write(writing: int, kind: bytes, text: str) -> None:
    rest = kind + text.encode(errors="backslashreplace")
    rest += b"\n" if kind != _ANSWER else b""
    while rest:
        rest = rest[os.write(writing, rest) :]


def _limit(until: float) -> None:
    """Have the kernel end this process, should the gate be ended before it."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, max(until - time.monotonic(), 0) + _GRACE)


def _isolate(writing: int) -> None:
    """Let go of all that is the command's: its input, its output, its sockets, what it reads from pipes."""
    for number in _descriptors():
        if number > 2 and number != writing:
            with contextlib.suppress(OSError):
                os.close(number)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.stdout = sys.stderr  # whose width and colours the report is for


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:
        return list(range(256))


def _broken(error: BaseException) -> Answer:
    import traceback

    if os.environ.get("SGDOCTOR_DEBUG"):
        traceback.print_exception(type(error), error, error.__traceback__)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {'/'.join(frames[-1].filename.split('/')[-2:])}:{frames[-1].lineno}" if frames else ""
    return Answer(INTERNAL, f"the check broke: {type(error).__name__}: {error}{place}")
