"""Worker processes and what becomes of their tasks: an answer, an error, a crash or a time-out, no hang."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgdoctor.errors import UsageError
from sgdoctor.tune.dispatch import Dispatcher, Ending, Outcome, Worker, WorkersFailed

# What a child that just started is given: importing torch and filling the GPU take a while.
START_SECONDS = 120.0

# The child is the deployment's interpreter with the deployment's packages. Of what lies beside sgdoctor,
# maybe of another environment and Python, it must see nothing: sgdoctor alone is loaded, by its place.
# The current folder is no place for modules. The kernel ends the child when the parent is killed
# (PR_SET_PDEATHSIG), even one that hangs and does not read that its connection was closed.
_BOOTSTRAP = """\
import sys
sys.path[:] = [place for place in sys.path if place]
import importlib.util, os, signal
folder, connection = sys.argv[1:]
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except (ImportError, OSError, AttributeError):
    pass
spec = importlib.util.spec_from_file_location(
    "sgdoctor", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
)
sys.modules["sgdoctor"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from sgdoctor.tune.child import main
sys.exit(main(int(connection)))
"""

__all__ = ["START_SECONDS", "Outcome", "Pool", "WorkersFailed"]


@dataclass(kw_only=True, eq=False)
class _Child(Worker):
    process: subprocess.Popen[bytes]
    connection: socket.socket
    deadline: float
    buffer: bytes = b""
    broken: str = ""


class Pool(Dispatcher[_Child]):
    """Children of one role, each with up to ``depth`` tasks at a time.

    ``python`` is the interpreter that has torch and Triton. There are ``size`` children, or one for each of
    ``environments``: what is added for that child (and for its successor) to this process's environment and
    to ``environment``. ``settings`` are the role's, the same for all or one for each. A child that says
    nothing for ``timeout`` seconds while it has a task is killed; so is none without a task. Dead children
    are replaced. Children end with this process, and with the thread that started them.

    A child begins a task before the one before has ended, and what a task leaves on the GPU may break the
    next. So a task on which a child died is only reported when it was the child's only one. Of several, each
    is tried once more, alone: the innocent get their answer, and the guilty is known.

    Raises UsageError when sgdoctor is not in a folder, ValueError for settings that do not match.
    """

    def __init__(
        self,
        role: str,
        settings: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        size: int = 1,
        depth: int = 1,
        timeout: float = 60.0,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        environments: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(depth)
        self.role = role
        self.environments = [{**(environment or {}), **own} for own in environments or [{}] * size]
        each = [settings] * len(self.environments) if isinstance(settings, Mapping) else settings
        if len(each) != len(self.environments):
            raise ValueError(f"{len(each)} settings for {len(self.environments)} workers")
        self.settings = [dict(own) for own in each]
        self.timeout = timeout
        self.python = python
        self._selector = selectors.DefaultSelector()
        for place in range(len(self.environments)):
            self._start(place)

    def close(self) -> None:
        """End all children."""
        for child in self._workers:
            self._disconnect(child)
        for child in self._workers:
            _reap(child)
        self._workers.clear()
        self._selector.close()

    def _start(self, place: int) -> None:
        package = Path(__file__).parents[1]
        if not (package / "__init__.py").is_file():
            raise UsageError(
                f"{package} is no folder, and workers cannot be started out of an archive: "
                "install sgdoctor with pip"
            )
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    [self.python, "-c", _BOOTSTRAP, str(package), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, **self.environments[place]},
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(self.timeout)  # a child that hangs reads nothing, and the buffer is finite
        deadline = time.monotonic() + START_SECONDS
        child = _Child(place=place, process=process, connection=ours, deadline=deadline)
        self._workers.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        self._send(child, {"role": self.role, "settings": self.settings[place]})

    def _give(self, worker: _Child, number: int, task: Any) -> None:
        if not worker.tasks:
            worker.deadline = time.monotonic() + self.timeout
        self._send(worker, {"id": number, **task})

    def _send(self, child: _Child, message: dict[str, Any]) -> None:
        try:
            child.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            child.deadline = 0.0  # it is dead; _poll says so of its tasks

    def _poll(self, wait: float) -> None:
        for key, _ in self._selector.select(wait):
            self._read(key.data)
        now = time.monotonic()
        for child in list(self._workers):
            if (child.tasks or not child.ready) and now > child.deadline:
                seconds = self.timeout if child.ready else START_SECONDS
                self._lost(child, "timeout", f"no answer within {seconds:.0f} s")

    def _read(self, child: _Child) -> None:
        try:
            data = child.connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._lost(child, "crashed", child.broken)
            return
        *lines, child.buffer = (child.buffer + data).split(b"\n")
        for line in lines:
            child.deadline = time.monotonic() + self.timeout
            self._take(child, json.loads(line))

    def _take(self, child: _Child, message: dict[str, Any]) -> None:
        """Do with an answer what is due."""
        if "failed" in message:
            raise WorkersFailed(message["failed"])
        if "ready" in message:
            self._came_up(child, message["ready"])
        elif "broken" in message:
            child.broken = message["broken"]
        elif "error" in message:
            self._end(child, message["id"], "error", text=message["error"])
        else:
            self._end(child, message["id"], "done", message["result"])

    def _lost(self, child: _Child, ending: Ending, text: str) -> None:
        """Bury a child: what it was at is reported or tried again, and another takes its place."""
        self._disconnect(child)
        status = _reap(child)
        self._workers.remove(child)
        if not text:
            text = f"died of {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
        self._went_down(child, f"a {self.role} worker {text} before it was ready")
        if len(child.tasks) > 1:
            self._again.extend(child.tasks.items())
        elif child.tasks:
            self._end(child, next(iter(child.tasks)), ending, text=text)
        self._start(child.place)

    def _disconnect(self, child: _Child) -> None:
        self._selector.unregister(child.connection)
        child.connection.close()


def _reap(child: _Child) -> int:
    """End a child that was disconnected, with what it started (ptxas), and return its status."""
    try:
        return child.process.wait(timeout=0.05 if child.tasks else 0.5)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)  # it leads a session of its own
        return child.process.wait()
