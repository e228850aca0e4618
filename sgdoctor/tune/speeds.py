"""What the GPU can do at most, measured: below that no configuration comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def measure() -> dict[str, float]:
    """Return the pace of memory (bytes/s, read and written) and of the tensor cores (FLOP/s in bf16)."""
    import torch

    source = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    matrix = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    copy = _seconds(source.clone)
    multiply = _seconds(lambda: matrix @ matrix)
    return {"bandwidth": 2 * source.numel() / copy, "flops": 2 * 4096**3 / multiply}


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
