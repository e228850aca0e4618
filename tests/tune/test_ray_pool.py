"""Workers on a real Ray cluster of two nodes, with a measured matrix in place of their GPUs.

Needs Ray, torch and Triton: `make test-kernels`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray", reason="no Ray in this environment: `make test-kernels` has one")

from ray.cluster_utils import Cluster  # noqa: E402

from sgdoctor.errors import UsageError  # noqa: E402
from sgdoctor.tune import binaries, ray_pool  # noqa: E402
from sgdoctor.tune.pool import Pool, WorkersFailed  # noqa: E402
from sgdoctor.tune.ray_pool import RayPool  # noqa: E402
from sgdoctor.tune.replay import Matrix  # noqa: E402
from sgdoctor.tune.space import Config, Problem  # noqa: E402

pytestmark = pytest.mark.kernels

ROOT = Path(__file__).parents[2]
MATRIX = Path(__file__).parent / "matrices" / "e8.json.xz"
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@contextlib.contextmanager
def running(gpus):
    """Give the address of a cluster with nodes that declare so many GPUs each."""
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_gpus": gpus[0]})
    try:
        for count in gpus[1:]:
            cluster.add_node(**{**NODE, "num_gpus": count})
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def address():
    """Give the address of a cluster of two nodes with a GPU each."""
    with running([1, 1]) as found:
        yield found


def replay(**changes):
    """Return the settings of two GPUs that answer from the matrix."""
    own = {"matrix": str(MATRIX), "noise": 0.0, **changes}
    return [{**own, "uuid": f"GPU-{letter}"} for letter in "ab"]


def tasks(count):
    """Return so many different timings of the matrix, and what each must give."""
    matrix = Matrix(MATRIX)
    points = [point for point in matrix.times if point[0] == "up"][:count]
    units = [[gemm, tokens, config.to_list()] for gemm, tokens, config in points]
    return [
        ({"do": "time", "units": [unit], "rounds": 1}, [[matrix.times[p]]])
        for unit, p in zip(units, points, strict=True)
    ]


def finish(pool, seconds=120):
    """Return the outcomes of all tasks."""
    outcomes = []
    until = time.monotonic() + seconds
    while pool.unfinished and time.monotonic() < until:
        outcomes += pool.outcomes(wait=1.0)
    assert not pool.unfinished
    return outcomes


def test_every_node_measures_and_every_task_is_answered_once(address):
    wanted = tasks(30)
    with RayPool("replay", replay(pause=0.02), address=address, depth=2, expected={"gpu": "replay"}) as pool:
        pool.wait_ready()
        assert len({about["node_id"] for about in pool.abouts}) == 2
        assert [about["uuid"] for about in pool.abouts] == ["GPU-a", "GPU-b"]
        assert pool.free == 4
        for task, _ in wanted:
            pool.submit(task)
        outcomes = finish(pool)
    assert {outcome.ending for outcome in outcomes} == {"done"}
    assert {outcome.worker for outcome in outcomes} == {0, 1}
    got = sorted((json.dumps(outcome.task["units"]), outcome.value) for outcome in outcomes)
    assert got == sorted((json.dumps(task["units"]), value) for task, value in wanted)


def test_a_worker_that_is_killed_loses_nothing(address):
    wanted = tasks(60)
    with RayPool("replay", replay(pause=0.05), address=address, depth=2) as pool:
        pool.wait_ready()
        victim = pool.abouts[0]["supervisor"]
        for task, _ in wanted:
            pool.submit(task)
        outcomes = []
        while len(outcomes) < 5:
            outcomes += pool.outcomes(wait=1.0)
        os.kill(victim, signal.SIGKILL)
        outcomes += finish(pool)
        pool.wait_ready()
        assert pool.abouts[0]["supervisor"] != victim
    assert {outcome.ending for outcome in outcomes} == {"done"}
    got = sorted((json.dumps(outcome.task["units"]), outcome.value) for outcome in outcomes)
    assert got == sorted((json.dumps(task["units"]), value) for task, value in wanted)


def supervisor_of(pool, task):
    """Return the process whose child is at ``task``, once one is."""
    for _ in range(60):
        list(pool.outcomes(wait=0.5))
        for actor in pool._workers:
            if task in actor.tasks.values():
                return pool.abouts[actor.place]["supervisor"]
    raise AssertionError("nobody has the task")


def test_a_task_whose_worker_dies_twice_is_not_tried_again(address):
    deadly = {"sleep": 600}
    with RayPool("echo", {}, address=address, timeout=900) as pool:
        pool.submit(deadly)
        first = supervisor_of(pool, deadly)
        os.kill(first, signal.SIGKILL)
        while any(about and about["supervisor"] == first for about in pool.abouts):
            list(pool.outcomes(wait=0.5))
        os.kill(supervisor_of(pool, deadly), signal.SIGKILL)
        (outcome,) = finish(pool)
    assert outcome.ending == "crashed"
    assert outcome.text.startswith("two workers died, the last on Ray node ")


def test_a_candidate_that_crashes_or_hangs_takes_no_worker_with_it(address):
    with RayPool("echo", {}, address=address, timeout=3.0) as pool:
        pool.wait_ready()
        before = [about["supervisor"] for about in pool.abouts]
        for task in ({"signal": int(signal.SIGSEGV)}, {"sleep": 600}, {"say": 1}, {"raise": "no"}):
            pool.submit(task)
        outcomes = finish(pool)
        assert [about["supervisor"] for about in pool.abouts] == before
    assert sorted((o.ending, o.text, o.value) for o in outcomes if o.ending != "done") == [
        ("crashed", "died of SIGSEGV", None),
        ("error", "ValueError: no", None),
        ("timeout", "no answer within 3 s", None),
    ]
    assert [o.value for o in outcomes if o.ending == "done"] == [1]


def test_two_workers_on_one_gpu_are_refused(address):
    settings = {"matrix": str(MATRIX), "uuid": "GPU-same"}
    with (
        RayPool("replay", settings, address=address) as pool,
        pytest.raises(WorkersFailed, match="two workers run on the same GPU, GPU-same"),
    ):
        pool.wait_ready()


def test_a_node_with_another_gpu_is_named(address):
    expected = {"gpu": "replay", "capability": (8, 0)}
    with (
        RayPool("replay", replay(), address=address, expected=expected) as pool,
        pytest.raises(
            WorkersFailed, match=r"^Ray node [\d.]+ has capability \[9, 0\], and \(8, 0\) is tuned for"
        ),
    ):
        pool.wait_ready()


def test_a_role_that_cannot_start_says_where_and_why(address):
    with (
        RayPool("replay", {"matrix": "/nowhere"}, address=address) as pool,
        pytest.raises(WorkersFailed, match=r"^Ray node [\d.]+: FileNotFoundError: .*/nowhere"),
    ):
        pool.wait_ready()


def test_the_kernel_and_its_binaries_are_sent(address, sglang_wheel, tmp_path):
    """A worker elsewhere loads the binary that was made here: it says what was written into it here."""
    pytest.importorskip("triton", reason="no Triton in this environment: `make test-kernels` has one")
    from sgdoctor.tune import kernel

    path = tmp_path / "fused_moe_triton_kernels.py"
    path.write_bytes(kernel.find(sglang_wheel("0.5.13") / "sglang").read_bytes())
    shape = Problem(8, 256, 512, 2)
    settings = {"path": str(path), "problem": dataclasses.asdict(shape), "capability": [9, 0]}
    environment = {"TRITON_INTERPRET": "0"}
    task = {"gemm": "up", "config": Config(16, 64, 64, 1, 4, 3).to_list()}
    cache = tmp_path / "cache"
    with Pool(
        "compile", settings, timeout=300, environment={**environment, "TRITON_CACHE_DIR": str(cache)}
    ) as pool:
        pool.submit(task)
        (here,) = finish(pool)
    metadata = cache / binaries.folder(here.value["hash"]) / "fused_moe_kernel.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "shared": 12345}))

    with RayPool(
        "compile", settings, address=address, cache=cache, timeout=300, environment=environment
    ) as pool:
        pool.submit({**task, "binaries": [here.value["hash"]]})
        (there,) = finish(pool)
    assert there.ending == "done", there.text
    assert (there.value["hash"], there.value["shared"]) == (here.value["hash"], 12345)
    assert there.task["binaries"] == [here.value["hash"]]


def test_each_worker_has_the_gpu_that_ray_gave_it(monkeypatch):
    """Also where Ray was told to leave CUDA_VISIBLE_DEVICES alone: every process sees all GPUs then."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    with running([2]) as address, RayPool("echo", {}, address=address) as pool:
        assert pool.wait_ready()
        for _ in range(2):
            pool.submit({"environment": ["CUDA_VISIBLE_DEVICES"], "sleep": 0.5})
        assert sorted(outcome.value for outcome in finish(pool)) == [["GPU-a"], ["GPU-b"]]
        another = f"from sgdoctor.tune.ray_pool import RayPool; RayPool('echo', {{}}, address={address!r})"
        ran = subprocess.run(
            [sys.executable, "-c", another], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert ran.stderr.splitlines()[-1] == (
        f"sgdoctor.errors.UsageError: --ray-address {address}: no GPU to measure on, "
        "all 2 GPUs of it are in use (see `ray status`)"
    )


@pytest.mark.parametrize("given", ["auto", "ray://10.0.0.1:10001", ":6379", "10.0.0.1:none"])
def test_an_address_that_is_none(given):
    with pytest.raises(UsageError, match="HOST:PORT of the cluster's head node is needed"):
        RayPool("echo", {}, address=given)


def test_an_address_where_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(UsageError, match=rf"^--ray-address {given}: cannot join .*refused"):
        RayPool("echo", {}, address=given)


def test_an_address_where_something_else_listens(monkeypatch):
    monkeypatch.setattr(ray_pool, "_JOIN_SECONDS", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"what listens there did not answer as Ray does within 5 s$"):
            RayPool("echo", {}, address=given)


def test_a_cluster_of_another_python():
    with running([1]) as address:
        metadata = {"ray_version": ray.__version__, "python_version": "3.9.1"}
        client = ray._raylet.GcsClient(address=address)
        client.internal_kv_put(b"CLUSTER_METADATA", json.dumps(metadata).encode(), True, b"cluster")
        with pytest.raises(
            UsageError, match=r"cannot join .*Version mismatch.* Python: 3\.9\.1 .*"
        ) as caught:
            RayPool("echo", {}, address=address)
    assert "\n" not in str(caught.value)


def test_a_cluster_without_gpus():
    with (
        running([0]) as address,
        pytest.raises(UsageError, match=r"no GPU to measure on, it has no GPUs \(see `ray status`\)$"),
    ):
        RayPool("echo", {}, address=address)
