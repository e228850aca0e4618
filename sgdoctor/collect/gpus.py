"""The GPUs of this host: asked of NVML, else of nvidia-smi, else of rocm-smi; each with a timeout."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import msgspec

from sgdoctor.collect import child, patience
from sgdoctor.facts import Facts
from sgdoctor.upstream import known_gpus

SECONDS = 5.0

_GPU_FACTS = ("gpus", "gpu.count", "gpu.name", "gpu.vendor", "gpu.compute_capability", "gpu.memory_mib",
              "gpu.shared_memory_bytes")  # fmt: skip
_SMI_FIELDS = "index,name,uuid,compute_cap,memory.total,mig.mode.current,driver_version"


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. ``name`` is what torch calls it; ``compute_capability`` is null off NVIDIA."""

    index: int
    name: str
    compute_capability: str | None = None
    memory_mib: int | None = None
    uuid: str | None = None
    mig: bool = False


class Seen(msgspec.Struct, frozen=True):
    """What one tool said."""

    tool: str
    gpus: tuple[Gpu, ...]
    driver: str | None = None
    cuda: str | None = None


class _NoAnswerError(Exception):
    """A tool is not there or gave nothing usable; the text says why."""


def read_gpus(facts: Facts, *, visible: str | None = None, timeout: float = SECONDS) -> None:
    """Set gpus, gpu.*, host.driver and host.cuda for the GPUs that a server may use.

    ``visible`` is the server's CUDA_VISIBLE_DEVICES, null when it is not set or not known. Never raises.
    """
    reasons = []
    for ask in (_ask_nvml, _ask_nvidia_smi, _ask_rocm_smi):
        try:
            seen = ask(timeout)
        except _NoAnswerError as error:
            reasons.append(str(error))
            continue
        place = seen.tool
        for name, value in (("host.driver", seen.driver), ("host.cuda", seen.cuda)):
            if value is not None or seen.tool == "rocm-smi":
                facts.set(name, value, source="gpus", place=place)
            else:
                facts.set_unknown(name, f"{place} did not say it")
        chosen, reason = choose(seen.gpus, visible)
        if reason is not None:
            _set_all_unknown(facts, reason)
        else:
            set_gpus(facts, chosen, source="gpus", place=place)
        return
    _set_all_unknown(facts, "; ".join(reasons))
    for name in ("host.driver", "host.cuda"):
        facts.set_unknown(name, "; ".join(reasons))


def choose(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order, or why they are not known.

    As CUDA reads it: indices or beginnings of UUIDs; the list ends at the first entry that is neither.
    """
    if visible is not None:
        if "MIG-" in visible:
            return (), f"CUDA_VISIBLE_DEVICES={visible} names MIG instances, whose size is not known"
        entries = [entry.strip() for entry in visible.split(",")]
        if any(entry.isdecimal() for entry in entries) and len({gpu.name for gpu in gpus}) > 1:
            counted = f"CUDA_VISIBLE_DEVICES={visible} counts GPUs in CUDA's order"
            return (), f"{counted}, and the GPUs of this host differ"
        chosen = []
        for entry in entries:
            found = [gpu for gpu in gpus if entry.isdecimal() and gpu.index == int(entry)]
            found += [gpu for gpu in gpus if entry.startswith("GPU-") and (gpu.uuid or "").startswith(entry)]
            if len(found) != 1:
                break
            chosen += found
        gpus = tuple(chosen)
    divided = [str(gpu.index) for gpu in gpus if gpu.mig]
    if divided:
        return (), f"MIG is on for GPU {', '.join(divided)}: what a server gets of it is not known"
    return gpus, None


def set_gpus(facts: Facts, gpus: tuple[Gpu, ...], *, source: str, place: str) -> None:
    """Set gpus and gpu.* from the GPUs of a deployment."""
    records = [
        {name: getattr(gpu, name) for name in ("index", "name", "compute_capability", "memory_mib")}
        for gpu in gpus
    ]
    facts.set("gpus", records, source=source, place=place)
    facts.set("gpu.count", len(gpus), source=source, place=place)
    if not gpus:
        for name in _GPU_FACTS[2:]:
            facts.set_unknown(name, f"{place} sees no GPU")
        return

    def settle(name: str, values: list[Any]) -> None:
        if any(value != values[0] for value in values):
            facts.set_unknown(name, f"the GPUs differ: {', '.join(dict.fromkeys(map(str, values)))}")
        else:
            facts.set(name, values[0], source=source, place=place)

    settle("gpu.name", [gpu.name for gpu in gpus])
    settle("gpu.vendor", [vendor(gpu) for gpu in gpus])
    settle("gpu.compute_capability", [gpu.compute_capability for gpu in gpus])
    if any(gpu.memory_mib is None for gpu in gpus):
        facts.set_unknown("gpu.memory_mib", f"{place} does not say it (a GPU that shares the host's memory)")
    else:
        settle("gpu.memory_mib", [gpu.memory_mib for gpu in gpus])
    _set_shared_memory(facts, source, place)


def _set_shared_memory(facts: Facts, source: str, place: str) -> None:
    name, rest = "gpu.shared_memory_bytes", "gpu.compute_capability"
    if not facts.known(rest):
        facts.set_unknown(name, "the GPUs' compute capability is not known", (rest,))
        return
    capability = facts.value(rest)
    if capability is None:
        facts.set(name, None, source=source, place=place)
    elif capability in known_gpus.SHARED_KIB:
        facts.derive(name, known_gpus.SHARED_KIB[capability] * 1024, (rest,))
    else:
        facts.set_unknown(name, f"not known for compute capability {capability}")


def vendor(gpu: Gpu) -> str:
    """Return nvidia, amd or other."""
    if gpu.compute_capability is not None or "NVIDIA" in gpu.name.upper():
        return "nvidia"
    return "amd" if re.search(r"\bAMD\b|Instinct|Radeon", gpu.name) else "other"


def _set_all_unknown(facts: Facts, reason: str) -> None:
    for name in _GPU_FACTS:
        facts.set_unknown(name, reason)


def _ask_nvml(timeout: float) -> Seen:
    try:
        return patience.within(timeout, _nvml)
    except TimeoutError:
        raise _NoAnswerError(f"NVML did not answer within {timeout:g} s") from None
    except _NoAnswerError:
        raise
    except Exception as error:  # noqa: BLE001 (a binding may raise anything: KeyError, AttributeError, ...)
        raise _NoAnswerError(f"NVML: {type(error).__name__}: {error}") from None


def _nvml() -> Seen:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _NoAnswerError(f"NVML: {error}") from None
    try:
        gpus = tuple(_nvml_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        raise _NoAnswerError(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()
    return Seen("NVML", gpus, driver, f"{cuda // 1000}.{cuda % 1000 // 10}")


def _nvml_gpu(pynvml: Any, index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def optional(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except pynvml.NVMLError:  # "Not Supported": MIG on most GPUs, memory where it is the host's
            return None

    capability = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    mig = optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    return Gpu(
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        compute_capability=".".join(map(str, capability)),
        memory_mib=memory // 2**20 if memory else None,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        mig=bool(mig),
    )


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _ask_nvidia_smi(timeout: float) -> Seen:
    if shutil.which("nvidia-smi") is None:
        raise _NoAnswerError("no nvidia-smi")
    query = child.run(["nvidia-smi", f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], timeout)
    if query.failure is not None or query.status != 0:
        said = (query.stdout or query.stderr).strip().splitlines()
        raise _NoAnswerError(query.failure or f"nvidia-smi: {said[0] if said else query.status}")
    gpus, driver = parse_smi(query.stdout)
    banner = child.run(["nvidia-smi"], timeout)
    found = re.search(r"CUDA Version:\s*([\d.]+)", banner.stdout)
    return Seen("nvidia-smi", gpus, driver, found.group(1) if found else None)


def parse_smi(text: str) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs and the driver of nvidia-smi's answer in CSV."""
    gpus, driver = [], None
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < len(_SMI_FIELDS.split(",")) or not fields[0].isdecimal():
            continue
        index, uuid, capability, memory, mig, driver = fields[0], *fields[-5:]
        gpus.append(
            Gpu(
                index=int(index),
                name=", ".join(fields[1:-5]),
                compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
                memory_mib=int(memory) if memory.isdecimal() else None,
                uuid=uuid,
                mig=mig == "Enabled",
            )
        )
    return tuple(gpus), driver


def _ask_rocm_smi(timeout: float) -> Seen:
    if shutil.which("rocm-smi") is None:
        raise _NoAnswerError("no rocm-smi")
    ended = child.run(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"], timeout)
    if ended.failure is not None or ended.status != 0:
        raise _NoAnswerError(ended.failure or f"rocm-smi: exit status {ended.status}")
    gpus = parse_rocm(ended.stdout)
    if not gpus:
        raise _NoAnswerError("rocm-smi lists no GPU")
    return Seen("rocm-smi", gpus)


def parse_rocm(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs of ``rocm-smi --showproductname --showmeminfo vram --json``."""
    try:
        cards = msgspec.json.decode(text[max(text.find("{"), 0) :], type=dict[str, dict[str, Any]])
    except msgspec.MsgspecError:
        return ()
    gpus = []
    for card, said in cards.items():
        if not re.fullmatch(r"card\d+", card):
            continue
        said = {key.lower(): str(value) for key, value in said.items()}  # noqa: PLW2901
        memory = said.get("vram total memory (b)", "")
        gpus.append(
            Gpu(
                index=int(card.removeprefix("card")),
                name=said.get("card series") or said.get("card model") or "AMD GPU",
                memory_mib=int(memory) // 2**20 if memory.isdecimal() else None,
            )
        )
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))
