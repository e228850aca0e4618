"""Tests that ask SGLang's own code: without its wheel they are skipped and say so, and fail under CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import oracles

ROOT = Path(__file__).parents[2]
NEEDS_A_WHEEL = """
def test_needs_a_wheel(sglang_wheel):
    assert sglang_wheel("0.5.7.post99")
"""


@pytest.mark.parametrize(("ci", "code", "outcome"), [("", 0, "1 skipped"), ("true", 1, "1 failed")])
def test_a_wheel_that_cannot_be_had(tmp_path, ci, code, outcome):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(NEEDS_A_WHEEL)
    command = [sys.executable, "-m", "pytest", "-rsfE", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "CI": ci, "PIP_NO_INDEX": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert outcome in done.stdout
    assert "no wheel of SGLang 0.5.7.post99" in done.stdout


def test_at_least_eight_releases_are_asked():
    assert len(oracles.RELEASES) >= 8
