"""A measured matrix in place of a GPU: the roles of compiler and measuring worker, with noise put in.

A matrix is what `bench/moe_matrix.py` wrote (a `matrix.json`, possibly `.xz`): times of the filtered grid by
product, configuration and batch size. Tests of the search stand on it.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgdoctor.tune.space import Config

# What the rest of the expert computation adds to the two products, µs; the same for every configuration.
REST = 10.0


class Matrix:
    """Times in µs a launch; ``resources`` are what the compiler said of every tile."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        loaded = json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
        self.problem: dict[str, Any] = loaded["problem"]
        self.tokens: list[int] = loaded["tokens"]
        self.times: dict[tuple[str, int, Config], float] = {}
        for gemm in ("up", "down", "up_sorted"):
            for fields, row in loaded[gemm]:
                for tokens, hundredths in zip(self.tokens, row, strict=True):
                    if hundredths:
                        self.times[gemm, tokens, Config.from_list(fields)] = hundredths / 100
        self.resources = {
            (gemm, Config.from_list(fields)): {
                "shared": shared,
                "registers": registers,
                "stack": stack,
                "seconds": seconds,
                "hash": f"{gemm}{fields}",
            }
            for gemm, fields, shared, registers, stack, seconds in loaded["compiled"]
        }
        self.bundled = loaded["bundled"]

    def microseconds(self, gemm: str, tokens: int, config: Config) -> float | None:
        """Return a point's time; of a GROUP_SIZE_M that was not timed (the tile was slow), the nearest's.

        ``up_sorted`` was timed of the best alone: elsewhere it takes the time of ``up``, as it does where it
        was timed (docs/benchmarks.md).
        Between the batch sizes of the matrix its times are interpolated.
        """
        if tokens not in self.tokens:
            return self._between(gemm, tokens, config)
        found = self.times.get((gemm, tokens, config))
        if found is None and gemm == "up_sorted":
            return self.microseconds("up", tokens, config)
        if found is None:
            groups = sorted((1, 8, 16, 32, 64), key=lambda group: abs(group - config.group_m))
            near = (self.times.get((gemm, tokens, replace(config, group_m=group))) for group in groups)
            found = next((value for value in near if value is not None), None)
        return found

    def _between(self, gemm: str, tokens: int, config: Config) -> float | None:
        below = max((m for m in self.tokens if m < tokens), default=self.tokens[0])
        above = min((m for m in self.tokens if m > tokens), default=self.tokens[-1])
        ends = [self.microseconds(gemm, m, config) for m in (below, above)]
        if ends[0] is None or ends[1] is None or below == above:
            return ends[0]
        share = (math.log(tokens) - math.log(below)) / (math.log(above) - math.log(below))
        return math.exp(math.log(ends[0]) * (1 - share) + math.log(ends[1]) * share)


class ReplayCompiler:
    """Answers a compiler's tasks from a matrix."""

    def __init__(self, matrix: str) -> None:
        self.matrix = Matrix(Path(matrix))

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return a tile's resources; raises ValueError for one that the matrix does not have."""
        key = (task["gemm"].removesuffix("_sorted"), Config.from_list(task["config"]).tile)
        if key not in self.matrix.resources:
            raise ValueError(f"not in the matrix: {key[0]} {key[1]}")
        return self.matrix.resources[key]


class ReplayWorker:
    """Answers a measuring worker's tasks from a matrix, with relative normal noise on every sample.

    ``speed`` multiplies all times (a slower GPU); ``pause`` is what a task takes, in seconds; ``speeds`` are
    what sgdoctor.tune.speeds would measure. ``faults`` are
    what can go wrong with a GPU: tiles on which the worker dies (``crash``; of whole computations alone:
    ``crash_whole``) or says nothing more (``hang``), whose output is wrong (``wrong``), a number of tasks
    after which it is slower by a factor (``slower``), no memory at the start (``memory``).
    """

    def __init__(
        self,
        matrix: str,
        *,
        noise: float = 0.005,
        seed: int = 0,
        speed: float = 1.0,
        pause: float = 0.0,
        uuid: str = "GPU-replay",
        faults: Mapping[str, Any] | None = None,
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        self.faults = dict(faults or {})
        if self.faults.get("memory"):
            raise MemoryError("CUDA out of memory: tried to allocate 3.00 GiB")
        self.matrix = Matrix(Path(matrix))
        self.noise = noise
        self.speed = speed
        self.pause = pause
        self.done = 0
        self.random = random.Random(seed)  # noqa: S311 (noise, no secret)
        versions = {"torch": None, "triton": None}
        self.about = {"gpu": "replay", "uuid": uuid, "capability": [9, 0], **versions, **(speeds or {})}

    def start(self, task: dict[str, Any]) -> Any:
        """Do a task."""
        time.sleep(self.pause)
        self.done += 1
        if self.done == self.faults.get("slower", [0])[0]:
            self.speed *= self.faults["slower"][1]
        if task["do"] == "verify":
            return [0.5 if self._has("wrong", fields) else 1e-4 for _, _, fields in task["units"]]
        configs = [
            fields
            for each in task.get("units", task.get("pairs", []))
            for fields in each
            if isinstance(fields, list)
        ]
        crash = "crash_whole" if task["do"] == "pairs" and "crash_whole" in self.faults else "crash"
        if any(self._has(crash, fields) for fields in configs):
            os.kill(os.getpid(), signal.SIGSEGV)
        if any(self._has("hang", fields) for fields in configs):
            time.sleep(3600)
        if task["do"] == "pairs":
            return [self._pair(each, task["rounds"]) for each in task["pairs"]]
        return [self._samples(gemm, tokens, fields, task["rounds"]) for gemm, tokens, fields in task["units"]]

    def _has(self, fault: str, fields: list[int]) -> bool:
        """Whether a configuration has a fault: its tile without its group and TMA is named."""
        tile = replace(Config.from_list(fields), group_m=1, tma=False).to_list()
        return tile in self.faults.get(fault, ())

    def finish(self, begun: Any) -> Any:
        """Return the result of a task begun."""
        return begun

    def _samples(self, gemm: str, tokens: int, fields: list[int], rounds: int) -> list[float] | str:
        known = self.matrix.microseconds(gemm, tokens, Config.from_list(fields))
        if known is None:
            return f"OutOfResources: not in the matrix: {gemm} {tokens} {fields}"
        return [self._noisy(known) for _ in range(rounds)]

    def _pair(self, each: list[Any], rounds: int) -> dict[str, list[float]] | str:
        tokens, up, down = each
        sorted_up = "up_sorted" if Config.from_list(down).tma else "up"
        first = self._samples(sorted_up, tokens, up, rounds)
        second = self._samples("down", tokens, down, rounds)
        if isinstance(first, str) or isinstance(second, str):
            return first if isinstance(first, str) else str(second)
        whole = [a + b + REST * self.speed for a, b in zip(first, second, strict=True)]
        return {"whole": whole, "up": first, "down": second}

    def _noisy(self, microseconds: float) -> float:
        return microseconds * self.speed * max(0.5, self.random.gauss(1.0, self.noise))
