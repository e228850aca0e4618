"""The GPUs of a deployment, as the vendors' tools print them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.collect import gpus, host
from sgdoctor.collect.gpus import Gpu
from sgdoctor.facts import Facts, Unknown

H200 = "NVIDIA H200"
# nvidia-smi --query-gpu=index,name,uuid,compute_cap,memory.total,mig.mode.current,driver_version on an H200.
SMI_H200 = "0, NVIDIA H200, GPU-00000000-1111-2222-3333-444444444444, 9.0, 143771, Disabled, 580.159.04\n"
# A GPU that shares the host's memory, and has no MIG (DGX Spark).
SMI_GB10 = "0, NVIDIA GB10, GPU-5, 12.1, [N/A], [N/A], 580.95.05\n"
ROCM_MI300X = (
    '{"card0": {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297136128", '
    '"Card Series": "AMD Instinct MI300X", "Card Model": "0x74a1", "GFX Version": "gfx942"}, '
    '"system": {"Driver version": "6.8.5"}}'
)


def four(name: str = H200, **changes) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index=i, name=name, compute_capability="9.0", memory_mib=143771, uuid=f"GPU-{i}{i}-x", **changes)
        for i in range(4)
    )


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_gpus_of_one_kind_are_described_once() -> None:
    facts = Facts()
    gpus.set_gpus(facts, four(), source="gpus", place="NVML")
    assert facts.value("gpu.count") == 4
    assert facts.value("gpu.name") == H200
    assert facts.value("gpu.vendor") == "nvidia"
    assert facts.value("gpu.compute_capability") == "9.0"
    assert facts.value("gpu.memory_mib") == 143771
    assert facts.value("gpu.shared_memory_bytes") == 232448  # 227 KiB
    assert facts.value("gpus")[3] == {
        "index": 3,
        "name": H200,
        "compute_capability": "9.0",
        "memory_mib": 143771,
    }


def test_gpus_that_differ_have_no_common_name() -> None:
    other = Gpu(index=4, name="NVIDIA L40S", compute_capability="8.9", memory_mib=46068)
    facts = Facts()
    gpus.set_gpus(facts, (*four(), other), source="gpus", place="NVML")
    assert facts.get("gpu.name") == Unknown("the GPUs differ: NVIDIA H200, NVIDIA L40S")
    assert isinstance(facts.get("gpu.shared_memory_bytes"), Unknown)
    assert facts.value("gpu.vendor") == "nvidia"
    assert facts.value("gpu.count") == 5


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0,-1,1", [0]),  # CUDA stops at the first entry that is none
        ("0,7,1", [0]),
        ("", []),
        ("GPU-11-x,GPU-33", [1, 3]),  # the beginning of a UUID is enough
        ("GPU-", []),  # of more than one
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_does(visible: str | None, expected: list[int]) -> None:
    chosen, reason = gpus.choose(four(), visible)
    assert reason is None
    assert [gpu.index for gpu in chosen] == expected


def test_mig_is_not_guessed_at() -> None:
    assert "MIG instances" in (gpus.choose(four(), "MIG-abc")[1] or "")
    assert "MIG is on for GPU 0, 1, 2, 3" in (gpus.choose(four(mig=True), None)[1] or "")


def test_an_index_into_different_gpus_is_not_guessed_at() -> None:
    """CUDA counts the fastest first, the tools count by bus."""
    mixed = (four()[0], Gpu(index=1, name="NVIDIA L40S", uuid="GPU-b"))
    assert "CUDA's order" in (gpus.choose(mixed, "1")[1] or "")
    assert [gpu.index for gpu in gpus.choose(mixed, "GPU-b")[0]] == [1]


def test_nvidia_smi_is_parsed() -> None:
    found, driver = gpus.parse_smi(SMI_H200)
    assert driver == "580.159.04"
    assert found == (Gpu(0, H200, "9.0", 143771, "GPU-00000000-1111-2222-3333-444444444444", mig=False),)
    assert gpus.parse_smi(SMI_GB10)[0] == (Gpu(0, "NVIDIA GB10", "12.1", None, "GPU-5"),)


def test_memory_shared_with_the_host_is_unknown() -> None:
    facts = Facts()
    gpus.set_gpus(facts, gpus.parse_smi(SMI_GB10)[0], source="gpus", place="nvidia-smi")
    assert "shares the host's memory" in facts.get("gpu.memory_mib").reason
    assert facts.value("gpu.shared_memory_bytes") == 101376  # 99 KiB


def test_rocm_smi_is_parsed() -> None:
    assert gpus.parse_rocm(ROCM_MI300X) == (Gpu(0, "AMD Instinct MI300X", None, 196592),)
    assert gpus.parse_rocm("WARNING: no driver\n" + ROCM_MI300X) == gpus.parse_rocm(ROCM_MI300X)


@given(st.text() | st.text(alphabet=',{}":0123456789. \n[]N/A'))
def test_any_output_is_taken(text: str) -> None:
    assert isinstance(gpus.parse_smi(text)[0], tuple)
    assert isinstance(gpus.parse_rocm(text), tuple)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of programs, the only one on PATH besides the system's, and no NVML."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setattr(gpus, "_ask_nvml", no_nvml)
    return tmp_path


def no_nvml(timeout: float) -> gpus.Seen:
    raise gpus._NoAnswerError("NVML: NVML Shared Library Not Found")


def test_nvidia_smi_is_asked_where_there_is_no_nvml(tools: Path, tmp_path: Path) -> None:
    banner = Path(__file__).parents[1] / "captures" / "host" / "nvidia-smi.txt"
    (tmp_path / "query").write_text(SMI_H200)
    program(tools, "nvidia-smi", f'if [ -n "$1" ]; then cat {tmp_path}/query; else cat {banner}; fi')
    facts = Facts()
    gpus.read_gpus(facts)
    assert facts.value("gpu.name") == H200
    assert facts.value("host.driver") == "580.159.04"
    assert facts.value("host.cuda") == "13.0"
    assert facts.get("gpu.name").provenance[0].place == "nvidia-smi"


def test_rocm_smi_is_asked_last(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(ROCM_MI300X)
    program(tools, "nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9")
    program(tools, "rocm-smi", f"cat {tmp_path}/answer")
    facts = Facts()
    gpus.read_gpus(facts)
    assert facts.value("gpu.vendor") == "amd"
    assert facts.known("gpu.compute_capability")
    assert facts.value("gpu.compute_capability") is None
    assert facts.value("host.driver", "unset") is None


def test_a_tool_that_hangs_is_left_and_said(tools: Path) -> None:
    program(tools, "nvidia-smi", "sleep 600")
    facts = Facts()
    gpus.read_gpus(facts, timeout=0.3)
    reason = facts.get("gpus").reason
    assert "nvidia-smi did not finish within 0.3 s" in reason
    assert "no rocm-smi" in reason
    assert facts.get("host.driver").reason == reason


@pytest.fixture(scope="module")
def nvml(tmp_path_factory) -> Path:
    """Return a folder with a libnvidia-ml.so.1 that describes one H200."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


ASK = """
import json
from sgdoctor.collect import gpus
from sgdoctor.facts import Facts, Known
facts = Facts()
gpus.read_gpus(facts, timeout=0.5)
print(json.dumps({name: f.value if isinstance(f, Known) else f.reason for name, f in facts.items()}))
"""


def asked_with(nvml: Path, stub: str = "") -> dict:
    variables = {"PATH": "/nonexistent", "LD_LIBRARY_PATH": str(nvml), "NVML_STUB": stub}
    command = [sys.executable, "-c", ASK]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, env=variables, cwd=root, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
class TestNvml:
    """NVML through its own binding, with a library in the driver's place."""

    def test_it_describes_the_gpus(self, nvml: Path) -> None:
        said = asked_with(nvml)
        assert said["gpus"] == [{"index": 0, "name": H200, "compute_capability": "9.0", "memory_mib": 143771}]
        assert (said["host.driver"], said["host.cuda"]) == ("580.159.04", "13.0")

    def test_a_driver_that_hangs_is_left(self, nvml: Path) -> None:
        assert asked_with(nvml, "hang")["gpus"].startswith("NVML did not answer within 0.5 s; no nvidia-smi")

    def test_what_it_says_is_the_reason(self, nvml: Path) -> None:
        assert "NVML/RM version mismatch" in asked_with(nvml, "mismatch")["gpus"]

    def test_what_it_does_not_support_is_unknown(self, nvml: Path) -> None:
        said = asked_with(nvml, "shared-memory")
        assert said["gpu.name"] == H200
        assert "shares the host's memory" in said["gpu.memory_mib"]

    def test_a_gpu_that_is_divided_is_not_described(self, nvml: Path) -> None:
        said = asked_with(nvml, "mig")
        assert said["gpu.name"].startswith("MIG is on for GPU 0")
        assert said["host.driver"] == "580.159.04"


def test_this_hosts_own_nvml_answers_or_says_why_not() -> None:
    facts = Facts()
    gpus.read_gpus(facts)
    assert facts.known("gpus") or facts.get("gpus").reason


def test_the_host_is_described(tmp_path: Path) -> None:
    facts = Facts()
    host.read_host(facts, python="3.12.3")
    assert facts.value("host.arch") == os.uname().machine
    size = os.statvfs("/dev/shm")  # noqa: S108
    assert facts.value("host.shm_mib") == size.f_blocks * size.f_frsize // 2**20
    assert facts.value("host.python") == "3.12.3"


def test_a_root_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    facts = Facts()
    host.read_host(facts, root=tmp_path / "gone")
    assert "No such file" in facts.get("host.shm_mib").reason
    assert "No such file" in facts.get("host.container").reason


@pytest.mark.parametrize(
    ("mark", "cgroup", "variables", "expected"),
    [
        (".dockerenv", "0::/", {}, "docker"),
        ("run/.containerenv", "0::/", {}, "podman"),
        (None, "0::/", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        (None, "12:pids:/kubepods/burstable/pod1234", {}, "kubernetes"),
        (None, "0::/system.slice/docker-1234.scope", {}, "docker"),
        (None, "0::/user.slice", {}, None),
    ],
)
def test_a_container_is_known_by_its_marks(
    tmp_path: Path, mark: str | None, cgroup: str, variables: dict[str, str], expected: str | None
) -> None:
    if mark:
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).touch()
    file = tmp_path / "cgroup"
    file.write_text(cgroup)
    assert host.container(tmp_path, variables, file)[0] == expected
