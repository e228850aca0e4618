"""A library in NVML's place: the GPUs of a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nvml(tmp_path_factory) -> Path:
    """Return a folder with a libnvidia-ml.so.1 whose GPUs are those of the variable NVML_GPUS (nvml.c)."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder
