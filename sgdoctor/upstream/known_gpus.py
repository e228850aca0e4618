"""GPUs that a deployment may be planned for (`--gpu NAME[:COUNT]`), and what their compute capability allows.

The names are those that torch.cuda.get_device_name() returns: with underscores for spaces they are part of
the names of SGLang's config files. Memory is what the driver reports (nvidia-smi, MiB).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sgdoctor.errors import UsageError

# Shared memory that one thread block may opt in to, in KiB, by compute capability (CUDA programming guide,
# "Maximum amount of shared memory per thread block").
SHARED_KIB = {
    "7.0": 96,
    "7.2": 96,
    "7.5": 64,
    "8.0": 163,
    "8.6": 99,
    "8.7": 163,
    "8.9": 99,
    "9.0": 227,
    "10.0": 227,
    "10.3": 227,
    "11.0": 227,
    "12.0": 99,
    "12.1": 99,
}


class KnownGpu(msgspec.Struct, frozen=True):
    """One kind of GPU."""

    name: str
    capability: str | None  # null off NVIDIA
    memory_mib: int | None  # null: not known, or shared with the host

    @property
    def vendor(self) -> str:
        """The maker, as the vocabulary names it."""
        return "amd" if self.name.startswith("AMD") else "nvidia"

    @property
    def shared_memory_bytes(self) -> int | None:
        """Shared memory of one thread block; null off NVIDIA."""
        return None if self.capability is None else SHARED_KIB[self.capability] * 1024


GPUS = (
    KnownGpu("NVIDIA A100-SXM4-40GB", "8.0", 40960),
    KnownGpu("NVIDIA A100-SXM4-80GB", "8.0", 81920),
    KnownGpu("NVIDIA A100-PCIE-40GB", "8.0", 40960),
    KnownGpu("NVIDIA A100 80GB PCIe", "8.0", 81920),
    KnownGpu("NVIDIA A800-SXM4-80GB", "8.0", 81920),
    KnownGpu("NVIDIA A10", "8.6", 23028),
    KnownGpu("NVIDIA A40", "8.6", 46068),
    KnownGpu("NVIDIA GeForce RTX 3090", "8.6", 24576),
    KnownGpu("NVIDIA RTX A6000", "8.6", 49140),
    KnownGpu("NVIDIA L4", "8.9", 23034),
    KnownGpu("NVIDIA L20", "8.9", 46068),
    KnownGpu("NVIDIA L40", "8.9", 46068),
    KnownGpu("NVIDIA L40S", "8.9", 46068),
    KnownGpu("NVIDIA GeForce RTX 4090", "8.9", 24564),
    KnownGpu("NVIDIA RTX 6000 Ada Generation", "8.9", 49140),
    KnownGpu("NVIDIA RTX 5880 Ada Generation", "8.9", 49140),
    KnownGpu("NVIDIA H100 80GB HBM3", "9.0", 81559),
    KnownGpu("NVIDIA H100 PCIe", "9.0", 81559),
    KnownGpu("NVIDIA H100 NVL", "9.0", 95830),
    KnownGpu("NVIDIA H800", "9.0", 81559),
    KnownGpu("NVIDIA H20", "9.0", 97871),
    KnownGpu("NVIDIA H20-3e", "9.0", 143771),
    KnownGpu("NVIDIA H200", "9.0", 143771),
    KnownGpu("NVIDIA H200 NVL", "9.0", 143771),
    KnownGpu("NVIDIA GH200 480GB", "9.0", 97871),
    KnownGpu("NVIDIA B200", "10.0", 183359),
    KnownGpu("NVIDIA GB200", "10.0", 189471),
    KnownGpu("NVIDIA B300 SXM6 AC", "10.3", 275040),
    KnownGpu("NVIDIA GB300", "10.3", None),
    KnownGpu("NVIDIA GB10", "12.1", None),
    KnownGpu("NVIDIA GeForce RTX 5090", "12.0", 32607),
    KnownGpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 97887),
    KnownGpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 97887),
    KnownGpu("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0", 97887),
    KnownGpu("AMD Instinct MI300X", None, 196592),
    KnownGpu("AMD Instinct MI325X", None, 262128),
    KnownGpu("AMD Instinct MI355X", None, 294896),
)

# Short names that operators use for one of several.
_MEANT = {
    "a100": "NVIDIA A100-SXM4-80GB",
    "h100": "NVIDIA H100 80GB HBM3",
    "h100sxm": "NVIDIA H100 80GB HBM3",
    "h200": "NVIDIA H200",
    "h20": "NVIDIA H20",
    "b300": "NVIDIA B300 SXM6 AC",
    "l40": "NVIDIA L40",
    "l4": "NVIDIA L4",
    "dgxspark": "NVIDIA GB10",
    "4090": "NVIDIA GeForce RTX 4090",
    "5090": "NVIDIA GeForce RTX 5090",
}
_MOST = 1024


def find(text: str) -> KnownGpu:
    """Return the GPU that ``text`` names: its full name, a short one, or words that only one GPU's name has.

    Raises UsageError naming the candidates when there are several, or what there is when there are none.
    """
    wanted = _plain(text)
    for gpu in GPUS:
        if _plain(gpu.name) == wanted or gpu.name == _MEANT.get(wanted):
            return gpu
    words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word and word != "nvidia"]
    fits = [gpu for gpu in GPUS if words and _has_words(gpu.name, words)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UsageError(f"--gpu {text}: which one? {'; '.join(gpu.name for gpu in fits)}")
    raise UsageError(
        f"--gpu {text}: not a GPU sgdoctor knows; it knows {'; '.join(gpu.name for gpu in GPUS)}"
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().removeprefix("nvidia").removeprefix("amd"))


def _has_words(name: str, words: list[str]) -> bool:
    """Whether every word is a word of ``name``, or together they are written without spaces in it."""
    own = re.split(r"[^a-z0-9]+", name.lower())
    return all(word in own for word in words) or "".join(words) in _plain(name)


def assumed(text: str) -> dict[str, Any]:
    """Return the facts that ``--gpu NAME[:COUNT]`` assumes; without a count it does not say how many.

    Raises UsageError for a name that is not one GPU's and for a count that is none.
    """
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdecimal() and 1 <= int(number[:6]) <= _MOST):
        raise UsageError(f"--gpu {text}: the count after the colon is a number from 1 to {_MOST}")
    gpu, count = find(name), int(number) if colon else 1
    facts: dict[str, Any] = {
        "gpus": [
            {
                "index": index,
                "name": gpu.name,
                "compute_capability": gpu.capability,
                "memory_mib": gpu.memory_mib,
            }
            for index in range(count)
        ],
        "gpu.name": gpu.name,
        "gpu.vendor": gpu.vendor,
        "gpu.compute_capability": gpu.capability,
        "gpu.shared_memory_bytes": gpu.shared_memory_bytes,
    }
    if colon:
        facts["gpu.count"] = count
    if gpu.memory_mib is not None:
        facts["gpu.memory_mib"] = gpu.memory_mib
    return facts
