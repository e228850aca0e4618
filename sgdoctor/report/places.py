"""The file and line to which a finding is pinned, for formats whose readers open files."""

from __future__ import annotations

import re
from typing import NamedTuple

from sgdoctor.engine.model import Evidence, Finding
from sgdoctor.report.model import DeploymentReport
from sgdoctor.report.words import QUIET, is_absence

# Sources that are read from files; the first that a finding rests on is where it is mended or was seen.
FILE_SOURCES = ("launch", "log", "environment", "server_info", "model", "metrics")

_NO_FILES = frozenset({"", "standard input", "command line"})
_LINE = re.compile(r"\A(?P<path>.+):(?P<line>[1-9]\d{0,8})\Z", re.DOTALL)
_METRIC = re.compile(r": sglang:\w+\Z")
_URL = re.compile(r"\A[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Place(NamedTuple):
    """Where something stands; no ``line`` where no single one says it; ``is_file``: it is no URL or name."""

    path: str
    line: int | None = None
    is_file: bool = True


def of(finding: Finding, deployment: DeploymentReport) -> Place:
    """Return the place of ``finding``: its launch file, log, other file, else a file that was looked at.

    A line that has the flag comes before one that only ends the command which lacks it. There is a place for
    every finding: where no file was read it is the URL or the name of what was.
    """
    places = files(finding)
    return places[0] if places else of_deployment(deployment)


def files(finding: Finding) -> list[Place]:
    """Return the files that ``finding`` was read from, the one to open first at the front."""
    read = [(each, _in_file(each)) for each in finding.evidence if each.source in FILE_SOURCES]
    kept = [(each, place) for each, place in read if place is not None]
    kept.sort(key=lambda one: _distance(*one))
    return list(dict.fromkeys(place for _, place in kept))


def of_deployment(deployment: DeploymentReport) -> Place:
    """Return the file to name for what no file says: the first that was looked at, else what there was."""
    looked = sorted(
        (each for each in deployment.looked_at if each.source in FILE_SOURCES and _is_file(each.place)),
        key=lambda each: (each.state == "nothing", FILE_SOURCES.index(each.source)),
    )
    if looked:
        return Place(looked[0].place)
    others = [each.place for each in deployment.looked_at if each.place]
    return Place(next(iter(others), deployment.name or "sgdoctor"), is_file=False)


def _in_file(evidence: Evidence) -> Place | None:
    found = _LINE.match(evidence.place)
    path = found["path"] if found else _METRIC.sub("", evidence.place)
    if not _is_file(path):
        return None
    return Place(path, int(found["line"]) if found else None)


def _distance(evidence: Evidence, place: Place) -> tuple[bool, int, bool, bool]:
    absent = is_absence(evidence.fact, evidence.value)
    quiet = evidence.fact in QUIET
    return quiet, FILE_SOURCES.index(evidence.source), absent, place.line is None


def _is_file(path: str) -> bool:
    return path not in _NO_FILES and not _URL.match(path)
