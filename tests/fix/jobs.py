"""Shapes to tune, as the plan of a repair makes them."""

from __future__ import annotations

from sgdoctor.tune.model import Job, Pair
from sgdoctor.tune.space import Config, Problem

TODAY = Pair(Config(16, 32, 64), Config(16, 32, 64))

BF16 = Problem(experts=256, width=256, hidden=3072, topk=8)
FP8 = Problem(experts=128, width=768, hidden=2048, topk=8, kind="fp8_block", block=(128, 128))
INT4 = Problem(experts=256, width=256, hidden=2048, topk=8, kind="int4", block=(0, 128))


def job(problem: Problem = BF16, name: str = "E=256,N=256,device_name=NVIDIA_H200", **changes) -> Job:
    """Return the job of a shape; ``name`` is its up file without .json."""
    fields = {
        "capability": (9, 0),
        "device": "NVIDIA_H200",
        "release": "0.5.12",
        "triton": "3.6.0",
        "kernel": "fused_moe_triton_kernels.py 1234",
        "today": {1: TODAY, 16: TODAY, 64: TODAY},
        "source": "default",
        "today_is": "the built-in default",
        "default": {1: TODAY, 16: TODAY, 64: TODAY},
    }
    return Job(problem, up_file=f"{name}.json", down_file=f"{name}_down.json", **{**fields, **changes})


def fp8_job() -> Job:
    """Return a job with block-wise fp8 weights."""
    return job(FP8, "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]")


def int4_job(width: int = 128) -> Job:
    """Return a job with int4 weights whose lookup wants ``width`` in the name: half, two are in a byte."""
    return job(INT4, f"E=256,N={width},device_name=NVIDIA_H200,dtype=int4_w4a16")
