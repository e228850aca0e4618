"""What `sgdoctor fix --format json` says, as structs: docs/fix.schema.json is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from sgdoctor.tune.model import Effort
from sgdoctor.tune.space import Problem

SCHEMA = "sgdoctor-fix-report-1"


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """What SGLang uses today: where that comes from, and the same in words."""

    source: Literal["default", "fallback", "exact"]
    words: str = msgspec.field(name="is")


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One shape to tune: the up and the down file, the GPUs by UUID, the estimate in seconds.

    ``obstacle`` says why it could not be carried out now; only a dry run has one.
    """

    deployments: tuple[str, ...]
    why: str
    files: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    today: Today
    gpus: tuple[str, ...]
    seconds: float
    gpu_memory_mib: int
    effort: Effort
    obstacle: str | None


class Microseconds(msgspec.Struct, frozen=True, kw_only=True):
    """The whole expert computation, the standard error of its mean, both products; null: it does not run."""

    whole: float | None
    error: float | None
    up: float | None
    down: float | None


class BatchSize(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the files: what they have there (``entries``), and the best pair found (``tuned``).

    Both have the up and the down product's BLOCK_SIZE_M, _N, _K, GROUP_SIZE_M, warps, stages and USE_TMA.
    ``kept`` says why the file has today's; ``wrong_today`` why what is used today is no right result.
    """

    tokens: int
    entries: tuple[tuple[int, ...], ...]
    tuned: tuple[tuple[int, ...], ...]
    gain: float | None
    kept: str | None
    wrong_today: str | None
    today: Microseconds
    default: Microseconds
    new: Microseconds


class NextStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a server that starts now loads: whether it is the new files, and what is wrong with them."""

    ours: bool
    problems: tuple[str, ...]
    sentences: tuple[str, ...]


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What tuning one shape gave; gains are geometric means. ``dropped`` counts candidates by reason.

    ``about``: GPU, driver, torch, Triton, kernel, clocks, noise, date. ``installed`` is empty where nothing
    was worth a file.
    """

    problem: Problem
    device: str
    capability: tuple[int, int]
    release: str
    triton: str
    kernel: str
    files: tuple[str, str]
    today: Today
    tuner: Literal["sgdoctor", "sglang"]
    effort: Effort
    seconds: float
    gain: float
    gain_over_default: float
    worth_installing: bool
    dropped: Mapping[str, int]
    about: Mapping[str, Any]
    batch_sizes: tuple[BatchSize, ...]
    deployments: tuple[str, ...]
    installed: tuple[str, ...]
    next_start: NextStart | None
    notes: tuple[str, ...]


class FixReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was planned, why deployments were left alone, and what came of it; a dry run tunes nothing."""

    schema: Literal["sgdoctor-fix-report-1"]
    planned: tuple[Planned, ...]
    complete: tuple[str, ...]
    refused: tuple[str, ...]
    tuned: tuple[Tuned, ...]


def report(planned: Mapping[str, Any], tuned: list[dict[str, Any]]) -> FixReport:
    """Return the report of a plan (`tune_moe_show.planned_json`) and of what came of it (`done_json`)."""
    return msgspec.convert({"schema": SCHEMA, **planned, "tuned": tuned}, FixReport)
