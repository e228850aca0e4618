"""The GPUs of this host as a tuner needs to know them, and which of them it may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sgdoctor.collect import gpus as collected
from sgdoctor.collect import patience
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.tune.space import Capability, Problem

SECONDS = 10.0

# A GPU is idle when no process computes on it and it does not more than this. What a driver keeps for itself
# on an idle GPU is 0.5 to 0.8 GB; in a container the processes of others are not seen, their memory is.
IDLE_UTILIZATION = 5  # percent
IDLE_MIB = 1536

# nvml.h: nvmlClocksEventReasons, those that slow a kernel down
_THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}

# The largest L2 cache that is known (B200: 126 MiB); weights are copied until they are three times as large.
_L2_BYTES = 128 * 2**20
_CACHES = 3
# The CUDA context, Triton's modules, graphs and their pool, torch's rounding.
_REST_MIB = 2048
_WIDEST_BLOCK = 256


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU; what is null NVML does not tell (another container's)."""

    pid: int
    name: str | None
    memory_mib: int | None

    def __str__(self) -> str:
        memory = "" if self.memory_mib is None else f", {self.memory_mib} MiB"
        return f"{self.name or 'process'} ({self.pid}{memory})"


@dataclass(frozen=True)
class Gpu:
    """One GPU now. Memory is null where it is the host's; ``throttles`` are reasons for lower clocks."""

    index: int
    uuid: str
    name: str
    capability: Capability
    total_mib: int | None = None
    free_mib: int | None = None
    utilization: int = 0
    processes: tuple[Process, ...] = ()
    throttles: tuple[str, ...] = ()
    clock_mhz: int | None = None
    power_limit_watts: int | None = None
    driver: str | None = None
    mig: bool = False

    @property
    def busy(self) -> str | None:
        """Why its timings would be disturbed; null when it is idle."""
        if self.processes:
            return f"in use by {', '.join(map(str, self.processes))}"
        if self.utilization > IDLE_UTILIZATION:
            return f"{self.utilization}% busy with processes that are not seen from here"
        used = None if self.total_mib is None or self.free_mib is None else self.total_mib - self.free_mib
        if used is not None and used > IDLE_MIB:
            return f"{used} MiB are in use by processes that are not seen from here"
        return None

    def __str__(self) -> str:
        memory = "" if self.free_mib is None else f", {self.free_mib} of {self.total_mib} MiB free"
        slowed = f", slowed: {', '.join(self.throttles)}" if self.throttles else ""
        return f"GPU {self.index} {self.name}{memory}, {self.busy or 'idle'}{slowed}"


def read(timeout: float = SECONDS) -> tuple[Gpu, ...]:
    """Ask NVML for all GPUs of this host. Raises Undecided when it does not answer, with the reason."""
    try:
        return patience.within(timeout, _nvml)
    except TimeoutError:
        reason = f"NVML did not answer within {timeout:g} s"
    except Exception as error:  # noqa: BLE001 (a binding may raise anything: KeyError, AttributeError, ...)
        reason = f"NVML: {error}"
    raise Undecided(f"no GPU to tune on ({reason}): run it on the machine with the GPU") from None


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves. Raises Undecided where it does not say which."""
    known = tuple(collected.Gpu(gpu.index, gpu.name, uuid=gpu.uuid) for gpu in gpus)
    left, reason = collected.choose(known, setting)
    if reason is not None:
        raise Undecided(f"{reason}: name one with --gpu, and unset the variable")
    return tuple(gpu for gpu in gpus if gpu.uuid in {each.uuid for each in left})


def needed_mib(problem: Problem, tokens: int) -> int:
    """Return the GPU memory that tuning takes for batches of up to ``tokens``, in MiB, rather too much.

    Copies of the weights until no cache holds them, activations and results of the largest batch, one weight
    in 16 bits while it is quantized, one expert in float32 while results are checked.
    """
    down = problem.experts * problem.hidden * problem.width * problem.weight_bytes
    copies = max(1, -(-_CACHES * _L2_BYTES // int(down)))
    weights = 3 * down * copies * (1 if problem.operand_bytes == 2 else 1.1)  # with their scales
    slots = tokens * problem.topk
    rows = slots + min(slots, problem.experts + 1) * (_WIDEST_BLOCK - 1)
    activations = 2 * (tokens * problem.hidden + 2 * rows * problem.width)
    results = 2 * max(rows * 2 * problem.width, slots * problem.hidden)
    reference = 2 * 4 * max(rows * 2 * problem.width, slots * problem.hidden)
    expert = 4 * 2 * problem.width * problem.hidden
    return int((weights + activations + results + reference + expert) / 2**20) + _REST_MIB


def choose(
    gpus: Sequence[Gpu], *, device: str, needed: int, wanted: Sequence[str] = (), share: bool = False
) -> list[Gpu]:
    """Return the GPUs to tune on: those ``wanted`` (indices or UUIDs), else all idle ones of the ``device``.

    ``needed`` is the memory of a worker in MiB; ``share`` takes busy ones, too, whose timings are noisy.
    Raises UsageError for a GPU that is not there, Undecided when none can be used, with the reason.
    """
    named = [_named(gpus, each) for each in dict.fromkeys(wanted)]
    if named:
        for gpu in named:
            reason = _unfit(gpu, device, needed)
            if reason is not None:
                raise Undecided(f"GPU {gpu.index}: {reason}")
        return list(dict.fromkeys(named))
    fitting = [gpu for gpu in gpus if _unfit(gpu, device, needed) is None]
    if not fitting:
        said = "; ".join(f"GPU {gpu.index}: {_unfit(gpu, device, needed)}" for gpu in gpus)
        raise Undecided(f"no GPU here can tune for {device}: {said or 'there is none'}")
    idle = [gpu for gpu in fitting if gpu.busy is None]
    if not (idle or share):
        said = "; ".join(f"GPU {gpu.index} is {_shown(gpu)}" for gpu in fitting)
        raise Undecided(
            f"no {device} is idle: {said}. Stop what runs there, name one with --gpu, or accept noisy "
            "timings with --share"
        )
    return fitting if share else idle


def _shown(gpu: Gpu) -> str:
    return gpu.busy or "idle"


def _named(gpus: Sequence[Gpu], wanted: str) -> Gpu:
    found = [
        gpu
        for gpu in gpus
        if (wanted.isdecimal() and gpu.index == int(wanted))
        or (wanted.startswith("GPU-") and gpu.uuid.startswith(wanted))
    ]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus) or "none"
    raise UsageError(f"--gpu {wanted}: no such GPU; an index or a UUID of: {there}")


def _unfit(gpu: Gpu, device: str, needed: int) -> str | None:
    """Return why a GPU cannot tune for ``device`` at all."""
    if gpu.name != device:
        return f"is an {gpu.name}, and the missing file is for {device}"
    if gpu.mig:
        return "MIG is on: an instance is another GPU than the whole, and none has the name of the file"
    if gpu.free_mib is not None and gpu.free_mib < needed:
        return f"{gpu.free_mib} MiB are free, and tuning this shape takes up to {needed} MiB"
    return None


def _nvml() -> tuple[Gpu, ...]:
    import pynvml

    pynvml.nvmlInit()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return tuple(_gpu(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount()))
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int, driver: str) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def optional(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except nvml.NVMLError:  # "Not Supported" and "No Permission"
            return None

    memory = optional(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    used = optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    running = optional(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    reasons = optional(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    limit = optional(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        capability=(int(major), int(minor)),
        total_mib=memory.total // 2**20 if memory else None,
        free_mib=memory.free // 2**20 if memory else None,
        utilization=int(used or 0),
        processes=tuple(_process(each) for each in running),
        throttles=tuple(name for bit, name in _THROTTLES.items() if reasons & bit),
        clock_mhz=optional(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        power_limit_watts=None if limit is None else limit // 1000,
        driver=driver,
        mig=bool(optional(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])),
    )


def _process(said: Any) -> Process:
    import psutil

    try:
        name = psutil.Process(said.pid).name()
    except psutil.Error:
        name = None
    memory = said.usedGpuMemory
    return Process(int(said.pid), name, None if memory is None else int(memory) // 2**20)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
