"""A tuning as the tuner hands it over, with times made up for these tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sgdoctor.tune.model import Job, Line, Pair, Times, Tuning
from sgdoctor.tune.space import BATCH_SIZES, Config, Problem, default_config

PROBLEM = Problem(experts=256, width=256, hidden=3072, topk=8)
UP = "E=256,N=256,device_name=NVIDIA_H200.json"
DOWN = "E=256,N=256,device_name=NVIDIA_H200_down.json"


def job(**changes: Any) -> Job:
    """Return the job of one GPU of an H200 host, SGLang 0.5.12 on Triton 3.6.0, without a file."""
    default = {tokens: Pair(*[default_config(PROBLEM, tokens)] * 2) for tokens in BATCH_SIZES}
    given: dict[str, Any] = {
        "problem": PROBLEM,
        "capability": (9, 0),
        "device": "NVIDIA H200",
        "release": "0.5.12",
        "triton": "3.6.0",
        "kernel": "c0ffee00",
        "up_file": UP,
        "down_file": DOWN,
        "today": default,
        "source": "default",
        "today_is": "the built-in default",
        "default": default,
        **changes,
    }
    return Job(**given)


def pair(tokens: int, *, tma: bool = False) -> Pair:
    """Return a pair that the grid has, one of few tokens with small tiles."""
    block_m = 16 if tokens <= 256 else 64
    return Pair(Config(block_m, 128, 64, 1, 4, 4), Config(block_m, 64, 128, 16, 4, 3, tma))


def times(microseconds: float, up: float = 0.5) -> Times:
    """Return the times of a whole computation; ``up`` is the up product's share, both have 0.8 together."""
    return Times(microseconds, microseconds * 0.002, microseconds * up, microseconds * (0.8 - up))


def line(tokens: int, today: float, default: float, new: float, kept: str = "", *, of: Job) -> Line:
    """Return one batch size; where ``kept`` says why, the file has what is used today."""
    tuned = pair(tokens, tma=tokens >= 128)
    used = of.today[tokens] if kept else tuned
    return Line(tokens, used, tuned, times(today), times(default), times(new, up=0.52), kept)


Measured = Mapping[int, tuple[float, float, float, str]]

# µs today (a file of another Triton), with the built-in default and with the best pair found, and why the
# file has today's.
MEASURED: Measured = {
    1: (29.6, 31.6, 26.9, ""),
    2: (38.1, 40.2, 35.0, ""),
    4: (55.2, 58.9, 50.6, ""),
    8: (88.4, 91.3, 82.7, ""),
    16: (137.9, 141.4, 137.0, "0.7% is less than 1%"),
    24: (170.4, 182.3, 169.0, "0.8% is less than 1%"),
    32: (195.2, 210.8, 190.1, ""),
    48: (233.0, 252.9, 228.1, ""),
    64: (265.0, 282.2, 261.5, ""),
    96: (282.7, 298.6, 276.3, ""),
    128: (290.1, 305.5, 284.0, ""),
    256: (309.8, 318.2, 305.7, ""),
    512: (341.2, 371.0, 342.4, "not faster"),
    1024: (398.2, 455.7, 371.4, ""),
    1536: (441.6, 523.8, 408.2, ""),
    2048: (489.9, 593.2, 442.3, ""),
    3072: (602.7, 742.1, 561.0, ""),
    4096: (731.0, 903.6, 688.4, ""),
}


def tuning(of: Job | None = None, measured: Measured = MEASURED) -> Tuning:
    """Return what tuning ``of`` gave; without a job, that of an H200 host with a file for Triton 3.2.0."""
    if of is None:
        other = Pair(Config(16, 64, 64, 1), Config(16, 64, 64, 1))
        of = job(
            today=dict.fromkeys(measured, other), source="fallback", today_is="the file for Triton 3.2.0"
        )
    lines = tuple(line(tokens, *row, of=of) for tokens, row in measured.items())
    return Tuning(
        job=of,
        lines=lines,
        effort="balanced",
        tuner="sgdoctor",
        seconds=187.3,
        about={
            "gpu": "NVIDIA H200",
            "uuid": "GPU-5f2a",
            "driver": "580.65.06",
            "torch": "2.11.0",
            "triton": "3.6.0",
            "routing": "uniform",
            "clocks": {"sm": 1980, "memory": 3201},
        },
        dropped={"shared memory": 143, "spills registers": 61, "did not compile": 2},
    )


def on_default(measured: Measured = MEASURED) -> Tuning:
    """Return a tuning where there is no file: today is the built-in default."""
    same = {tokens: (default, default, new, kept) for tokens, (_, default, new, kept) in measured.items()}
    made = tuning(job(), same)
    return replace(made, lines=tuple(replace(each, default=each.today) for each in made.lines))
