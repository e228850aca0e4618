"""The command as people run it: a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])
SHAPING = (
    "COLUMNS",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "SGDOCTOR_DEBUG",
    "SGDOCTOR_API_KEY",
    "PYTHONIOENCODING",
)


@pytest.fixture
def environment():
    """Return the environment of a child: this one, less what shapes output."""
    kept = {name: value for name, value in os.environ.items() if name not in SHAPING}
    return {**kept, "PYTHONPATH": ROOT}


@pytest.fixture
def sgdoctor(environment, tmp_path):
    """Return what runs the command in an empty folder, with a pipe for its output."""

    def run(*arguments, stdin="", cwd=None, **variables):
        return subprocess.run(
            [sys.executable, "-m", "sgdoctor", *map(str, arguments)],
            capture_output=True,
            text=True,
            input=stdin,
            cwd=cwd or tmp_path,
            env={**environment, **variables},
            timeout=60,
            check=False,
        )

    return run
