"""sgdoctor, the doctor for SGLang deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from sgdoctor.compare.model import Diff
    from sgdoctor.report.model import Report

__version__ = "0.1.0"
__all__ = ["__version__", "check", "diff"]


def check(*, target: str | None = None, from_version: str | None = None, **sources: Any) -> Report:
    """Examine a deployment as `sgdoctor check` does and return the report.

    ``sources`` are the fields of :class:`sgdoctor.sources.Sources` (``launch="run.sh"``,
    ``logs=("server.log",)``); with none, this machine is looked at. ``target="sglang=0.5.20"``: as it would
    be at that release, and what changes on the way from the one in use, or from ``from_version``. Raises
    UsageError and Undecided of :mod:`sgdoctor.errors`. See :func:`sgdoctor.examine.check` for selecting rules
    and adding rule packs.
    """
    from sgdoctor import examine
    from sgdoctor.sources import Sources

    return examine.check(Sources(**sources), target=target, from_version=from_version)


def diff(before: str | Path, after: str | Path, *, tolerance: float = 5.0) -> Diff:
    """Say what changed from one file to the other as `sgdoctor diff` does: see :mod:`sgdoctor.compare.diff`.

    Raises UsageError and Undecided of :mod:`sgdoctor.errors`.
    """
    from sgdoctor.compare import diff as difference

    return difference.diff(before, after, tolerance=tolerance)
