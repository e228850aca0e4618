"""Which tiles are likely to be good: those that SGLang's own files use, for shapes and GPUs like this one.

Only the order of the search follows from it, and which tiles a quick one tries.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from sgdoctor.tune.model import Job
from sgdoctor.tune.space import Config

_NAME = re.compile(r"E=(\d+),N=(\d+),device_name=([^,]*?)(?:,dtype=([^,]+?))?(?:,.*)?(_down)?\.json")

# Names of GPUs by the major compute capability whose kernels Triton compiles alike.
_FAMILIES = (
    (8, ("A100", "A800", "A40", "L40", "L20", "4090")),
    (9, ("H100", "H200", "H20", "H800")),
    (10, ("B200", "B300")),
)

Rank = Callable[[Config], tuple[float, Config]]


def ranked(job: Job) -> Mapping[str, Rank]:
    """Return, for each product, what sorts tiles from likely to unlikely; ties by the tile itself."""
    weights: dict[str, Counter[Config]] = {"up": Counter(), "down": Counter()}
    for path in _files(Path(job.kernel)):
        found = _NAME.fullmatch(path.name)
        if found is None:
            continue
        alike = _alike(job, *found.groups())
        try:
            entries = [Config.from_sglang(entry) for entry in json.loads(path.read_text()).values()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a file that is broken says nothing here; `sgdoctor configs lint` says it is
        for gemm in ("down",) if found[5] else ("up", "down"):
            for config in entries:
                weights[gemm][Config.from_list([*config.tile.to_list()[:6], 0])] += alike  # type: ignore[assignment]
    return {gemm: _rank(weights[gemm]) for gemm in weights}


def _rank(weights: Counter[Config]) -> Rank:
    def key(config: Config) -> tuple[float, Config]:
        plain = Config.from_list([*config.tile.to_list()[:6], 0])
        return -float(weights.get(plain, 0)), config

    return key


def _alike(job: Job, *name: str | None) -> float:
    """Return how much a file says about this job: 1 for the same shape, kind and GPU family."""
    _, width, device, dtype, _ = name
    kind = {"fp8_w8a8": "fp8", "int8_w8a8": "int8", "int4_w4a16": "int4", None: "bf16"}.get(dtype, "other")
    same_kind = job.problem.kind.replace("fp16", "bf16").startswith(kind)
    distance = abs(math.log2(int(width or 1) / job.problem.width))
    family = next((major for major, names in _FAMILIES if any(n in (device or "") for n in names)), 0)
    return (1.0 if same_kind else 0.1) * (1.0 if family == job.capability[0] else 0.2) / (1 + distance)


def _files(kernel: Path) -> list[Path]:
    """Return the bundled config files of the package that holds ``kernel``."""
    package = next((parent for parent in kernel.parents if parent.name == "sglang"), kernel.parent)
    return sorted(package.rglob("configs/triton_*/*.json"))
