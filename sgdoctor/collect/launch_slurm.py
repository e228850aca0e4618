"""What ``#SBATCH`` lines of a bash script give it: nodes, tasks, GPUs."""

from __future__ import annotations

import re

from sgdoctor.collect.launch_text import number
from sgdoctor.collect.launch_words import Piece, Value

_LINE = re.compile(r"#SBATCH\s+(\S.*?)\s*$")
_OPTION = re.compile(r"(--[a-z-]+)(?:[=\s]\s*|$)|(-[A-Za-z])\s*=?\s*")
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-c": "--cpus-per-task", "-G": "--gpus"}
# Variables that sbatch sets, by the option that decides them.
_VARIABLES = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--cpus-per-task": ("SLURM_CPUS_PER_TASK",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--gres": ("SLURM_GPUS_ON_NODE",),
}


def options(text: str) -> dict[str, tuple[str, int]]:
    """Return the options of ``#SBATCH`` lines, long names, with their lines; empty when there are none.

    Only those before the first command count, as for sbatch.
    """
    found: dict[str, tuple[str, int]] = {}
    for line, raw in enumerate(text.split("\n"), 1):
        match = _LINE.match(raw.rstrip("\r"))
        if match is None:
            if raw.strip() and not raw.lstrip().startswith("#"):
                break
            continue
        option = _OPTION.match(match.group(1))
        if option is not None:
            name = option.group(1) or _SHORT.get(option.group(2), option.group(2))
            value = match.group(1)[option.end() :].split(" #")[0].strip().strip("\"'")
            found[name] = (value, line)
    return found


def gpus(given: dict[str, tuple[str, int]]) -> tuple[int, int] | None:
    """Return how many GPUs a node of the job gives, and the line that says so."""
    for name in ("--gpus-per-node", "--gres"):
        if name in given:
            value, line = given[name]
            count = _count(name, value)
            if count:
                return count, line
    return None


def _count(name: str, value: str) -> int | None:
    """Return the number in ``8``, ``h100:8``, ``gpu:8``, ``gpu:h100:8``."""
    if name != "--gres":
        return number(value.rpartition(":")[2])
    for part in value.split(","):
        kind, *rest = part.split("(")[0].split(":")
        if kind == "gpu":
            return number(rest[-1]) if rest and number(rest[-1]) else 1
    return None


def variables(given: dict[str, tuple[str, int]]) -> dict[str, Value]:
    """Return the variables that the job's script starts with, as far as its own lines decide them."""
    found: dict[str, Value] = {}
    for option, names in _VARIABLES.items():
        if option not in given:
            continue
        value, line = given[option]
        count = _count(option, value) if option in ("--gres", "--gpus-per-node") else number(value)
        for name in names if count else ():
            text = value if name == "SLURM_GPUS_PER_NODE" else str(count)
            found.setdefault(name, (Piece(text, line),))
    return found
