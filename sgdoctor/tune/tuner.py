"""Tunes one shape: searches, chooses, proves."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Collection
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sgdoctor.tune import kernel, speeds
from sgdoctor.tune.choose import choose, relative_error
from sgdoctor.tune.journal import Journal
from sgdoctor.tune.model import Effort, Job, Line, Listener, Pair, Table, Tuning
from sgdoctor.tune.prove import COMPARE, compare, wrong
from sgdoctor.tune.run import Run
from sgdoctor.tune.search import search
from sgdoctor.tune.space import candidates, takes_tma
from sgdoctor.tune.workers import Workers

# A journal that another way of measuring wrote is not gone on with.
_MEASURES = 1


def tune(
    job: Job, workers: Workers, *, effort: Effort, journal: Path, listen: Listener | None = None
) -> Tuning:
    """Search for the best configurations of ``job``, verify them and compare them with today's.

    Everything measured is in ``journal`` at once: a run that was interrupted goes on where it was. Raises
    UsageError when another tuner writes to it, Undecided when workers cannot start or the disk is full.
    """
    with Journal(journal, identity(job)) as opened, _run(job, workers, opened, listen) as run:
        run.left = _left(job, run, effort)
        search(run, effort)
        return _prove(run, lambda rejected: choose(run, rejected), effort, "sgdoctor")


def judge(
    job: Job,
    table: Table,
    workers: Workers,
    *,
    effort: Effort,
    journal: Path,
    listen: Listener | None = None,
    tuner: str = "sglang",
) -> Tuning:
    """Verify a table that another tuner made and compare it with today's, as our own."""
    with Journal(journal, identity(job)) as opened, _run(job, workers, opened, listen) as run:
        return _prove(run, lambda rejected: _without(table, rejected), effort, tuner)


def identity(job: Job) -> dict[str, Any]:
    """Return what measured times belong to."""
    return {
        "measures": _MEASURES,
        "kernel": kernel.fingerprint(Path(job.kernel)),
        "triton": job.triton,
        "gpu": job.device,
        "driver": speeds.driver(),
        "problem": dataclasses.asdict(job.problem),
    }


def estimate(job: Job, *, gpus: int, cores: int, effort: Effort) -> float:
    """Return about how many seconds a tuning takes, from what it took on an H200 with 16 cores.

    Compiling took 0.45 CPU seconds a tile; timing a tile, at the anchors, about 40 ms.
    """
    tiles = sum(
        len(candidates(job.problem, gemm, job.capability, groups=(1,)))
        * (2 if gemm == "down" and takes_tma(job.problem) else 1)
        for gemm in ("up", "down")
    )
    tiles = min(tiles, 192) if effort == "quick" else tiles
    compiling = 0.45 * tiles / max(1, cores - gpus - 1)
    timing = tiles * (0.3 if effort == "full" else 0.04) / gpus
    return max(compiling, timing) + 15 + 35 / gpus + 0.45 * 300 / max(1, cores - gpus - 1)


def _run(job: Job, workers: Workers, journal: Journal, listen: Listener | None) -> Run:
    if journal.records and "finished" in journal.records[-1]:
        journal.restart()
    return Run(job, workers, journal, listen)


def _without(table: Table, rejected: Collection[Pair]) -> dict[int, Pair]:
    return {tokens: pair for tokens, pair in table.items() if pair not in rejected}


def _prove(
    run: Run, choice: Callable[[Collection[Pair]], dict[int, Pair]], effort: Effort, tuner: str
) -> Tuning:
    """Verify what ``choice`` gives, asking again without what is wrong, and compare it with today's."""
    rejected: dict[Pair, str] = {}
    table = choice(rejected)
    while found := wrong(run, table):
        rejected |= found
        table = choice(rejected)
    lines = compare(run, table)
    seconds = time.monotonic() - run.started
    about = _about(run, lines)
    if rejected:
        about["rejected"] = [f"{pair.up}; {pair.down}: {why}" for pair, why in rejected.items()]
    tuning = Tuning(run.job, lines, effort, tuner, seconds, about, dict(run.points.dropped))
    run.keep({"finished": True})
    return tuning


def _about(run: Run, lines: tuple[Line, ...]) -> dict[str, Any]:
    noise = [
        relative_error(samples["whole"]) * len(samples["whole"]) ** 0.5 / 1.2533
        for samples in run.points.pairs[COMPARE].values()
    ]
    timed = sum(len(found) for phase in run.points.medians.values() for found in phase.values())
    return {
        **run.about(),
        "kernel": kernel.fingerprint(Path(run.job.kernel)),
        "routing": "uniform",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "noise": round(statistics.median(noise), 5) if noise else None,
        "compiled": len(run.points.compiled),
        "timed": timed,
        "batch_sizes": len(lines),
    }


def _left(job: Job, run: Run, effort: Effort) -> Any:
    """Return what tells the seconds left: the estimate, minus what has passed."""
    from sgdoctor.tune.workers import cores

    expected = estimate(job, gpus=max(1, len(run.workers.measure.abouts)), cores=cores(), effort=effort)

    def left(_fraction: float) -> float:
        return max(1.0, expected - (time.monotonic() - run.started))

    return left
