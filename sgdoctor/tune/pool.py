"""Worker processes and what becomes of their tasks: an answer, an error, a crash or a time-out, no hang."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sgdoctor.errors import UsageError

# What a child that just started is given: importing torch and filling the GPU take a while.
START_SECONDS = 120.0

# A worker that dies this often in a row before it is ready is not started again.
STARTS = 3

# The child is the deployment's interpreter with the deployment's packages. Of what lies beside sgdoctor, which
# may be of another environment and another Python, it must see nothing: sgdoctor alone is loaded, by its
# place. The current folder is no place for modules. The kernel ends the child when the parent is killed
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

Ending = Literal["done", "error", "crashed", "timeout"]


@dataclass(frozen=True)
class Outcome:
    """What became of a task: ``value`` is its result when ``ending`` is done, else ``text`` says why not.

    ``worker`` is the place of the worker that had it last, as in ``Pool.abouts``.
    """

    task: Any
    ending: Ending
    value: Any = None
    text: str = ""
    worker: int = 0


class WorkersFailed(Exception):  # noqa: N818 (says what happened)
    """No worker can be started, or two would disturb each other."""


@dataclass
class _Child:
    place: int
    process: subprocess.Popen[bytes]
    connection: socket.socket
    deadline: float
    buffer: bytes = b""
    ready: bool = False
    alone: bool = False  # its task is tried again, and nothing else beside it
    broken: str = ""
    tasks: dict[int, Any] = field(default_factory=dict)


class Pool:
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
        self.role = role
        self.environments = [{**(environment or {}), **own} for own in environments or [{}] * size]
        each = [settings] * len(self.environments) if isinstance(settings, Mapping) else settings
        if len(each) != len(self.environments):
            raise ValueError(f"{len(each)} settings for {len(self.environments)} workers")
        self.settings = [dict(own) for own in each]
        self.depth = depth
        self.timeout = timeout
        self.python = python
        self._abouts: dict[int, Any] = {}
        self._selector = selectors.DefaultSelector()
        self._children: list[_Child] = []
        self._waiting: collections.deque[tuple[int, Any]] = collections.deque()
        self._suspects: collections.deque[tuple[int, Any]] = collections.deque()
        self._ended: collections.deque[Outcome] = collections.deque()
        self._number = 0
        self._never_ready = 0
        for place in range(len(self.environments)):
            self._start(place)

    def __enter__(self) -> Pool:  # noqa: PYI034 (typing has Self from 3.11 on)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unfinished(self) -> int:
        """How many tasks have an outcome still to come."""
        return len(self._ended) + self._under_way

    @property
    def free(self) -> int:
        """How many tasks could be begun at once."""
        return len(self._children) * self.depth - self._under_way

    @property
    def abouts(self) -> list[Any]:
        """What the workers say of themselves, by their place; null of one that was never ready."""
        return [self._abouts.get(place) for place in range(len(self.environments))]

    @property
    def about(self) -> Any:
        """What the first worker says of itself; null before it was ready."""
        return self._abouts.get(0)

    def wait_ready(self) -> None:
        """Wait until every worker is ready; raises WorkersFailed when one cannot be started."""
        while not all(child.ready for child in self._children):
            self._poll(1.0)

    def submit(self, task: Any) -> None:
        """Queue a task (what JSON can hold)."""
        self._number += 1
        self._waiting.append((self._number, task))
        self._hand_out()

    def outcomes(self, wait: float = 0.0) -> Iterator[Outcome]:
        """Yield what ended, after waiting at most ``wait`` seconds for the first.

        Raises WorkersFailed when children fail to start or share a GPU.
        """
        until = time.monotonic() + wait
        while True:
            self._poll(0.0 if self._ended else max(0.0, min(until - time.monotonic(), 1.0)))
            self._hand_out()
            if self._ended or time.monotonic() >= until or not self.unfinished:
                break
        for _ in range(len(self._ended)):
            yield self._ended.popleft()

    def close(self) -> None:
        """End all children."""
        for child in self._children:
            self._disconnect(child)
        for child in self._children:
            _reap(child)
        self._children.clear()
        self._selector.close()

    @property
    def _under_way(self) -> int:
        begun = sum(len(child.tasks) for child in self._children)
        return len(self._waiting) + len(self._suspects) + begun

    def _start(self, place: int) -> None:
        package = Path(__file__).parents[1]
        if not (package / "__init__.py").is_file():
            raise UsageError(
                f"sgdoctor's workers cannot be started out of an archive ({package}): install sgdoctor with pip"
            )
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [self.python, "-c", _BOOTSTRAP, str(package), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **self.environments[place]},
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(self.timeout)  # a child that hangs reads nothing, and the buffer is finite
        child = _Child(place, process, ours, deadline=time.monotonic() + START_SECONDS)
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        self._send(child, {"role": self.role, "settings": self.settings[place]})

    def _hand_out(self) -> None:
        for child in self._children:
            if self._suspects and child.ready and not child.tasks:
                child.alone = True
                self._give(child, *self._suspects.popleft())
        for level in range(self.depth):
            for child in self._children:
                if not self._waiting:
                    return
                if child.ready and len(child.tasks) == level and not (level and child.alone):
                    child.alone = False
                    self._give(child, *self._waiting.popleft())

    def _give(self, child: _Child, number: int, task: Any) -> None:
        if not child.tasks:
            child.deadline = time.monotonic() + self.timeout
        child.tasks[number] = task
        self._send(child, {"id": number, **task})

    def _send(self, child: _Child, message: dict[str, Any]) -> None:
        try:
            child.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            child.deadline = 0.0  # it is dead; _poll says so of its tasks

    def _poll(self, wait: float) -> None:
        for key, _ in self._selector.select(wait):
            self._read(key.data)
        now = time.monotonic()
        for child in list(self._children):
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
            child.ready = True
            self._never_ready = 0
            self._abouts[child.place] = message["ready"]
            check_distinct(self.abouts)
        elif "broken" in message:
            child.broken = message["broken"]
        elif "error" in message:
            task = child.tasks.pop(message["id"])
            self._ended.append(Outcome(task, "error", text=message["error"], worker=child.place))
        else:
            task = child.tasks.pop(message["id"])
            self._ended.append(Outcome(task, "done", message["result"], worker=child.place))

    def _lost(self, child: _Child, ending: Ending, text: str) -> None:
        """Bury a child: what it was at is reported or tried again, and another takes its place."""
        self._disconnect(child)
        status = _reap(child)
        self._children.remove(child)
        if not text:
            text = f"died of {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
        if not child.ready:
            self._never_ready += 1
            if self._never_ready >= STARTS:
                raise WorkersFailed(f"a {self.role} worker {text} before it was ready")
        if len(child.tasks) > 1:
            self._suspects.extend(child.tasks.items())
        else:
            for task in child.tasks.values():
                self._ended.append(Outcome(task, ending, text=text, worker=child.place))
        self._start(child.place)

    def _disconnect(self, child: _Child) -> None:
        self._selector.unregister(child.connection)
        child.connection.close()


def check_distinct(abouts: Sequence[Any]) -> None:
    """Raise WorkersFailed when two workers run on one GPU: their times would mean nothing."""
    uuids = [about["uuid"] for about in abouts if isinstance(about, Mapping) and about.get("uuid")]
    twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
    if twice:
        raise WorkersFailed(
            f"two workers run on the same GPU, {twice[0]}: each needs a CUDA_VISIBLE_DEVICES of its own"
        )


def _reap(child: _Child) -> int:
    """End a child that was disconnected, with what it started (ptxas), and return its status."""
    try:
        return child.process.wait(timeout=0.05 if child.tasks else 0.5)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)  # it leads a session of its own
        return child.process.wait()
