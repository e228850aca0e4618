"""How much processor time the doctor's own start costs, as ratios within one run.

    python bench/start_up.py

Runs, interleaved: a bare interpreter, ``sgdoctor --version``, ``--help`` and a whole ``check`` on the four
inputs of the first deployment. Prints the median CPU time (user and system, children included) of each and
its ratio to the bare interpreter. Wall-clock time is not measured: it says more about the machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from processor_time import medians

SCENARIO = Path(__file__).parents[1] / "tests" / "scenarios" / "rtx-pro-6000"
ROUNDS = 15

SGDOCTOR = [sys.executable, "-m", "sgdoctor"]
CHECK = [
    "check",
    "--launch",
    "launch-fusion.sh",
    "--model",
    "config.json",
    "--environment",
    "environment.json",
    "--fail-on",
    "never",
]
COMMANDS = {
    "python -I -c pass": [sys.executable, "-I", "-c", "pass"],
    "sgdoctor --version": [*SGDOCTOR, "--version"],
    "sgdoctor --help": [*SGDOCTOR, "--help"],
    "sgdoctor check, 3 files": [*SGDOCTOR, *CHECK],
    "sgdoctor check, 4 files": [*SGDOCTOR, *CHECK, "--log", "server.log"],
}


def main() -> None:
    """Measure and print the table."""
    taken = medians(COMMANDS, SCENARIO, ROUNDS)
    bare = taken["python -I -c pass"]
    print(f"{'':<26}{'CPU ms':>8}{'above bare':>12}{'ratio':>8}")
    for name, seconds in taken.items():
        print(f"{name:<26}{seconds * 1000:>8.0f}{(seconds - bare) * 1000:>12.0f}{seconds / bare:>8.1f}")


if __name__ == "__main__":
    main()
