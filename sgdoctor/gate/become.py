"""Becomes a command, with the environment, descriptors and signals that this process was started with."""

from __future__ import annotations

import atexit
import errno
import os
import signal
from collections.abc import Sequence

from sgdoctor.gate.telling import say

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as shells have it

_SHELL = b"/bin/sh"
# Python ignores these two from its start on. A program that is started expects their default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def become(command: Sequence[str]) -> int:
    """Replace this process by ``command``; return a shell's exit code when that cannot be, said in a line."""
    words = [os.fsencode(word) for word in command]
    environment = own_environment()
    atexit._run_exitfuncs()  # noqa: SLF001 (nobody else will: the archive's temporary folder)
    for each in _IGNORED_BY_PYTHON:
        signal.signal(each, signal.SIG_DFL)
    problem, found = errno.ENOENT, b""
    for file in _candidates(words[0], environment):
        failure = _execute(file, words, environment)
        if not found and (os.path.isfile(file) or b"/" in words[0]):  # noqa: PTH113
            problem, found = failure, file
    say(f"{command[0]}: {_reason(problem, found)}")
    return NOT_FOUND if problem == errno.ENOENT else NOT_EXECUTABLE


def _reason(problem: int, found: bytes) -> str:
    if problem != errno.ENOENT or (found and not os.path.exists(found)):  # noqa: PTH110
        return os.strerror(problem)
    return "cannot execute: required file not found" if found else "command not found"


def own_environment() -> dict[bytes, bytes]:
    """Return the environment that this process was started with.

    Python itself sets LC_CTYPE where there is no locale, and a sitecustomize (that of OpenTelemetry takes
    itself out of PYTHONPATH) changes more; none of it is for the command.
    """
    try:
        with open("/proc/self/environ", "rb") as stream:  # noqa: PTH123 (pathlib is slow to import)
            entries = stream.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if name and equals:
            found.setdefault(name, value)  # getenv takes the first of two
    return found


def _candidates(name: bytes, environment: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in name:
        return [name]
    path = environment.get(b"PATH", os.fsencode(os.defpath))
    return [os.path.join(folder, name) for folder in path.split(b":")] if name else []  # noqa: PTH118


def _execute(file: bytes, words: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Execute ``file``, or return the number of the error.

    A script without a first line that says how runs in a shell, as all shells do it.
    """
    problem = _executed(file, words, environment)
    if problem == errno.ENOEXEC and not _binary(file):
        _executed(_SHELL, [_SHELL, file, *words[1:]], environment)
    return problem


def _executed(file: bytes, words: list[bytes], environment: dict[bytes, bytes]) -> int:
    problem = errno.EINVAL
    try:
        os.execve(file, words, environment)  # noqa: S606
    except OSError as error:
        problem = error.errno or problem
    return problem


def _binary(file: bytes) -> bool:
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            return b"\0" in stream.read(256)
    except OSError:
        return True
