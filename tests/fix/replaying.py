"""`sgdoctor` as it runs, but that its workers replay the measured matrix named by MATRIX instead of a GPU.

On a Ray cluster, too; there EXPECTED is the GPU that every node must have.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sgdoctor.cli import group
from sgdoctor.tune import ray_pool, workers
from sgdoctor.tune.pool import Pool

MATRIX = Path(os.environ["MATRIX"])
SETTINGS = {"pause": float(os.environ.get("PAUSE", "0"))}


class ReplayedOnRay(ray_pool.RayPool):
    """The pool of a cluster with two GPUs."""

    def __init__(self, role: str, _settings: Any, **options: Any) -> None:
        assert role == "measure"
        # A matrix has no binaries that could be sent.
        options |= {"expected": {"gpu": os.environ.get("EXPECTED", "replay")}, "cache": None}
        each = [{"matrix": str(MATRIX), "uuid": f"GPU-replay-{number}", **SETTINGS} for number in range(2)]
        super().__init__("replay", each, **options)


def main() -> int:
    workers.local = lambda _job, gpus, **_: workers.replayed(MATRIX, gpus=[SETTINGS] * len(gpus))
    workers.compilers = lambda _job, **_: Pool("replay_compile", {"matrix": str(MATRIX)}, depth=4)
    ray_pool.RayPool = ReplayedOnRay
    return group.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
