"""The terminal's report for logs: no colour, and no line is broken, whatever the width."""

from __future__ import annotations

from sgdoctor.report import terminal
from sgdoctor.report.layout import plain
from sgdoctor.report.model import Report

# No line gets this long: nothing is ever wrapped.
UNBROKEN = 1_000_000_000


def render(report: Report, *, verbose: bool = False) -> str:
    """Return ``report`` as text, a statement a line."""
    return plain(terminal.render(report, width=UNBROKEN, verbose=verbose))
