"""The processes of a tuning: compilers without a GPU, and one measuring worker a GPU."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgdoctor.tune.model import Job
from sgdoctor.tune.pool import Pool

_COMPILE_SECONDS = 120.0
_MEASURE_SECONDS = 90.0

# A task does the whole computation of its largest batch up to some 400 times; no GPU worth tuning is slower.
_MOST_TIMES = 400
_SLOWEST = 5e13  # FLOP/s


@dataclass
class Workers:
    """Where a tuning compiles and measures; ``measure`` may be on other hosts (sgdoctor.tune.ray_pool)."""

    compile: Any
    measure: Any

    def __enter__(self) -> Workers:  # noqa: PYI034 (typing has Self from 3.11 on)
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self.compile, self.measure):
            pool.close()

    @property
    def wants_binaries(self) -> bool:
        """Whether tasks must name the compiled kernels that they launch."""
        return bool(getattr(self.measure, "wants_binaries", False))


def cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


def local(
    job: Job, gpus: Sequence[str], *, python: str, cache: Path, python_path: Sequence[Path] | None = None
) -> Workers:
    """Start the workers on this host: ``gpus`` are UUIDs, ``python`` has torch and Triton.

    ``python_path`` are the folders of its PYTHONPATH; null leaves that variable as it is here. Compiled
    kernels are kept in ``cache``. One core is left to each measuring worker and one to this process.
    """
    measure = Pool(
        "measure",
        measuring(job),
        depth=2,
        timeout=measuring_seconds(job),
        python=python,
        environments=[{**_environment(cache, python_path), "CUDA_VISIBLE_DEVICES": uuid} for uuid in gpus],
    )
    compile_ = compilers(job, python=python, cache=cache, gpus=len(gpus), python_path=python_path)
    return Workers(compile_, measure)


def compilers(
    job: Job, *, python: str, cache: Path, gpus: int = 1, python_path: Sequence[Path] | None = None
) -> Pool:
    """Start the compiling workers, as in ``local``; none of them sees a GPU."""
    return Pool(
        "compile",
        {"path": job.kernel, "problem": dataclasses.asdict(job.problem), "capability": job.capability},
        size=max(1, cores() - gpus - 1),
        depth=2,
        timeout=_COMPILE_SECONDS,
        python=python,
        environment={**_environment(cache, python_path), "CUDA_VISIBLE_DEVICES": ""},
    )


def measuring_seconds(job: Job) -> float:
    """Return after how many seconds at a task a measuring worker hangs: large batches take their time."""
    problem = job.problem
    slots = max(job.tokens) * problem.topk * problem.experts / problem.routed_experts
    return _MEASURE_SECONDS + _MOST_TIMES * 6 * slots * problem.width * problem.hidden / _SLOWEST


def measuring(job: Job) -> dict[str, Any]:
    """Return the settings of a measuring worker."""
    return {"path": job.kernel, "problem": dataclasses.asdict(job.problem), "tokens": max(job.tokens)}


def replayed(matrix: Path, *, gpus: Sequence[Mapping[str, Any]] = ({},)) -> Workers:
    """Start workers that replay a measured matrix; ``gpus`` are ReplayWorker's further settings, one each."""
    settings = [
        {"matrix": str(matrix), "uuid": f"GPU-replay-{number}", **own} for number, own in enumerate(gpus)
    ]
    measure = Pool("replay", settings, depth=2, timeout=10.0, environments=[{}] * len(settings))
    return Workers(Pool("replay_compile", {"matrix": str(matrix)}, depth=4), measure)


def _environment(cache: Path, python_path: Sequence[Path] | None) -> dict[str, str]:
    own = {} if python_path is None else {"PYTHONPATH": os.pathsep.join(map(str, python_path))}
    return {"TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0", **own}
