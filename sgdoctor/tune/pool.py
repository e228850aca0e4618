"""Worker processes and what becomes of their tasks: an answer, an error, a crash or a time-out, no hang."""

from __future__ import annotations

import collections
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

# What a child that just started is given: importing torch and filling the GPU take a while.
_START_SECONDS = 120.0

Ending = Literal["done", "error", "crashed", "timeout"]


@dataclass(frozen=True)
class Outcome:
    """What became of a task: ``value`` is its result when ``ending`` is done, else ``text`` says why not."""

    task: Any
    ending: Ending
    value: Any = None
    text: str = ""


class WorkersFailed(Exception):  # noqa: N818 (says what happened)
    """No worker can be started."""


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    connection: socket.socket
    buffer: bytes = b""
    ready: bool = False
    deadline: float = 0.0
    tasks: dict[int, Any] = field(default_factory=dict)


class Pool:
    """``size`` children of one role, each with up to ``depth`` tasks at a time.

    ``python`` is the interpreter that has torch and Triton. A child that says nothing for ``timeout`` seconds
    while it has a task is killed; so is none without a task. Dead children are replaced; a task on which one
    died is reported, never tried again here.
    """

    def __init__(
        self,
        role: str,
        settings: Mapping[str, Any],
        *,
        size: int = 1,
        depth: int = 1,
        timeout: float = 60.0,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.role = role
        self.settings = dict(settings)
        self.depth = depth
        self.timeout = timeout
        self.python = python
        self.environment = dict(environment or {})
        self.about: Any = None
        self._selector = selectors.DefaultSelector()
        self._children: list[_Child] = []
        self._waiting: collections.deque[tuple[int, Any]] = collections.deque()
        self._number = 0
        self._never_ready = 0
        for _ in range(size):
            self._start()

    def __enter__(self) -> Pool:  # noqa: PYI034 (typing has Self from 3.11 on)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unfinished(self) -> int:
        """How many tasks have no outcome yet."""
        return len(self._waiting) + sum(len(child.tasks) for child in self._children)

    @property
    def free(self) -> int:
        """How many tasks could be begun at once."""
        return len(self._children) * self.depth - self.unfinished

    def submit(self, task: Any) -> None:
        """Queue a task (what JSON can hold)."""
        self._number += 1
        self._waiting.append((self._number, task))
        self._hand_out()

    def outcomes(self, wait: float = 0.0) -> Iterator[Outcome]:
        """Yield what ended, after waiting at most ``wait`` seconds for the first.

        Raises WorkersFailed when children fail to start.
        """
        until = time.monotonic() + wait
        while True:
            ended = list(self._poll(max(0.0, min(until - time.monotonic(), 1.0))))
            self._hand_out()
            yield from ended
            if ended or time.monotonic() >= until or not self.unfinished:
                return

    def close(self) -> None:
        """End all children."""
        for child in self._children:
            self._stop(child)
        self._children.clear()
        self._selector.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [self.python, "-m", "sgdoctor.tune.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **self.environment, "PYTHONPATH": path},
            start_new_session=True,
        )
        theirs.close()
        child = _Child(process, ours, deadline=time.monotonic() + _START_SECONDS)
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        self._send(child, {"role": self.role, "settings": self.settings})

    def _hand_out(self) -> None:
        for level in range(self.depth):
            for child in self._children:
                if not self._waiting:
                    return
                if child.ready and len(child.tasks) == level:
                    number, task = self._waiting.popleft()
                    if not child.tasks:
                        child.deadline = time.monotonic() + self.timeout
                    child.tasks[number] = task
                    self._send(child, {"id": number, **task})

    def _send(self, child: _Child, message: dict[str, Any]) -> None:
        try:
            child.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            child.deadline = 0.0  # it is dead; _poll says so of its tasks

    def _poll(self, wait: float) -> Iterator[Outcome]:
        for key, _ in self._selector.select(wait):
            yield from self._read(key.data)
        now = time.monotonic()
        for child in list(self._children):
            if (child.tasks or not child.ready) and now > child.deadline:
                yield from self._lost(child, "timeout", f"no answer within {self.timeout:.0f} s")

    def _read(self, child: _Child) -> Iterator[Outcome]:
        try:
            data = child.connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            yield from self._lost(child, "crashed", "")
            return
        *lines, child.buffer = (child.buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            child.deadline = time.monotonic() + self.timeout
            if "failed" in message:
                raise WorkersFailed(message["failed"])
            if "ready" in message:
                child.ready = True
                self.about = message["ready"]
                self._never_ready = 0
                continue
            task = child.tasks.pop(message["id"])
            if "error" in message:
                yield Outcome(task, "error", text=message["error"])
            else:
                yield Outcome(task, "done", message["result"])

    def _lost(self, child: _Child, ending: Ending, text: str) -> Iterator[Outcome]:
        """Bury a child: its tasks get their outcome, and another takes its place."""
        status = self._stop(child)
        self._children.remove(child)
        if not text:
            text = f"died of {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
        if not child.ready:
            self._never_ready += 1
            if self._never_ready > 2:
                raise WorkersFailed(f"a {self.role} worker {text} before it was ready")
        for task in child.tasks.values():
            yield Outcome(task, ending, text=text)
        self._start()

    def _stop(self, child: _Child) -> int:
        self._selector.unregister(child.connection)
        child.connection.close()
        try:
            status = child.process.wait(timeout=0.5 if not child.tasks else 0.05)
        except subprocess.TimeoutExpired:
            child.process.kill()
            status = child.process.wait()
        return status
