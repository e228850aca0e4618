"""Which GPUs a tuner may use, by example; what NVML says is read through a library in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.fix import gpus
from sgdoctor.fix.gpus import Gpu, Process
from sgdoctor.tune.space import Problem

H200 = "NVIDIA H200"
IDLE = Gpu(0, "GPU-a0", H200, (9, 0), total_mib=143771, free_mib=143163)
SERVER = Process(4242, "sglang::scheduler", 120000)
BUSY = replace(IDLE, index=1, uuid="GPU-b1", free_mib=20000, utilization=97, processes=(SERVER,))
OTHER = replace(IDLE, index=2, uuid="GPU-c2", name="NVIDIA L4")


def chosen(*there: Gpu, needed: int = 8000, wanted: tuple[str, ...] = (), share: bool = False) -> list[int]:
    found = gpus.choose(there, device=H200, needed=needed, wanted=wanted, share=share)
    return [gpu.index for gpu in found]


def refused(*there: Gpu, needed: int = 8000, wanted: tuple[str, ...] = ()) -> str:
    with pytest.raises(Undecided) as caught:
        gpus.choose(there, device=H200, needed=needed, wanted=wanted)
    return str(caught.value)


def test_all_idle_gpus_of_the_device_are_taken():
    twin = replace(IDLE, index=3, uuid="GPU-d3")
    assert chosen(IDLE, BUSY, OTHER, twin) == [0, 3]


def test_a_busy_one_is_taken_when_it_is_named_or_shared():
    assert refused(BUSY, OTHER) == (
        "no NVIDIA H200 is idle: GPU 1 is in use by sglang::scheduler (4242, 120000 MiB). Stop what runs "
        "there, name one with --gpu, or accept noisy timings with --share"
    )
    assert chosen(IDLE, BUSY, wanted=("1",)) == [1]
    assert chosen(IDLE, BUSY, wanted=("GPU-b1", "1", "0")) == [1, 0]
    assert chosen(IDLE, BUSY, share=True) == [0, 1]


def test_a_gpu_that_is_not_there_is_a_mistake():
    for wanted in ("7", "GPU-x", "GPU-", "H200"):
        with pytest.raises(
            UsageError, match=r"no such GPU; an index or a UUID of: 0 \(NVIDIA H200, GPU-a0\)"
        ):
            chosen(IDLE, BUSY, wanted=(wanted,))


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (OTHER, "is an NVIDIA L4, and the missing file is for NVIDIA H200"),
        (replace(IDLE, mig=True), "MIG is on"),
        (replace(IDLE, free_mib=7000), "7000 MiB are free, and tuning this shape takes up to 8000 MiB"),
    ],
    ids=["another-device", "mig", "memory"],
)
def test_what_no_flag_makes_right(gpu, reason):
    assert reason in refused(gpu)
    assert reason in refused(gpu, wanted=(str(gpu.index),))


def test_cuda_visible_devices_counts():
    twin = replace(IDLE, index=3, uuid="GPU-d3")
    assert gpus.visible((IDLE, BUSY, twin), None) == (IDLE, BUSY, twin)
    assert gpus.visible((IDLE, BUSY, twin), "3,0") == (IDLE, twin)
    assert gpus.visible((IDLE, BUSY, twin), "GPU-b1") == (BUSY,)
    assert gpus.visible((IDLE, BUSY, twin), "") == ()
    with pytest.raises(Undecided, match="counts GPUs in CUDA's order"):
        gpus.visible((IDLE, OTHER), "0")


def test_no_gpu_at_all():
    assert refused() == "no GPU here can tune for NVIDIA H200: there is none"


def test_others_are_noticed_where_their_processes_are_not_seen():
    """In a container NVML lists no process of another one."""
    assert "30000 MiB are in use" in (replace(IDLE, free_mib=113771).busy or "")
    assert "40% busy" in (replace(IDLE, utilization=40).busy or "")
    assert IDLE.busy is None
    assert replace(IDLE, total_mib=None, free_mib=None).busy is None


def test_how_a_gpu_is_shown():
    assert str(IDLE) == "GPU 0 NVIDIA H200, 143163 of 143771 MiB free, idle"
    slow = replace(BUSY, throttles=("power cap", "thermal slowdown"))
    assert str(slow).endswith("MiB), slowed: power cap, thermal slowdown")


def test_the_memory_that_tuning_takes():
    """Weights of 1.2 GB need no copies; those of 12 MB are copied until no cache holds them."""
    large = gpus.needed_mib(Problem(256, 256, 3072, 8), 4096)
    assert 1152 + 2048 < large < 8000
    small = gpus.needed_mib(Problem(8, 128, 2048, 2), 4096)
    assert 3 * 384 + 2048 < small < 5000
    assert gpus.needed_mib(Problem(256, 256, 3072, 8), 16384) > large


# --- NVML -----------------------------------------------------------------------------------------------

ASK = """
import dataclasses, json
from sgdoctor.errors import Undecided
from sgdoctor.fix import gpus
try:
    print(json.dumps([dataclasses.asdict(gpu) for gpu in gpus.read(0.5)]))
except Undecided as error:
    print(json.dumps(str(error)))
"""


def asked(nvml: Path, said: str | None):
    """Return what is read in a child whose NVML has the GPUs ``said``."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml)}
    environment.pop("NVML_GPUS", None)
    ended = subprocess.run(
        [sys.executable, "-c", ASK],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment if said is None else environment | {"NVML_GPUS": said},
    )
    return json.loads(ended.stdout)


def test_what_nvml_says_is_read(nvml):
    own = os.getpid()
    first, second = asked(nvml, f"{H200};143771;20000;97;{own};120000;4;0\nNVIDIA GB10;0;0;0;0;0;1;1\n")
    assert (first["name"], first["capability"]) == (H200, [9, 0])
    assert (first["total_mib"], first["free_mib"], first["utilization"]) == (143771, 20000, 97)
    (process,) = first["processes"]
    assert (process["pid"], process["memory_mib"]) == (own, 120000)
    assert process["name"]
    assert (first["throttles"], first["clock_mhz"]) == (["power cap"], 1980)
    assert (first["power_limit_watts"], first["driver"]) == (700, "580.159.04")
    assert (second["total_mib"], second["mig"], second["throttles"]) == (None, True, [])
    assert second["uuid"].startswith("GPU-00000001")


def test_nvml_that_does_not_answer_is_a_reason(nvml):
    assert asked(nvml, "hang").startswith("no GPU to tune on (NVML did not answer within 0.5 s)")
    assert "Driver Not Loaded" in asked(nvml, None)
