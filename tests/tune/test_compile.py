"""What is compiled without a GPU is what a GPU will be given, for every release and architecture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no torch in this environment: `make test-kernels` has one")
pytest.importorskip("triton", reason="no Triton in this environment: `make test-kernels` has one")

pytestmark = pytest.mark.kernels

HERE = Path(__file__).parent
OLDEST, NEWEST = "0.5.9", "0.5.23"


@pytest.fixture
def compiled(sglang_wheel, tmp_path):
    """Give a function that runs a function of compile_child.py."""

    def run(what, release, capability, *numbers):
        package = sglang_wheel(release) / "sglang"
        command = [sys.executable, str(HERE / "compile_child.py"), what, str(package), capability]
        environment = {
            **os.environ,
            "TRITON_INTERPRET": "0",
            "TRITON_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": str(HERE.parents[1]),
        }
        done = subprocess.run(
            [*command, *map(str, numbers)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("release", [OLDEST, "0.5.20", NEWEST])
def test_exploring_takes_one_binary_for_all_batch_sizes(compiled, release):
    """From 0.5.19 on, how launches overlap on Hopper is a constant of the binary: from 513 rows, another."""
    hashes = compiled("explored", release, "90", 1, 64, 512, 4096)
    assert len(hashes["up"]) == 1
    assert len(hashes["down"]) == 1


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_a_batch_size_compiles_to_the_binary_that_is_launched(compiled, release):
    found = compiled("exact", release, "90", 1, 7, 16, 1024)
    assert all(named == launched for *_, named, launched in found), found
    assert len({named for *_, named, _ in found}) > 3


@pytest.mark.parametrize("capability", ["80", "90", "120"])
def test_the_alignment_compiles(compiled, capability):
    """Triton takes a parameter's annotation for a value, which its interpreter does not."""
    assert compiled("alignment", NEWEST, capability, 1, 8, 256) == 15
