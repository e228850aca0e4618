"""The processor time of child processes, measured interleaved: what the benches of start-up share."""

from __future__ import annotations

import resource
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def cpu_seconds(command: Sequence[str], folder: Path) -> float:
    """Return user and system time of one run of ``command`` in ``folder``, its children included, in seconds.

    Raises subprocess.CalledProcessError when it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def medians(commands: Mapping[str, Sequence[str]], folder: Path, rounds: int) -> dict[str, float]:
    """Return the median of ``rounds`` runs of each command, in seconds, by its name.

    A first run of each is not counted: it compiles what is not compiled yet and fills caches. Raises as
    :func:`cpu_seconds`.
    """
    for command in commands.values():
        cpu_seconds(command, folder)
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(cpu_seconds(command, folder))
    return {name: statistics.median(values) for name, values in taken.items()}
