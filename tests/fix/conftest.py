"""What the tests of the repair share: GPUs, real releases' config lookups, a state folder of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.oracle import Oracle, start

# The oldest; the first to list folders of other Tritons; with a fallback of the down file's own; the newest.
RELEASES = ("0.5.9", "0.5.12", "0.5.16", "0.5.23")


@pytest.fixture(scope="session")
def nvml(tmp_path_factory) -> Path:
    """Return a folder with a libnvidia-ml.so.1 whose GPUs are those of the variable NVML_GPUS (nvml.c)."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


@pytest.fixture(scope="session")
def lookups(sglang_wheel) -> Iterator[dict[str, Oracle]]:
    """Give release -> its own config lookup, in a child process (tests/upstream/real_moe_lookup.py)."""
    found = {each: next(sglang_wheel(each).rglob("fused_moe_triton_config.py")) for each in RELEASES}
    oracles = start("real_moe_lookup.py", found)
    yield oracles
    for oracle in oracles.values():
        oracle.close()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which repairs are recorded."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "sgdoctor" / "fix"
