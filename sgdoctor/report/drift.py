"""What several servers differ in, as a table for the terminal: a value a line, and who holds it."""

from __future__ import annotations

from sgdoctor.report.layout import Line, flow, printable, words
from sgdoctor.report.model import Drift, Report

MOST_ROWS = 12
MOST_NAMES = 3
MARGIN = 9  # "differ" and what aligns it with the findings
VALUE = 4


def lay_out(report: Report, *, width: int, encoding: str, verbose: bool) -> list[Line]:
    """Return the lines of the table; none where the servers differ in nothing, or only one was asked."""
    lines: list[Line] = []
    shown = report.drift if verbose else report.drift[:MOST_ROWS]
    for each in shown:
        of = f" (servers of {each.model})" if len({one.model for one in report.drift}) > 1 else ""
        title = words(printable(f"{each.fact.removeprefix('arg.')}{of}", encoding), "strong")
        lines += flow(title, width, MARGIN, [("differ", "note")])
        for value, names in each.values.items():
            said = words(printable(f"{value}:", encoding), "place")
            said += words(printable(_named(each, names, verbose=verbose), encoding))
            lines += flow(said, width, MARGIN + VALUE, hang=2)
    if len(shown) < len(report.drift):
        more = words(f"{len(report.drift) - len(shown)} more with -v")
        lines += flow(more, width, MARGIN, [("differ", "note")])
    return lines


def _named(each: Drift, names: list[str], *, verbose: bool) -> str:
    """Return who holds a value: where there are many, how many."""
    if verbose or len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{len(names)} of {sum(len(holders) for holders in each.values.values())} servers"
