"""CUDA as it comes with torch from PyPI, and the NVIDIA driver that it needs."""

from __future__ import annotations

# From the Requires-Dist of torch's Linux wheels on PyPI: nvidia-cuda-runtime-cu12 or cuda-toolkit. All torch
# versions that SGLang 0.5.7 to 0.5.23 pin.
_OF_TORCH = {"2.9.1": "12.8", "2.11.0": "13.0", "2.13.0": "13.0", "2.14.1": "13.0"}

# The oldest Linux driver on which each major CUDA release runs at all (CUDA compatibility, "minor version
# compatibility"; data-center GPUs go further back with the forward compatibility package).
_DRIVER = {"12": "525", "13": "580"}


def of_torch(torch: str) -> str | None:
    """Return the CUDA of this torch's wheel on PyPI, None when it is not known."""
    return _OF_TORCH.get(torch)


def driver(cuda: str | None) -> str | None:
    """Return the oldest major version of the driver for this CUDA, None when it is not known."""
    return None if cuda is None else _DRIVER.get(cuda.partition(".")[0])
