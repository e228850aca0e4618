"""``configs lint``: what was looked at and what is wrong, for a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from sgdoctor.configs.lint import Linted
from sgdoctor.configs.places import Place
from sgdoctor.configs.table import counted
from sgdoctor.report import json
from sgdoctor.report.layout import Line, flow, printable, words
from sgdoctor.upstream.config_problem import SEVERITIES, Problem

_INDENT = 9
_NAME = 2


def lines(result: Linted, width: int, encoding: str, *, verbose: bool) -> list[Line]:
    """Return what was looked at, the problems worst first, and their number; infos only with ``verbose``."""
    shown = _looked(result, width, encoding)
    for problem in result.problems:
        if verbose or problem.severity != "info":
            shown += [[], *_problem(problem, result.place, width, encoding)]
    for reason in result.unread:
        shown += [[], *flow(words(printable(f"could not be read: {reason}", encoding), "note"), width)]
    return [*shown, [], *flow(words(_summary(result, verbose=verbose)), width)]


def _looked(result: Linted, width: int, encoding: str) -> list[Line]:
    release = result.release
    judged = f"{result.place.path} as SGLang {release.version} reads it"
    if result.assumed:
        judged += " (the newest known; --sglang names another)"
    elif not release.exact:
        judged += f" (the newest release known that is not after {release.asked})"
    shown = flow(words(printable(judged, encoding), "title"), width)
    for tree in result.place.trees:
        number = sum(file.family == tree.family for file in result.files)
        text = f"{counted(number, 'file')} in {_short(str(tree.root), result.place)}"
        opening = [(tree.family.ljust(_INDENT), "label")]
        shown += flow(words(printable(text, encoding)), width, _INDENT, opening)
    return shown


def _problem(problem: Problem, place: Place, width: int, encoding: str) -> list[Line]:
    """Return the code, the file on lines of its own, and what is wrong with it."""
    opening = [(problem.severity.ljust(_INDENT), problem.severity), (problem.code, "code")]
    name = words(printable(_short(problem.file, place), encoding), "strong")
    text = words(printable(problem.text, encoding))
    return [opening, *flow(name, width, _NAME, [(" " * _NAME, "")]), *flow(text, width, _INDENT)]


def _short(path: str, place: Place) -> str:
    """Return a path as it lies below the folder of its family, or below PATH."""
    for base in (*(tree.root for tree in place.trees), place.path):
        inside = path.removeprefix(f"{base}/")
        if inside != path:
            return inside
    return path


def _summary(result: Linted, *, verbose: bool) -> str:
    counts = [counted(result.count(severity), severity) for severity in SEVERITIES]
    hidden = 0 if verbose else result.count("info")
    which = "" if not hidden else " (-v shows it)" if hidden == 1 else " (-v shows them)"
    return f"{', '.join(counts)}{which}."


def as_json(result: Linted) -> str:
    """Return the whole result as JSON."""
    told: dict[str, Any] = {
        "schema": "sgdoctor-configs-lint-1",
        "path": str(result.place.path),
        "sglang": result.release.version,
        "sglang_assumed": result.assumed,
        "folders": {tree.family: str(tree.root) for tree in result.place.trees},
        "files": len(result.files),
        "problems": [
            {field: getattr(problem, field) for field in ("code", "severity", "file", "text")}
            for problem in result.problems
        ],
        "unread": list(result.unread),
        "summary": {f"{severity}s": result.count(severity) for severity in SEVERITIES},
    }
    return json.render(told, indent=2)
