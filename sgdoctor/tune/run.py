"""Hands tasks to the workers and keeps what comes back: in the journal first, then in memory."""

from __future__ import annotations

import collections
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.tune.journal import Journal
from sgdoctor.tune.model import Job, Listener, Pair, Progress
from sgdoctor.tune.points import Key, Points
from sgdoctor.tune.pool import Outcome, WorkersFailed
from sgdoctor.tune.space import Config, shared_memory_limit
from sgdoctor.tune.workers import Workers

Task = dict[str, Any]

_WAIT = 0.1
_SAY_EVERY = 0.25
_REFERENCE_TOKENS = 64
_ALONE = "alone"
_STARTS = 2  # a task that was under way when the tuner was killed this often is not tried again


class Run:
    """One tuning under way: its job, workers, journal and what is known so far."""

    def __init__(self, job: Job, workers: Workers, journal: Journal, listen: Listener | None = None) -> None:
        self.job = job
        self.workers = workers
        self.journal = journal
        self.points = Points()
        self.started = time.monotonic()
        self.best: dict[int, float] = {}
        self.left: Callable[[float], float | None] = lambda _fraction: None
        self._listen = listen
        self._said = 0.0
        for number, record in enumerate(journal.records, 2):  # the first line is the identity
            self._recall(number, record)

    def _recall(self, number: int, record: dict[str, Any]) -> None:
        try:
            self.points.add(record)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.journal.path}: line {number} is no record of this release of sgdoctor; move the file "
                "away, and tune anew"
            ) from error

    def keep(self, record: dict[str, Any]) -> None:
        """Write a record and take it in. Raises Undecided when the disk is full."""
        try:
            self.journal.append(record)
        except OSError as error:
            raise Undecided(
                f"{self.journal.path}: {error.strerror}; make room and run the same command again: it goes on"
            ) from error
        self.points.add(record)

    def say(self, doing: str, done: int, total: int, *, now: bool = False) -> None:
        """Tell the listener where the run is, a few times a second at most."""
        moment = time.monotonic()
        if self._listen is None or (moment - self._said < _SAY_EVERY and not now):
            return
        self._said = moment
        left = self.left(done / total if total else 1.0)
        self._listen(Progress(doing, done, total, dict(self.best), left))

    def due(self) -> bool:
        """Whether the listener is to hear something again."""
        return self._listen is not None and time.monotonic() - self._said >= _SAY_EVERY

    def about(self) -> dict[str, Any]:
        """Return what the first measuring worker that is ready said of its GPU."""
        return self.workers.measure.about or {}

    def __enter__(self) -> Run:  # noqa: PYI034 (typing has Self from 3.11 on)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Note that a run that does not come to its end was stopped, not killed by what was under way."""
        if kind is not None:
            with contextlib.suppress(Undecided):  # a full disk
                self.keep({"stopped": True})

    # --- compiling ---------------------------------------------------------------------------------------

    def compile(self, wanted: Iterable[tuple[str, Config, int | None]], doing: str) -> Iterator[list[Any]]:
        """Compile what is not known yet; yield, as long as there is work, what became ready meanwhile.

        What is wanted is (product, configuration, batch size); no batch size: the binary for all of them.
        """
        wanted = list(dict.fromkeys(wanted))
        known = [w for w in wanted if w in self.points.compiled]
        new = [w for w in wanted if w not in self.points.compiled]
        yield [w for w in known if self.usable(w)]
        for gemm, config, tokens in new:
            task: Task = {"gemm": gemm, "config": config.to_list()}
            self.workers.compile.submit(task if tokens is None else {**task, "tokens": tokens})
        done = 0
        while self.workers.compile.unfinished:
            ready = []
            for outcome in self._outcomes(self.workers.compile):
                done += 1
                each = self._compiled(outcome)
                if self.usable(each):
                    ready.append(each)
            self.say(doing, done, len(new))
            yield ready

    def usable(self, what: tuple[str, Config, int | None]) -> bool:
        """Whether a compiled configuration may be timed."""
        gemm, config, _ = what
        return self.points.compiled.get(what) is not None and (gemm, config.tile) not in self.points.broken

    def _compiled(self, outcome: Outcome) -> tuple[str, Config, int | None]:
        gemm, config = outcome.task["gemm"], Config.from_list(outcome.task["config"])
        tokens = outcome.task.get("tokens")
        record: dict[str, Any] = {"compile": [gemm, config.to_list(), tokens], "result": outcome.value}
        if outcome.ending != "done":
            record["result"] = f"{outcome.ending}: {outcome.text}"
        elif tokens is None:  # a true kernel's tile was let through before: its time counts
            self._judge(record, config, outcome.value)
        self.keep(record)
        return gemm, config, tokens

    def _judge(self, record: dict[str, Any], config: Config, resources: Mapping[str, Any]) -> None:
        """Drop what the compiler says is not worth timing.

        Unpacking int4 spills nearly always, in SGLang's own files, too: there the times decide.
        """
        if resources["shared"] > shared_memory_limit(self.job.capability):
            record["dropped"] = "too much shared memory"
        elif resources["stack"] and not self._in_use(config) and self.job.problem.kind != "int4":
            record["dropped"] = "spills registers"

    def _in_use(self, config: Config) -> bool:
        """Whether SGLang uses this configuration today: it runs, whatever it costs."""
        pairs = (*self.job.today.values(), *self.job.default.values())
        return any(config.tile in (pair.up.tile, pair.down.tile) for pair in pairs)

    # --- timing ------------------------------------------------------------------------------------------

    def time(self, phase: str, batches: Sequence[Sequence[Key]], rounds: int, doing: str) -> None:
        """Time batches of products, the units of a batch against one another; known batches are skipped."""
        tasks = [task for batch in batches if (task := self.task(phase, batch, rounds))]
        self.measure(tasks, doing)

    def task(self, phase: str, batch: Sequence[Key], rounds: int) -> Task | None:
        """Return the task that times a batch; null when all of it is known or nothing of it can run."""
        points = self.points
        units = [
            key
            for key in batch
            if key not in points.failed and (key[0].removesuffix("_sorted"), key[2].tile) not in points.broken
        ]
        if all(points.known(phase, key) for key in units):
            return None
        reference = self.reference()
        if reference is not None:
            units.append(reference)
        fields = [[gemm, tokens, config.to_list()] for gemm, tokens, config in units]
        task: Task = {"do": "time", "phase": phase, "units": fields, "rounds": rounds}
        task["reference"] = reference is not None
        if self.workers.wants_binaries:
            task["binaries"] = sorted({self._binary(key) for key in units})
        return task

    def reference(self) -> Key | None:
        """Return what is timed with every batch to tell the GPU's pace; null when it does not run here."""
        tokens = min(self.job.tokens, key=lambda m: abs(m - _REFERENCE_TOKENS))
        config = self.job.default[tokens].up
        key = ("up", tokens, config)
        runs = self.usable(("up", config.tile, None)) and key not in self.points.failed
        return key if runs else None

    def _binary(self, key: Key) -> str:
        compiled = self.points.compiled.get((key[0], key[2].tile, None)) or {}
        return str(compiled.get("hash", ""))

    def pairs(self, phase: str, units: Sequence[tuple[int, Pair]], rounds: int, doing: str) -> None:
        """Time whole expert computations on the true kernel, those of one batch size against one another.

        What failed is not tried again. When a batch broke its worker, those that run alone are timed anew,
        together: only times of the same rounds compare.
        """
        for _ in range(2):
            self.measure(self._pair_tasks(phase, units, rounds), doing)

    def _pair_tasks(self, phase: str, units: Sequence[tuple[int, Pair]], rounds: int) -> list[Task]:
        by_tokens: dict[int, list[Pair]] = collections.defaultdict(list)
        for unit in dict.fromkeys(units):
            if unit not in self.points.failed_pairs:
                by_tokens[unit[0]].append(unit[1])
        return [
            {
                "do": "pairs",
                "phase": phase,
                "pairs": [[tokens, *pair.to_list()] for pair in pairs],
                "rounds": rounds,
                "parts": True,
            }
            for tokens, pairs in by_tokens.items()
            if not all((tokens, pair) in self.points.pairs[phase] for pair in pairs)
        ]

    def verify(self, keys: Iterable[Key], doing: str) -> None:
        """Compare the true kernel's output with float32 for products not verified yet."""
        new = [key for key in dict.fromkeys(keys) if key not in self.points.errors]
        tasks = [
            {
                "do": "verify",
                "units": [[gemm, tokens, config.to_list()] for gemm, tokens, config in new[i : i + 8]],
                "exact": True,
            }
            for i in range(0, len(new), 8)
        ]
        self.measure(tasks, doing)

    def measure(self, tasks: Sequence[Task], doing: str) -> None:
        """Do the tasks."""
        queue = collections.deque(tasks)
        done = 0
        while queue or self.workers.measure.unfinished:
            self.feed(queue)
            for outcome in self._outcomes(self.workers.measure):
                done += 1
                queue.extend(self.take(outcome))
            self.say(doing, done, done + len(queue) + self.workers.measure.unfinished)

    def feed(self, queue: collections.deque[Task]) -> None:
        """Give the measuring workers as many tasks as they take."""
        while queue and self.workers.measure.free > 0:
            task = queue.popleft()
            name = _name(task)
            if self.points.started[name] >= _STARTS:
                queue.extend(self._split(task, "killed the tuner", "the tuner died twice while it was timed"))
                continue
            self.keep({"started": name})
            self.workers.measure.submit(task)

    def take(self, outcome: Outcome) -> list[Task]:
        """Keep what became of a task; return the tasks that it is to be split into."""
        task = outcome.task
        if outcome.ending != "done":
            return self._split(task, outcome.ending, outcome.text)
        if task["do"] == "verify":
            record = {"verify": True, "units": task["units"], "errors": outcome.value}
        elif task["do"] == "pairs":
            rounded = [_rounded(each) for each in outcome.value]
            record = {"pairs": task["phase"], "units": task["pairs"], "samples": rounded}
        else:
            rounded = [_rounded(each) for each in outcome.value]
            record = {"time": task["phase"], "units": task["units"], "samples": rounded}
            record["reference"] = task["reference"]
        self.keep({**record, "task": _name(task)})
        return []

    def _split(self, task: Task, ending: str, why: str) -> list[Task]:
        """Find who breaks the worker: each configuration of the task is tried alone.

        A pair's times alone are no result: ``pairs`` times it beside the others again.
        """
        name = "pairs" if task["do"] == "pairs" else "units"
        groups: dict[str, list[Any]] = collections.defaultdict(list)
        for unit in _suspects(task, name):
            groups[json.dumps(_tiles(unit))].append(unit)
        if len(groups) > 1 or (task.get("reference") and ending != "killed the tuner"):
            alone = {"phase": _ALONE} if name == "pairs" else {}
            return [{**task, **alone, name: units, "reference": False} for units in groups.values()]
        self._broken(task, ending, why)
        return []

    def _broken(self, task: Task, ending: str, why: str) -> None:
        ending = {"crashed": "crashed", "timeout": "hung", "error": "broke the GPU's context"}.get(
            ending, ending
        )
        if task["do"] == "pairs":
            failed = [why] * len(task["pairs"])
            record = {"pairs": task["phase"], "units": task["pairs"], "samples": failed}
        elif task["do"] == "verify":
            record = {"verify": True, "units": task["units"], "errors": [why] * len(task["units"])}
        else:
            tiles = {
                (gemm.removesuffix("_sorted"), tuple(fields)) for gemm, _, fields in _suspects(task, "units")
            }
            broken = [[gemm, list(fields)] for gemm, fields in sorted(tiles)]
            record = {"broken": broken, "ending": ending, "why": why}
        self.keep({**record, "task": _name(task)})

    def outcomes(self, *, wait: float) -> Iterator[Outcome]:
        """Yield what the measuring workers have done."""
        return self._outcomes(self.workers.measure, wait)

    def _outcomes(self, pool: Any, wait: float = _WAIT) -> Iterator[Outcome]:
        try:
            yield from pool.outcomes(wait=wait)
        except WorkersFailed as error:
            raise Undecided(f"the tuner's workers do not start: {error}") from error


def _suspects(task: Task, name: str) -> list[Any]:
    """Return the units of a task without its reference, which ran before and will again."""
    units: list[Any] = task[name]
    return units[:-1] if task.get("reference") else units


def _tiles(unit: Any) -> Any:
    """Return what stands or falls together: a product's tile; a pair at its batch size."""
    if isinstance(unit[0], str):
        return [unit[0], Config.from_list(unit[2]).tile.to_list()]
    return unit


def _name(task: Task) -> str:
    """Return a name that the same task has in the next run."""
    import hashlib

    return hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:12]


def _rounded(result: Any) -> Any:
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        return {name: _rounded(values) for name, values in result.items()}
    return [round(value, 3) for value in result]
