"""`sgdoctor` as it runs, but that its workers replay the measured matrix named by MATRIX instead of a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sgdoctor.cli import group
from sgdoctor.tune import workers


def main() -> int:
    matrix = Path(os.environ["MATRIX"])
    settings = {"pause": float(os.environ.get("PAUSE", "0"))}
    workers.local = lambda _job, gpus, **_: workers.replayed(matrix, gpus=[settings] * len(gpus))
    return group.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
