"""How much time ``sgdoctor gate`` adds to a launch.

    python bench/gate.py

Launches a program that ends at once, called sglang and installed among 200 packages: bare, behind a gate
that is switched off, and behind a gate. The rounds are interleaved. Prints the medians of CPU time (user and
system, of all processes: the check is made in one of its own) and of wall-clock time, and what they are above
the bare launch. The driver is asked as on any machine; with GPUs, its start is in the wall-clock time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = 200
ROUNDS = 15
ADOPT = 36  # PR_SET_CHILD_SUBREAPER: the time of the check, which is nobody's child, is counted here

GATE = [sys.executable, "-m", "sgdoctor", "gate", "--"]
COMMAND = ["sglang", "serve", "--model-path", "dense", "--tp", "8", "--host", "0.0.0.0"]  # noqa: S104


def installed(folder: Path) -> Path:
    """Write a virtual environment with SGLang 0.5.12 in it; return the folder of its programs."""
    programs = folder / "bin"
    programs.mkdir()
    python = Path(sys.executable).resolve()
    (programs / "python3").symlink_to(python)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (programs / "sglang").write_text(f"#!{programs}/python3\n")
    (programs / "sglang").chmod(0o755)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for number in range(PACKAGES):
        name, version = ("sglang", "0.5.12") if not number else (f"package{number}", "1.0")
        metadata = site / f"{name}-{version}.dist-info"
        metadata.mkdir(parents=True)
        requires = "".join(f"Requires-Dist: package{each}>=1\n" for each in range(1, 20))
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requires}"
        (metadata / "METADATA").write_text(text)
    (site / "sglang").mkdir()
    (site / "sglang" / "__init__.py").touch()
    return programs


def seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the CPU and the wall-clock time of one launch."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    wall = time.perf_counter() - began
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, wall


def main() -> None:
    """Measure and print the table."""
    ctypes.CDLL(None).prctl(ADOPT, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{installed(Path(folder))}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[1])}
        ways = {
            "bare": (COMMAND, environment),
            "gate, SGDOCTOR_GATE=off": ([*GATE, *COMMAND], {**environment, "SGDOCTOR_GATE": "off"}),
            "gate": ([*GATE, *COMMAND], environment),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(ROUNDS + 1):
            for name, way in ways.items():
                times = seconds(*way)
                if number:  # the first compiles what is not compiled yet
                    taken[name].append(times)
    print(f"{'ms':<26}{'CPU':>8}{'added':>8}{'wall':>8}{'added':>8}")
    bare = [statistics.median(column) for column in zip(*taken["bare"], strict=True)]
    for name, times in taken.items():
        cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
        added = (cpu - bare[0], wall - bare[1])
        print(f"{name:<26}{cpu * 1e3:>8.0f}{added[0] * 1e3:>8.0f}{wall * 1e3:>8.0f}{added[1] * 1e3:>8.0f}")


if __name__ == "__main__":
    main()
