"""`sgdoctor fix --executor ray` as it is run, on a real Ray cluster of two nodes that replay measured times.

Needs Ray and what sgdoctor needs: `make test-kernels`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="no Ray in this environment: `make test-kernels` has one")
pytest.importorskip("tree_sitter", reason="sgdoctor's own packages are missing: make clean test-kernels")

from sgdoctor.fix import moe_files, tune_moe
from sgdoctor.fix.moe_plan import Planned
from sgdoctor.tune.ray_pool import RayPool
from tests.fix.installed import install
from tests.fix.jobs import job
from tests.fix.models import QWEN35
from tests.tune.test_ray_pool import running

pytestmark = pytest.mark.kernels

ROOT = Path(__file__).parents[2]
UP = "E=256,N=256,device_name=NVIDIA_H200.json"
DOWN = "E=256,N=256,device_name=NVIDIA_H200_down.json"


@pytest.fixture(scope="module")
def address():
    """Give the address of a cluster of two nodes with a GPU each."""
    with running([1, 1]) as found:
        yield found


@pytest.fixture
def fix(address, tmp_path, sglang_wheel):
    """Give what tunes on the cluster, from a machine without a GPU that has the deployment's packages."""
    installed = install(tmp_path / "venv", sglang_wheel("0.5.12"), "0.5.12")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text(json.dumps(QWEN35))

    def run(*arguments, at=address, **variables):
        deployment = ("--model", "m", "--tp", "4", "--python", installed.python)
        command = [sys.executable, f"{ROOT}/tests/fix/replaying.py", "fix", "--tune-moe", *deployment]
        own = {
            "PYTHONPATH": str(ROOT),
            "MATRIX": f"{ROOT}/tests/tune/matrices/e256.json.xz",
            "XDG_CACHE_HOME": f"{tmp_path}/cache",
            "XDG_STATE_HOME": f"{tmp_path}/state",
        }
        known = ("--assume", "gpu.name=NVIDIA H200", "--effort", "quick")
        return subprocess.run(
            [*command, *known, "--executor", "ray", "--ray-address", at, *arguments],
            cwd=tmp_path,
            env={**os.environ, **own, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    run.configs = installed.folder("3.6.0")
    return run


def test_a_missing_configuration_is_tuned_on_a_cluster_and_installed_here(fix, tmp_path, address):
    done = fix()
    assert done.returncode == 0, done.stderr
    assert f"the free GPUs of the Ray cluster at {address}" in done.stdout
    assert "up: the next start loads" in done.stdout
    up, down = (json.loads((fix.configs / name).read_text()) for name in (UP, DOWN))
    assert list(up) == list(down)
    assert len(up) == 18
    (journal,) = tmp_path.glob("cache/sgdoctor/tune/*/journal.jsonl")
    assert "finished" in json.loads(journal.read_text().splitlines()[-1])


def test_a_cluster_of_another_gpu_is_refused_in_a_line(fix):
    done = fix(EXPECTED="NVIDIA H200")
    assert done.returncode == 3
    *_, said = done.stderr.splitlines()
    assert said.startswith("sgdoctor: the tuner's workers do")
    assert "has gpu replay, and NVIDIA H200 is tuned for: use a cluster of equal nodes" in said
    assert "Traceback" not in done.stderr
    assert not (fix.configs / UP).exists()


def test_an_address_without_a_cluster_is_refused_in_a_line(fix):
    done = fix(at="127.0.0.1:1")
    assert done.returncode == 2
    *_, said = done.stderr.splitlines()
    assert said.startswith("sgdoctor: --ray-address 127.0.0.1:1: cannot join a Ray cluster there")


def test_a_host_that_cannot_compile_leaves_no_worker_on_the_cluster(address, tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("")
    one = job(kernel=str(kernel))
    planned = Planned(("m",), "why", one, tmp_path, tmp_path, str(tmp_path / "no-python"))
    task = tune_moe.Task(planned, moe_files.output(one, tmp_path / "out"))
    with pytest.raises(FileNotFoundError, match="no-python"):
        tune_moe._workers(task, tune_moe.Wish(ray=address))
    with RayPool("echo", {}, address=address) as pool:
        assert pool.wait_ready()
        assert len(pool.abouts) == 2
