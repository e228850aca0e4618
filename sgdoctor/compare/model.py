"""What `sgdoctor diff` came to: docs/diff.schema.json is generated from these structs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

import sgdoctor
from sgdoctor.report.model import CLEAN, FOUND, INTERNAL, UNDECIDED, Broken, DeploymentSummary

SCHEMA: Literal["sgdoctor-diff-1"] = "sgdoctor-diff-1"

Verdict = Literal["worse", "changed", "better"]
Kind = Literal[
    "finding-appeared",
    "finding-gone",
    "capacity",
    "graphs",
    "config",
    "speed",
    "flag-itself",
    "flag-asked",
    "flag",
    "model",
    "gpu",
    "version",
    "environment",
    "memory",
]
VERDICTS: tuple[Verdict, ...] = ("worse", "changed", "better")  # worst first
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]  # in the order in which they are told


class Side(msgspec.Struct, frozen=True):
    """One of the two files: its name, what kind of file it is, and what deployment it describes."""

    file: str
    kind: Literal["snapshot", "server_info"]
    summary: DeploymentSummary
    notes: list[str] = []


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not the same in both files.

    ``subject`` is the flag, fact or rule; ``before`` and ``after`` what it is in the two, as an operator
    would write it. ``percent`` is the relative change of a measure. ``together_with`` are changes that are
    known, from SGLang's source, to have a part in this value; none: no such change is known. ``minor``:
    within the tolerance, or for completeness; the terminal shows it with -v.
    """

    kind: Kind
    subject: str
    before: str | None
    after: str | None
    verdict: Verdict
    message: str
    percent: float | None = None
    together_with: list[str] = []
    minor: bool = False


class Totals(msgspec.Struct, frozen=True):
    """The differences counted, those that are minor apart; ``compared`` is what both files tell."""

    worse: int
    changed: int
    better: int
    minor: int
    compared: int


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two recordings, worst first; ``tolerance`` in percent."""

    schema: Literal["sgdoctor-diff-1"]
    sgdoctor: str
    before: Side
    after: Side
    tolerance: float
    totals: Totals
    differences: list[Difference]
    broken: list[Broken] = []
    notes: list[str] = []

    @classmethod
    def of(
        cls,
        before: Side,
        after: Side,
        differences: Iterable[Difference],
        *,
        tolerance: float,
        compared: int,
        broken: Iterable[Broken] = (),
        notes: Iterable[str] = (),
    ) -> Diff:
        """Make it of the differences: worst first, counted."""
        ordered = sorted(differences, key=_badness)
        told = [each.verdict for each in ordered if not each.minor]
        totals = Totals(
            told.count("worse"),
            told.count("changed"),
            told.count("better"),
            len(ordered) - len(told),
            compared,
        )
        return cls(
            schema=SCHEMA,
            sgdoctor=sgdoctor.__version__,
            before=before,
            after=after,
            tolerance=tolerance,
            totals=totals,
            differences=ordered,
            broken=list(broken),
            notes=list(dict.fromkeys(notes)),
        )


def exit_code(diff: Diff) -> int:
    """Return the exit code, the same for every format (docs/diff.md)."""
    if diff.totals.worse:
        return FOUND
    if diff.broken:
        return INTERNAL
    return CLEAN if diff.totals.compared else UNDECIDED


def _badness(difference: Difference) -> tuple[bool, int, int, float]:
    """Order by what got worse, then by what it is about, then by how much."""
    return (
        difference.minor,
        VERDICTS.index(difference.verdict),
        KINDS.index(difference.kind),
        difference.percent or 0.0,
    )
