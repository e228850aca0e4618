"""A worker process, as sgdoctor.tune.pool starts it: JSON lines in and out over a socket.

The first line names the role and its settings, the first answer says that it is ready. Every further line is
a task with an id, and gets one answer with that id. A task may be begun before the one before has ended, so
that the GPU does not wait for the host. A process that cannot go on says what broke, and ends without an
answer to any task it was at: which of them broke it, it cannot know.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import socket
import subprocess
import time
from typing import Any

BROKEN = 70


class _Lines:
    """JSON lines over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.buffer = b""

    def waiting(self) -> bool:
        """Whether a line can be read at once."""
        return b"\n" in self.buffer or bool(select.select([self.connection], [], [], 0)[0])

    def read(self) -> dict[str, Any] | None:
        """Return the next line; null when the parent is gone."""
        while b"\n" not in self.buffer:
            try:
                data = self.connection.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def write(self, message: dict[str, Any]) -> None:
        """Send one line."""
        self.connection.sendall(json.dumps(message).encode() + b"\n")


class _Role:
    """What a worker does with a task, in two steps."""

    about: Any = None

    def start(self, task: dict[str, Any]) -> Any:
        raise NotImplementedError

    def finish(self, begun: Any) -> Any:
        return begun


def _role(name: str, settings: dict[str, Any]) -> Any:
    if name == "compile":
        from sgdoctor.tune.compile import Compiler

        compiler = Compiler(**settings)
        role = _Role()
        role.start = compiler.run  # type: ignore[method-assign]
        return role
    if name == "measure":
        from sgdoctor.tune.measure import Worker

        return Worker(**settings)
    if name == "replay_compile":
        from sgdoctor.tune.replay import ReplayCompiler

        role = _Role()
        role.start = ReplayCompiler(**settings).run  # type: ignore[method-assign]
        return role
    if name == "replay":
        from sgdoctor.tune.replay import ReplayWorker

        return ReplayWorker(**settings)
    if name == "echo":
        role = _Role()
        role.start = _echo  # type: ignore[method-assign]
        return role
    raise ValueError(f"no role {name}")


def _echo(task: dict[str, Any]) -> Any:
    """Do what a test asks for: answer, raise, hang or die."""
    if "raise" in task:
        raise ValueError(task["raise"])
    if "sleep" in task:
        time.sleep(task["sleep"])
    if "signal" in task:
        os.kill(os.getpid(), task["signal"])
    if "break" in task:
        from sgdoctor.tune.measure import DeviceBroken

        raise DeviceBroken(task["break"])
    if "import" in task:
        importlib.import_module(task["import"])
    if "run" in task:
        subprocess.run(task["run"], check=True)
    if "environment" in task:
        return [os.environ.get(name) for name in task["environment"]]
    return task.get("say")


def serve(connection: socket.socket) -> int:
    """Work until the parent closes the connection; return the exit status."""
    lines = _Lines(connection)
    first = lines.read()
    if first is None:
        return 0
    try:
        role = _role(first["role"], first["settings"])
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent is told)
        lines.write({"failed": _text(error)})
        return 1
    lines.write({"ready": role.about})
    begun: list[tuple[int, Any]] = []
    while True:
        if begun and not lines.waiting():
            if not _finish(role, begun, lines):
                return BROKEN
            continue
        task = lines.read()
        if task is None:
            return 0
        try:
            begun.append((task["id"], role.start(task)))
        except Exception as error:  # noqa: BLE001 (the task's result)
            if not _told(error, task["id"], lines):
                return BROKEN
        if len(begun) > 1 and not _finish(role, begun, lines):
            return BROKEN


def _finish(role: Any, begun: list[tuple[int, Any]], lines: _Lines) -> bool:
    """Answer the oldest task begun; false when the process cannot go on."""
    number, work = begun.pop(0)
    try:
        lines.write({"id": number, "result": role.finish(work)})
    except Exception as error:  # noqa: BLE001 (the task's result)
        return _told(error, number, lines)
    return True


def _told(error: Exception, number: int, lines: _Lines) -> bool:
    """Send a task's error, or that the process is broken; false when it cannot go on."""
    if type(error).__name__ == "DeviceBroken":
        lines.write({"broken": _text(error)})
        return False
    lines.write({"id": number, "error": _text(error)})
    return True


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def main(descriptor: int) -> int:
    """Work over the socket that was inherited as ``descriptor``; return the exit status."""
    try:
        return serve(socket.socket(fileno=descriptor))
    except ConnectionError:  # the parent went away while an answer was on its way
        return 0
