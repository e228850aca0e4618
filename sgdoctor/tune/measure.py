"""Times launches of the kernel on the GPU; runs in a worker process of its own.

A timing unit is a CUDA graph of several launches, each with another routing, so that weights come from memory
as in serving. Replays of the units of a batch are interleaved, in alternating order, and queued ahead of the
GPU; every replay gives one sample, microseconds a launch.
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sgdoctor.tune import kernel, operands, routing, speeds
from sgdoctor.tune.compile import problem_from
from sgdoctor.tune.operands import Operands
from sgdoctor.tune.routing import Routing
from sgdoctor.tune.space import Capability, Config, Problem

_CACHE_MULTIPLE = 3


@dataclass(frozen=True)
class Unit:
    """What is timed: one configuration of one product at one batch size."""

    gemm: str
    tokens: int
    config: Config


class DeviceBroken(Exception):  # noqa: N818 (says what happened)
    """The CUDA context is lost: this process cannot go on."""


class Clock(Protocol):
    """Captures launches, replays them and tells the time between two marks."""

    def capture(self, launches: list[Callable[[], None]]) -> Callable[[], None]:
        """Return what makes the launches again."""

    def mark(self) -> Any:
        """Mark this moment in the order of what is queued."""

    def microseconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks."""

    def synchronize(self) -> None:
        """Wait for what is queued."""


class CudaClock:
    """CUDA graphs and events on a stream of its own."""

    def __init__(self) -> None:
        import torch

        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)

    def capture(self, launches: list[Callable[[], None]]) -> Callable[[], None]:
        """Capture ``launches`` in one graph (torch.cuda.graph() would synchronize and empty the caches)."""
        import torch

        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for launch in launches:
                launch()
        finally:
            graph.capture_end()
        return graph.replay  # type: ignore[no-any-return,unused-ignore]

    def mark(self) -> Any:
        """Record an event."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def microseconds(self, start: Any, end: Any) -> float:
        """Return the time between two events that have passed."""
        return float(start.elapsed_time(end)) * 1000

    def synchronize(self) -> None:
        """Wait for the GPU."""
        import torch

        torch.cuda.synchronize()


class HostClock:
    """The host's clock, for Triton's interpreter: what it tells is no time of a kernel."""

    def capture(self, launches: list[Callable[[], None]]) -> Callable[[], None]:
        """Return what makes the launches."""

        def replay() -> None:
            for launch in launches:
                launch()

        return replay

    def mark(self) -> float:
        """Read the clock."""
        return time.perf_counter()

    def microseconds(self, start: float, end: float) -> float:
        """Return the time between two readings."""
        return (end - start) * 1e6

    def synchronize(self) -> None:
        """Nothing runs behind one's back here."""


@dataclass
class Enqueued:
    """Replays under way: the marks around every replay of every unit, and what could not be launched."""

    units: list[Unit]
    launches: list[int]
    marks: list[list[tuple[Any, Any]]]
    errors: list[str | None]
    replays: list[Callable[[], None] | None]


class Bench:
    """Operands, routings and captured launches of one problem.

    ``one_binary``: a tile's binary serves all its groups and batch sizes (loaded with ``runtime_group``).
    """

    def __init__(
        self, module: Any, clock: Clock, operands_: Operands, *, seed: int = 0, one_binary: bool = False
    ) -> None:
        self.problem = operands_.problem
        self.clock = clock
        self.device = operands_.device
        self.seed = seed
        self.one_binary = one_binary
        self.call = kernel.invoker(module)
        self.operands = operands_
        self._routings: dict[tuple[int, int], list[Routing]] = {}
        self._launched: set[tuple[Any, ...]] = set()

    def routings(self, gemm: str, tokens: int) -> list[Routing]:
        """Return the routings of one batch size; the same ones for every configuration."""
        count = routing.launches(self.problem, gemm, tokens) if self.device == "cuda" else 1
        key = (tokens, count)
        if key not in self._routings:
            self._routings[key] = routing.uniform(
                self.problem, tokens, count, device=self.device, seed=self.seed
            )
        return self._routings[key]

    def launcher(self, unit: Unit, chosen: Routing, turn: int) -> Callable[[], None]:
        """Return one launch, its arguments made beforehand."""
        arguments = self.operands.arguments(unit.gemm, unit.config, chosen, turn)
        return lambda: self.call(arguments)

    def prepare(self, unit: Unit) -> tuple[Callable[[], None], int]:
        """Return a replay of the unit and how many launches it makes; raises what the first launch raises."""
        launches = [
            self.launcher(unit, chosen, turn)
            for turn, chosen in enumerate(self.routings(unit.gemm, unit.tokens))
        ]
        binary = (unit.gemm, unit.config.tile, 0) if self.one_binary else dataclasses.astuple(unit)
        if binary not in self._launched:
            launches[0]()  # loads the binary, which a capture must not do
            self._launched.add(binary)
        return self.clock.capture(launches), len(launches)

    def _try_to_prepare(self, unit: Unit) -> tuple[Callable[[], None] | None, int, str | None]:
        try:
            return *self.prepare(unit), None
        except Exception as error:  # noqa: BLE001 (Triton raises of all kinds; that is the unit's result)
            _raise_if_broken(error)
            return None, 1, f"{type(error).__name__}: {error}"[:300]

    def enqueue(self, units: list[Unit], rounds: int) -> Enqueued:
        """Queue one replay of each unit to warm up, then ``rounds`` timed ones, interleaved."""
        batch = Enqueued(units, [], [[] for _ in units], [], [])
        for unit in units:
            replay, count, trouble = self._try_to_prepare(unit)
            batch.replays.append(replay)
            batch.launches.append(count)
            batch.errors.append(trouble)
        order = [i for i, replay in enumerate(batch.replays) if replay is not None]
        for turn in range(rounds + 1):
            for i in order if turn % 2 else reversed(order):
                queued = batch.replays[i]
                assert queued is not None  # noqa: S101 (order holds no other)
                start = self.clock.mark()
                queued()
                end = self.clock.mark()
                if turn:
                    batch.marks[i].append((start, end))
        return batch

    def collect(self, batch: Enqueued) -> list[list[float] | str]:
        """Wait for the batch; return for each unit its samples in µs a launch, or why it has none."""
        try:
            self.clock.synchronize()
        except Exception as error:
            raise DeviceBroken(f"{type(error).__name__}: {error}") from error
        results: list[list[float] | str] = []
        for trouble, marks, launches in zip(batch.errors, batch.marks, batch.launches, strict=True):
            samples = [self.clock.microseconds(start, end) / launches for start, end in marks]
            results.append(samples if trouble is None else trouble)
        return results

    def time(self, units: list[Unit], rounds: int) -> list[list[float] | str]:
        """Time the units against one another."""
        return self.collect(self.enqueue(units, rounds))

    def error(self, unit: Unit, *, turn: int = 0) -> float:
        """Launch once on a poisoned output and return the relative error against the float32 reference."""
        chosen = self.routings(unit.gemm, unit.tokens)[turn]
        self.operands.output.fill_(float("nan"))
        self.launcher(unit, chosen, turn)()
        self.clock.synchronize()
        return operands.relative_error(self.operands, unit.gemm, unit.config, chosen, turn)


def copies(problem: Problem, l2: int) -> int:
    """Return how many copies of the weights are used in turn, so that a cache of ``l2`` bytes holds none."""
    n, k = problem.shape("down")
    return max(1, -(-_CACHE_MULTIPLE * l2 // int(problem.experts * n * k * problem.weight_bytes)))


class Worker:
    """The measuring child process: one GPU, one problem, one kernel.

    Tasks are ``time`` (products, explored with one binary a tile), ``pairs`` (whole expert computations on
    the true kernel; with ``parts`` their two products, too) and ``verify`` (``exact``: the true kernel).
    Without a GPU (``device="cpu"``, under Triton's interpreter) everything happens but the times mean
    nothing.
    """

    def __init__(
        self,
        path: str,
        problem: dict[str, Any],
        tokens: int,
        *,
        device: str = "cuda",
        runtime_group: bool = True,
        seed: int = 0,
    ) -> None:
        import torch
        import triton

        gc.disable()
        cuda = device == "cuda"
        found = torch.cuda.get_device_properties(0) if cuda else None
        capability: Capability = (found.major, found.minor) if found else (9, 0)
        l2 = found.L2_cache_size if found else 0
        self.path, self.capability, self.pdl = Path(path), capability, None if cuda else False
        shape = problem_from(problem)
        made = operands.make(shape, tokens, device=device, copies=copies(shape, l2), seed=seed, half=not cuda)
        self.bench = Bench(
            kernel.load(self.path, capability, runtime_group=runtime_group, pdl=self.pdl),
            CudaClock() if cuda else HostClock(),
            made,
            seed=seed,
            one_binary=runtime_group,
        )
        self._experts: Any = None
        self.about = {
            "gpu": found.name if found else None,
            "uuid": f"GPU-{found.uuid}" if found else None,
            "capability": list(capability),
            "l2": l2,
            "driver": speeds.driver(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "weight_copies": len(self.bench.operands.weights["up"]),
            **(speeds.limits(found) if cuda else {}),
        }

    @property
    def experts(self) -> Any:
        """The true kernel, loaded when it is first asked for."""
        if self._experts is None:
            from sgdoctor.tune import experts

            self._experts = experts.load(self.path, self.capability, self.bench, pdl=self.pdl)
        return self._experts

    def start(self, task: dict[str, Any]) -> Any:
        """Begin a task; ``finish`` ends it, and the next may begin in between."""
        if task["do"] == "pairs":
            return self._pairs(task)
        units = [Unit(gemm, tokens, Config.from_list(c)) for gemm, tokens, c in task["units"]]
        bench = self.experts if task.get("exact") else self.bench
        if task["do"] == "verify":
            return [self._error(bench, unit) for unit in units]
        return bench.enqueue(units, task["rounds"])

    def finish(self, begun: Any) -> Any:
        """Return the result of a task begun."""
        result = begun
        if isinstance(begun, Enqueued):
            result = self.bench.collect(begun)
        elif isinstance(begun, tuple):
            result = _by_pair(self.bench.collect(begun[0]), parts=begun[1])
        gc.collect(0)
        return result

    def _pairs(self, task: dict[str, Any]) -> tuple[Enqueued, bool]:
        from sgdoctor.tune.experts import WholeUnit, products
        from sgdoctor.tune.model import Pair

        units: list[Any] = []
        for tokens, up, down in task["pairs"]:
            pair = Pair.from_list((up, down))
            units.append(WholeUnit(tokens, pair))
            units += products(pair, tokens) if task.get("parts") else []
        return self.experts.enqueue(units, task["rounds"]), bool(task.get("parts"))

    def _error(self, bench: Bench, unit: Unit) -> float | str:
        try:
            return bench.error(unit)
        except Exception as error:  # noqa: BLE001 (as in Bench.enqueue)
            _raise_if_broken(error)
            return f"{type(error).__name__}: {error}"[:300]


def _by_pair(results: list[list[float] | str], *, parts: bool) -> list[dict[str, list[float]] | str]:
    """Put the samples of whole computations and their products together; a pair with a failed part failed."""
    step = 3 if parts else 1
    found: list[dict[str, list[float]] | str] = []
    for i in range(0, len(results), step):
        group = results[i : i + step]
        failed = next((r for r in group if isinstance(r, str)), None)
        samples = [r for r in group if not isinstance(r, str)]
        found.append(failed or dict(zip(("whole", "up", "down"), samples, strict=False)))
    return found


def _raise_if_broken(error: Exception) -> None:
    """Tell a configuration that cannot run from a context that is lost, after which nothing runs any more."""
    import torch

    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001 (any failure here is the context's)
        raise DeviceBroken(f"{type(error).__name__}: {error}") from error
