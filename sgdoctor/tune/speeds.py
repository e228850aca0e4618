"""What the GPU can do at most, measured: below that no configuration comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


def measure() -> dict[str, float]:
    """Return the pace of memory (bytes/s, read alone) and of the tensor cores (FLOP/s in bf16)."""
    import torch

    source = torch.zeros(128 << 20, dtype=torch.float32, device="cuda")
    matrix = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    read = _seconds(source.sum)
    multiply = _seconds(lambda: matrix @ matrix)
    return {"bandwidth": 4 * source.numel() / read, "flops": 2 * 4096**3 / multiply}


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
