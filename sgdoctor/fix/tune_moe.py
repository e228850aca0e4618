"""The repair `--tune-moe`: what is planned, where it goes, on which GPUs; then tuned, proven, installed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.fix import gpus as host_gpus
from sgdoctor.fix import moe_files, moe_plan
from sgdoctor.fix.gpus import Gpu
from sgdoctor.fix.manifest import Record
from sgdoctor.fix.moe_files import NextStart, Target
from sgdoctor.fix.moe_plan import Plan, Planned
from sgdoctor.fix.sglang_tuner import Checkout
from sgdoctor.sources import Sources
from sgdoctor.tune.model import Effort, Listener, Pair, Tuning
from sgdoctor.tune.workers import Workers

_ASK_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the operator chose. ``gpus`` are indices or UUIDs; ``ray`` is the address of a Ray cluster's head.

    ``output`` and ``overlay``: folders in place of the installation's own. ``again`` tunes what is there.
    ``tuner`` is ``sgdoctor`` or ``sglang``, that of a source checkout (``sglang_source``).
    """

    effort: Effort = "balanced"
    gpus: tuple[str, ...] = ()
    share: bool = False
    output: Path | None = None
    overlay: Path | None = None
    again: bool = False
    tuner: str = "sgdoctor"
    sglang_source: Path | None = None
    ray: str | None = None


@dataclass(frozen=True)
class Task:
    """A planned job with its folder, its GPUs and the estimate in seconds.

    ``obstacle`` is why it could not be carried out now; a dry run shows it, anything else refuses.
    """

    planned: Planned
    target: Target
    gpus: tuple[Gpu, ...] = ()
    seconds: float = 0.0
    needed_mib: int = 0
    obstacle: str | None = None

    @property
    def files(self) -> tuple[Path, Path]:
        """The up and the down file, where they go."""
        job = self.planned.job
        return self.target.path(job.up_file), self.target.path(job.down_file)

    @property
    def cache(self) -> Path:
        """Where the journal and the compiled kernels of this job are kept."""
        return cache_folder(self.planned)


@dataclass(frozen=True)
class Done:
    """What became of a task; without ``record`` nothing was installed. ``notes`` are the tuner's."""

    task: Task
    tuning: Tuning
    record: Record | None = None
    next_start: NextStart | None = None
    notes: tuple[str, ...] = field(default=())


def prepare(
    sources: Sources, wish: Wish, *, dry: bool = False, say: Callable[[str], None] | None = None
) -> tuple[Plan, list[Task]]:
    """Return the plan for the deployments of ``sources`` and what to do for each of its jobs.

    Raises Undecided and UsageError for what cannot be tuned, written or used; with ``dry`` the folder and the
    GPUs are obstacles instead.
    """
    from sgdoctor import gather

    plan = moe_plan.plan(gather.gather(sources, {}, say), again=wish.again)
    tasks = [_task(planned, wish, dry=dry) for planned in plan.planned]
    return plan, tasks


def _task(planned: Planned, wish: Wish, *, dry: bool) -> Task:
    from sgdoctor.tune import tuner, workers

    job = planned.job
    target = _target(planned, wish)
    needed = host_gpus.needed_mib(job.problem, max(job.tokens))
    chosen: tuple[Gpu, ...] = ()
    obstacle = None
    try:
        _can_write(target)
        _has_torch(planned)
        if wish.tuner == "sglang":
            _checkout(planned, wish)
        chosen = () if wish.ray else tuple(_gpus(planned, wish, needed))
    except (UsageError, Undecided) as error:
        if not dry:
            raise
        obstacle = str(error)
    count = max(1, len(chosen))
    seconds = tuner.estimate(job, gpus=count, cores=workers.cores(), effort=wish.effort)
    return Task(planned, target, chosen, seconds, needed, obstacle)


def _can_write(target: Target) -> None:
    why = moe_files.writable(target)
    if why is not None:
        raise UsageError(why)


def _target(planned: Planned, wish: Wish) -> Target:
    if wish.overlay is not None:
        return moe_files.overlay(planned.job, wish.overlay, planned.root)
    if wish.output is not None:
        return moe_files.output(planned.job, wish.output, planned.root)
    return moe_files.in_place(planned.job, planned.root)


def _gpus(planned: Planned, wish: Wish, needed: int) -> list[Gpu]:
    seen = host_gpus.read()
    if not wish.gpus:
        seen = host_gpus.visible(seen, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return host_gpus.choose(
        seen, device=planned.job.device, needed=needed, wanted=wish.gpus, share=wish.share
    )


def _has_torch(planned: Planned) -> None:
    """Raise Undecided when the deployment's interpreter cannot be run, or has no torch or Triton."""
    from sgdoctor.collect import child

    if planned.python is None:
        raise Undecided("no Python of this deployment can be run from here: name it with --python PATH")
    asked = "import importlib.util as u; print(*[n for n in ('torch', 'triton') if not u.find_spec(n)])"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, planned.python_path))}
    ended = child.run([planned.python, "-c", asked], _ASK_SECONDS, environment=variables)
    why = ended.failure or (f"exit status {ended.status}" if ended.status else None)
    lacking = " and ".join(ended.stdout.split())
    if why is not None or lacking:
        said = why or f"it has no {lacking}"
        raise Undecided(
            f"{planned.python} cannot run the tuner ({said}): name the server's own Python with --python PATH"
        )


def cache_folder(planned: Planned) -> Path:
    """Return the folder for what is measured of one job; the same job finds it again."""
    from sgdoctor.tune import tuner

    identity = json.dumps(tuner.identity(planned.job), sort_keys=True)
    return _cache_home() / "sgdoctor" / "tune" / hashlib.sha256(identity.encode()).hexdigest()[:16]


def _cache_home() -> Path:
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():  # the specification has others ignored
        return given
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise UsageError("no home folder to keep measured times in: set XDG_CACHE_HOME") from None


def carry_out(task: Task, wish: Wish, listen: Listener | None = None) -> Done:
    """Tune one job, prove it and install its files where they gain enough.

    Raises what the tuner raises, and UsageError when a file or the cache cannot be written.
    """
    from sgdoctor.tune import tuner

    journal = task.cache / "journal.jsonl"
    try:
        task.cache.mkdir(parents=True, exist_ok=True)
        journal.touch()
    except OSError as error:
        raise UsageError(
            f"{task.cache}, where measured times are kept: {error.strerror or error}; set XDG_CACHE_HOME to "
            "another folder"
        ) from None
    job = task.planned.job
    notes: tuple[str, ...] = ()
    if wish.tuner == "sglang":
        table, notes = _sglang(task, wish, listen)
        with _workers(task, wish) as crew:
            tuning = tuner.judge(
                job, table, crew, effort=wish.effort, journal=journal, listen=listen, tuner="sglang"
            )
    else:
        with _workers(task, wish) as crew:
            tuning = tuner.tune(job, crew, effort=wish.effort, journal=journal, listen=listen)
    if not tuning.worth_installing:
        return Done(task, tuning, notes=notes)
    record = moe_files.put_in_place(tuning, task.target)
    return Done(task, tuning, record, moe_files.next_start(job, tuning.table, task.target), notes)


def _workers(task: Task, wish: Wish) -> Workers:
    from sgdoctor.tune import workers

    job, python, cache = task.planned.job, str(task.planned.python), task.cache / "triton"
    path = task.planned.python_path
    if wish.ray is None:
        gpus = [gpu.uuid for gpu in task.gpus]
        return workers.local(job, gpus, python=python, cache=cache, python_path=path)
    from sgdoctor.tune.ray_pool import RayPool, expected_of

    measure = RayPool(
        "measure",
        workers.measuring(job),
        address=wish.ray,
        expected=expected_of(job),
        cache=cache,
        depth=2,
        timeout=workers.measuring_seconds(job),
        environment={"TRITON_INTERPRET": "0"},
    )
    try:
        return Workers(workers.compilers(job, python=python, cache=cache, python_path=path), measure)
    except BaseException:  # an interrupt, too: the cluster keeps no worker of ours
        measure.close()
        raise


def _checkout(planned: Planned, wish: Wish) -> Checkout:
    from sgdoctor.fix import sglang_tuner

    return sglang_tuner.find(wish.sglang_source, planned.package)


def _sglang(task: Task, wish: Wish, listen: Listener | None) -> tuple[dict[int, Pair], tuple[str, ...]]:
    """Run SGLang's own tuner; return its table and what was caught in it."""
    from sgdoctor.fix import sglang_tuner, sglang_tuner_files

    planned = task.planned
    checkout = _checkout(planned, wish)
    written = sglang_tuner.run(
        checkout,
        planned.job,
        sglang_tuner.Model(planned.model, planned.tp, planned.ep),
        gpus=[str(gpu.index) for gpu in task.gpus],
        python=str(planned.python),
        python_path=planned.python_path,
        output=task.cache,
        listen=listen or (lambda _: None),
    )
    read = sglang_tuner_files.read(written.files, planned.job)
    return read.table, (f"SGLang's tuner: {checkout.found}", *written.notes, *read.notes)
