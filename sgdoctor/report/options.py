"""Which option of the command gives a fact that is missing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

# By the longest beginning of a fact's name that is listed here.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "sglang.": ("--environment", "--python", "--log", "--url"),
    "sglang.import_error": ("--deep",),
    "sglang.path": ("--python",),
    "triton.": ("--environment", "--python"),
    "torch.": ("--environment", "--python"),
    "package.": ("--environment", "--python"),
    "packages.": ("--environment", "--python"),
    "pin.": ("--environment", "--python", "--log", "--url"),
    "host.": ("--environment",),
    "host.python": ("--environment", "--python"),
    "gpu.": ("--gpu", "--environment"),
    "gpus": ("--gpu", "--environment"),
    "model.": ("--model",),
    "model.name": ("--launch", "--url", "--log", "--model"),
    "model.path": ("--launch", "--url", "--log"),
    "moe.": ("--log",),
    "moe.log_files": ("--log",),
    "gemm.": ("--log",),
    "launch.": ("--launch",),
    "asked.": ("--launch",),
    "env.": ("--launch",),
    "arg.": ("--launch", "--url", "--log", "--server-info"),
    "attention.": ("--launch",),
    "context.": ("--launch", "--url", "--log"),
    "graph.": ("--launch", "--url", "--log"),
    "kernel.": ("--launch",),
    "cudnn.": ("--launch",),
    "flashinfer.": ("--launch",),
    "network.": ("--launch",),
    "fp8_gemm.": ("--launch",),
    "fp4_gemm.": ("--launch",),
    "variables.": ("--launch",),
    "server.": ("--url",),
    "server.exposed": ("--launch", "--url", "--log"),
    "log.": ("--log",),
    "kv.": ("--log", "--url", "--server-info"),
    "memory.": ("--log", "--url"),
    "metrics.": ("--url", "--metrics"),
    "window.": ("--watch",),
    "fleet.": ("--url",),
}

# Options of which one is given instead of the others.
_INSTEAD = ({"--environment", "--python"}, {"--launch", "--"})


def giving(facts: Iterable[str], given: Iterable[str] = ()) -> list[str]:
    """Return the options of which each alone can give all ``facts``, less those that were given already."""
    common: list[str] | None = None
    for fact in facts:
        options = _giving(fact)
        common = list(options) if common is None else [each for each in common if each in options]
    taken = set(given)
    for instead in _INSTEAD:
        taken |= instead if taken & instead else set()
    return [option for option in common or [] if option not in taken]


@cache
def _giving(fact: str) -> tuple[str, ...]:
    best = max((start for start in _OPTIONS if fact.startswith(start)), key=len, default=None)
    return _OPTIONS[best] if best else ()
