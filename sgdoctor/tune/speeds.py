"""What the GPU can do at most: below that no configuration comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


def limits(found: Any) -> dict[str, float]:
    """Return the pace of memory (bytes/s; by its clock and width) and of the tensor cores (FLOP/s in bf16).

    ``found`` are torch's properties of the GPU. What they do not tell (torch before 2.7) is left out: a pace
    measured by reading was 9% below what the kernel reaches on an H200. A product of cuBLAS is the limit of
    the tensor cores.
    """
    import torch

    matrix = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    multiply = _seconds(lambda: matrix @ matrix)
    told = {"flops": 2 * 4096**3 / multiply}
    clock, width = getattr(found, "memory_clock_rate", 0), getattr(found, "memory_bus_width", 0)
    if clock and width:
        told["bandwidth"] = 2 * clock * 1e3 * width / 8  # kHz, twice a clock; bits
    return told


def driver() -> str | None:
    """Return the version of NVIDIA's kernel driver on this host; null where it does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Module(?: for \S+)?\s+(\d[\d.]*)", text)
    return found[1] if found else None


def _seconds(work: Callable[[], Any], rounds: int = 5) -> float:
    import torch

    times: list[float] = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return min(times)
