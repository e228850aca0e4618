"""What changes on the way to another release, for the terminal: worst first, a line or two each."""

from __future__ import annotations

import re

from sgdoctor.engine.model import SEVERITIES
from sgdoctor.report.layout import Line, Span, flow, printable, words
from sgdoctor.report.model import Change, DeploymentReport

MARGIN = 9  # "warning" and two spaces
DETAIL = 13  # where the text behind "do" starts

_CLAUSE = re.compile(r"[:;.](?=\s)")


def lay_out(deployment: DeploymentReport, *, width: int, encoding: str, verbose: bool) -> list[Line]:
    """Lay out the changes of one deployment; nothing when it was looked at where it is."""
    if deployment.moved_from is None:
        return []
    shown = [each for each in deployment.changes if verbose or not each.minor]
    heading = printable(_heading(deployment), encoding)
    lines = flow([*words(heading, "title"), *words(_counts(deployment.changes))], width)
    for change in shown:
        lines += _change(change, width, encoding)
    rest = len(deployment.changes) - len(shown)
    if rest:
        told = f"{rest} more requirements and defaults with -v" if rest > 1 else "1 more with -v"
        lines += flow(words(told, "dim"), width, MARGIN, [("", "")])
    return lines


def _heading(deployment: DeploymentReport) -> str:
    return f"From SGLang {deployment.moved_from} to {deployment.summary.sglang or 'the other'}:"


def _counts(changes: list[Change]) -> str:
    if not changes:
        return "nothing changes."
    severities = [change.severity for change in changes if not change.minor]
    counts = [(severities.count(each), each) for each in SEVERITIES]
    told = [f"{count} {name}{'s' if count != 1 and name != 'info' else ''}" for count, name in counts]
    return f"{', '.join(told)}."


def _change(change: Change, width: int, encoding: str) -> list[Line]:
    message = printable(change.message, encoding)
    clause = _CLAUSE.search(message)
    end = clause.end() if clause else len(message)
    pieces: list[Span] = words(message[:end], "strong") + words(message[end:])
    lines = flow(pieces, width, MARGIN, [(change.severity.ljust(MARGIN), change.severity)])
    if change.do:
        label: list[Span] = [(" " * MARGIN, ""), ("do", "label")]
        lines += flow(words(printable(change.do, encoding), "command"), width, DETAIL, label, hang=2)
    return lines
