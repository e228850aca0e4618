"""Measuring workers on the GPUs of an existing Ray cluster, with the interface of a pool on one host.

Nothing but measuring is done there. The nodes need torch, Triton and a C compiler beside Ray; SGLang's kernel
file, sgdoctor and the compiled binaries are sent from here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgdoctor.errors import UsageError
from sgdoctor.tune import binaries
from sgdoctor.tune.dispatch import Dispatcher, Worker, WorkersFailed
from sgdoctor.tune.model import Job
from sgdoctor.tune.pool import START_SECONDS

_CONNECT_SECONDS = 5.0
_JOIN_SECONDS = 60.0
_CLOSE_SECONDS = 5.0

# Tried in a process of its own first: at an address where something else listens Ray tries for ever, and what
# it meets on the way it writes to the terminal.
_JOIN = """\
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
except Exception as error:
    print(error)
    sys.exit(1)
"""

# Sending sgdoctor and starting a process come before the child's own start.
_READY_SECONDS = START_SECONDS + 60.0


@dataclass(kw_only=True, eq=False)
class _Actor(Worker):
    handle: Any
    call: Any  # the reference of the call under way; null when there is none
    unsent: list[tuple[int, Any]] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)


def expected_of(job: Job) -> dict[str, Any]:
    """Return what every worker must say of itself: times of another GPU or Triton are no use to ``job``."""
    return {"gpu": job.device, "capability": list(job.capability), "triton": job.triton}


class RayPool(Dispatcher[_Actor]):
    """One worker of ``role`` on each free GPU of the Ray cluster whose head is at ``address`` (HOST:PORT).

    ``settings`` are the role's, the same for all or one for each; the file that ``path`` there names is sent.
    ``expected`` is what every worker must say of itself. ``cache`` is the Triton cache of this host, out of
    which the binaries of a task (``task["binaries"]``, their hashes) are sent to the workers that need them.
    ``depth``, ``timeout`` (seconds) and ``environment`` are those of the pool that each worker is in.

    A worker that dies is replaced as soon as the cluster has a GPU for it. Its tasks are tried once more,
    each alone, and reported as crashed when that worker dies as well.

    Raises UsageError when Ray is not installed, the cluster cannot be joined or has no free GPU.
    """

    wants_binaries = True

    def __init__(
        self,
        role: str,
        settings: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        address: str,
        expected: Mapping[str, Any] | None = None,
        cache: Path | None = None,
        depth: int = 1,
        timeout: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(depth)
        self.role = role
        self.settings = settings
        self.address = address
        self.expected = dict(expected or {})
        self.cache = cache
        self.options = {"depth": depth, "timeout": timeout, "environment": dict(environment or {})}
        self._tried: set[int] = set()
        self._ready_by = time.monotonic() + _READY_SECONDS
        self._ray = _join(address)
        try:
            for place in range(_free_gpus(self._ray, address)):
                self._start(place)
        except BaseException:
            self.close()
            raise

    def wait_ready(self, wait: float = _READY_SECONDS) -> bool:
        """Return whether every worker is ready, after waiting at most ``wait`` seconds for them.

        Raises WorkersFailed when one cannot be started or is not what is expected.
        """
        return super().wait_ready(wait)

    def close(self) -> None:
        """End all workers and leave the cluster."""
        closing = [actor.handle.close.remote() for actor in self._workers]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for actor in self._workers:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor.handle)
        self._workers.clear()
        self._ray.shutdown()

    def _start(self, place: int) -> None:
        from sgdoctor.tune.ray_actor import Supervisor

        settings = self.settings if isinstance(self.settings, Mapping) else self.settings[place]
        kernel = Path(settings["path"]).read_text(encoding="utf-8") if "path" in settings else None
        wanted = {"num_gpus": 1, "num_cpus": 0, "scheduling_strategy": "SPREAD"}
        handle = (
            self._ray.remote(Supervisor)
            .options(**wanted)
            .remote(self.role, dict(settings), kernel, **self.options)
        )
        self._workers.append(_Actor(place=place, handle=handle, call=handle.about.remote()))

    def _give(self, worker: _Actor, number: int, task: Any) -> None:
        worker.unsent.append((number, task))

    def _poll(self, wait: float) -> None:
        for actor in self._workers:
            if actor.ready and actor.tasks and actor.call is None:
                self._call(actor)
        calls = {actor.call: actor for actor in self._workers if actor.call is not None}
        if not calls:
            return
        done, _ = self._ray.wait(list(calls), timeout=wait)
        for call in done:
            self._answered(calls[call])
        if time.monotonic() > self._ready_by and not any(actor.ready for actor in self._workers):
            raise WorkersFailed(
                f"no worker on the Ray cluster at {self.address} was ready within {_READY_SECONDS:.0f} s: "
                "`ray status` there says what it waits for"
            )

    def _call(self, actor: _Actor) -> None:
        """Send an actor what it is to take up, and ask what ended."""
        needed = {name for _, task in actor.unsent for name in task.get("binaries", ()) if name} - actor.sent
        files = binaries.read(self.cache, sorted(needed)) if self.cache else {}
        actor.sent |= files.keys()
        tasks = [
            (number, {key: value for key, value in task.items() if key != "binaries"})
            for number, task in actor.unsent
        ]
        actor.unsent.clear()
        actor.call = actor.handle.work.remote(tasks, files)

    def _answered(self, actor: _Actor) -> None:
        """Take the answer of an actor's call, or bury the actor."""
        call, actor.call = actor.call, None
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if not actor.ready:
                raise WorkersFailed(_line(error.cause)) from error
            self._lost(actor, _line(error.cause))
        except self._ray.exceptions.RayError as error:
            self._lost(actor, _line(error))
        else:
            if actor.ready:
                for number, ending, value, text in answer:
                    self._end(actor, number, ending, value, text)
            elif answer is None:
                actor.call = actor.handle.about.remote()
            else:
                check_expected(answer, self.expected)
                self._came_up(actor, answer)

    def _lost(self, actor: _Actor, text: str) -> None:
        """Replace an actor; what it was at is tried again, once."""
        self._workers.remove(actor)
        about = self._abouts.pop(actor.place, None) or {}
        self._ray.kill(actor.handle)
        self._went_down(actor, f"workers on the Ray cluster at {self.address} do not start: {text}")
        for number, task in list(actor.tasks.items()):
            if number in self._tried:
                where = about.get("node", "unknown")
                self._end(actor, number, "crashed", text=f"two workers died, the last on Ray node {where}")
            else:
                self._tried.add(number)
                self._again.append((number, task))
        self._ready_by = time.monotonic() + _READY_SECONDS
        self._start(actor.place)


def check_expected(about: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise WorkersFailed, with the node, when a worker is not what is ``expected``.

    A GPU's name may have spaces, or underscores as in the names of config files.
    """
    for name, wanted in expected.items():
        found = about.get(name)
        if _plain(found) != _plain(wanted):
            raise WorkersFailed(
                f"Ray node {about.get('node')} has {name} {found}, and {wanted} is tuned for: "
                "use a cluster of equal nodes"
            )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.replace(" ", "_") if isinstance(value, str) else value


def _join(address: str) -> Any:
    """Join the cluster at ``address`` and return Ray."""
    package = Path(__file__).parents[1]
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise UsageError(
            f"--ray-address {address}: HOST:PORT of the cluster's head node is needed, as in 10.0.0.1:6379"
        )
    if not package.is_dir():
        raise UsageError(f"{package} is no folder, which Ray could send: install sgdoctor with pip")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--executor ray needs Ray ({error}): pip install 'sgdoctor[ray]'") from error
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        _try_to_join(address)
        modules = {"py_modules": [str(package)]}
        ray.init(address=address, runtime_env=modules, log_to_driver=False, logging_level="ERROR")
    except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UsageError(
            f"--ray-address {address}: cannot join a Ray cluster there: {_line(error)}"
        ) from error
    return ray


def _try_to_join(address: str) -> None:
    """Raise ConnectionError with the reason when no process of this host can join the cluster."""
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _JOIN, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_JOIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError(
            f"what listens there did not answer as Ray does within {_JOIN_SECONDS:.0f} s"
        ) from None
    if tried.returncode:
        raise ConnectionError(tried.stdout or tried.stderr or f"Ray exited with {tried.returncode}")


def _free_gpus(ray: Any, address: str) -> int:
    """Return how many GPUs of the cluster nobody uses."""
    there = int(ray.cluster_resources().get("GPU", 0))
    free = int(ray.available_resources().get("GPU", 0))
    if not free:
        reason = f"all {there} GPUs of it are in use" if there else "it has no GPUs"
        raise UsageError(f"--ray-address {address}: no GPU to measure on, {reason} (see `ray status`)")
    return free


def _line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(error).split())[:400]
