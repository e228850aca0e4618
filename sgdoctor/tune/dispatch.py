"""What every pool of workers has: a queue of tasks, who is at what, and what became of it."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

Ending = Literal["done", "error", "crashed", "timeout"]

# A worker that dies this often in a row before it is ready is not started again.
STARTS = 3


@dataclass(frozen=True)
class Outcome:
    """What became of a task: ``value`` is its result when ``ending`` is done, else ``text`` says why not.

    ``worker`` is the place of the worker that had it last, as in ``Dispatcher.abouts``.
    """

    task: Any
    ending: Ending
    value: Any = None
    text: str = ""
    worker: int = 0


class WorkersFailed(Exception):  # noqa: N818 (says what happened)
    """No worker can be started, or two would disturb each other."""


@dataclass(kw_only=True, eq=False)
class Worker:
    """A worker and the tasks that it is at, by their numbers; ``alone``: with one that is tried again."""

    place: int
    ready: bool = False
    alone: bool = False
    tasks: dict[int, Any] = field(default_factory=dict)


AnyWorker = TypeVar("AnyWorker", bound=Worker)
AnyDispatcher = TypeVar("AnyDispatcher", bound="Dispatcher[Any]")


class Dispatcher(Generic[AnyWorker]):
    """Hands tasks to workers, at most ``depth`` at a time to each, and yields what became of them.

    Whoever derives from it starts the workers and says how a task is given (``_give``), how answers are taken
    (``_poll``) and how it all ends (``close``).
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._workers: list[AnyWorker] = []
        self._abouts: dict[int, Any] = {}
        self._waiting: collections.deque[tuple[int, Any]] = collections.deque()
        self._again: collections.deque[tuple[int, Any]] = collections.deque()
        self._ended: collections.deque[Outcome] = collections.deque()
        self._number = 0
        self._never_ready = 0

    def __enter__(self: AnyDispatcher) -> AnyDispatcher:  # noqa: PYI019 (typing has Self from 3.11 on)
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
        return len(self._workers) * self.depth - self._under_way

    @property
    def abouts(self) -> list[Any]:
        """What the workers say of themselves, by their place; null of one that was never ready."""
        return [self._abouts.get(place) for place in range(len(self._workers))]

    @property
    def about(self) -> Any:
        """What the first worker that is ready says of itself; null when none is."""
        return next((about for about in self.abouts if about is not None), None)

    def wait_ready(self, wait: float = math.inf) -> bool:
        """Return whether every worker is ready, after waiting at most ``wait`` seconds for them.

        Raises WorkersFailed when one cannot be started.
        """
        until = time.monotonic() + wait
        while not (ready := all(worker.ready for worker in self._workers)) and time.monotonic() < until:
            self._poll(min(until - time.monotonic(), 1.0))
        return ready

    def submit(self, task: Any) -> None:
        """Queue a task (what JSON can hold)."""
        self._number += 1
        self._waiting.append((self._number, task))
        self._hand_out()

    def outcomes(self, wait: float = 0.0) -> Iterator[Outcome]:
        """Yield what ended, after waiting at most ``wait`` seconds for the first.

        Raises WorkersFailed when workers fail to start or share a GPU.
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
        """End all workers."""
        raise NotImplementedError

    def _give(self, worker: AnyWorker, number: int, task: Any) -> None:
        raise NotImplementedError

    def _poll(self, wait: float) -> None:
        raise NotImplementedError

    @property
    def _under_way(self) -> int:
        begun = sum(len(worker.tasks) for worker in self._workers)
        return len(self._waiting) + len(self._again) + begun

    def _hand_out(self) -> None:
        for worker in self._workers:
            if self._again and worker.ready and not worker.tasks:
                worker.alone = True
                self._begin(worker, *self._again.popleft())
        for level in range(self.depth):
            for worker in self._workers:
                if not self._waiting:
                    return
                if worker.ready and len(worker.tasks) == level and not (level and worker.alone):
                    worker.alone = False
                    self._begin(worker, *self._waiting.popleft())

    def _begin(self, worker: AnyWorker, number: int, task: Any) -> None:
        self._give(worker, number, task)
        worker.tasks[number] = task

    def _came_up(self, worker: AnyWorker, about: Any) -> None:
        """Take up a worker that is ready; raises WorkersFailed when its GPU has one already."""
        worker.ready = True
        self._never_ready = 0
        self._abouts[worker.place] = about
        check_distinct(self.abouts)

    def _went_down(self, worker: AnyWorker, text: str) -> None:
        """Count a worker that died before it was ready; raises WorkersFailed when none comes up."""
        if not worker.ready:
            self._never_ready += 1
            if self._never_ready >= STARTS:
                raise WorkersFailed(text)

    def _end(self, worker: AnyWorker, number: int, ending: Ending, value: Any = None, text: str = "") -> None:
        """Note what became of a task."""
        self._ended.append(Outcome(worker.tasks.pop(number), ending, value, text, worker.place))


def check_distinct(abouts: Sequence[Any]) -> None:
    """Raise WorkersFailed when two workers run on one GPU: their times would mean nothing."""
    uuids = [about["uuid"] for about in abouts if isinstance(about, Mapping) and about.get("uuid")]
    twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
    if twice:
        raise WorkersFailed(
            f"two workers run on the same GPU, {twice[0]}: each needs a CUDA_VISIBLE_DEVICES of its own"
        )
