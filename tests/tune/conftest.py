"""What the tuner's tests share."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from sgdoctor.tune.replay import Matrix

# Read when Triton is first imported, by whichever of these files: its kernels run in its interpreter.
os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).parent
MATRICES = sorted(path.name.partition(".")[0] for path in (HERE / "matrices").glob("*.json.xz"))


@pytest.fixture(scope="session")
def sweeps() -> dict[str, list[list[Any]]]:
    """Give what Triton 3.6.0 made of the up product of SGLang 0.5.13, by capability and kind.

    A row is BLOCK_SIZE_M, _N, _K, warps, stages, bytes of shared memory, registers, bytes of stack, seconds.
    """
    loaded: dict[str, list[list[Any]]] = json.loads((HERE / "sweeps.json").read_text())
    return loaded


@pytest.fixture(scope="session", params=MATRICES)
def matrix(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Give a matrix measured on an H200 (bench/moe_matrix.py), one after the other."""
    packed = (HERE / "matrices" / f"{request.param}.json.xz").read_bytes()
    loaded: dict[str, Any] = json.loads(lzma.decompress(packed))
    return loaded


@pytest.fixture(scope="session")
def matrices() -> dict[str, Matrix]:
    """Give the measured matrices as a replay reads them, by name."""
    return {name: Matrix(HERE / "matrices" / f"{name}.json.xz") for name in MATRICES}


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    """Give a file in place of SGLang's kernel: replayed times need none, but results belong to one."""
    path = tmp_path / "sglang/kernel.py"
    path.parent.mkdir()
    path.write_text("def invoke_fused_moe_kernel(): ...\n")
    return path
