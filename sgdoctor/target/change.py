"""A change, its fields in the order in which one tells it."""

from __future__ import annotations

from sgdoctor.engine.model import Severity
from sgdoctor.report.model import Change, ChangeKind


def new_change(  # noqa: PLR0913 (the fields of a change)
    kind: ChangeKind,
    subject: str,
    before: str | None,
    after: str | None,
    since: str | None,
    message: str,
    severity: Severity = "info",
    *,
    do: str | None = None,
    minor: bool = False,
) -> Change:
    """Return the change; ``since`` is the release that brought it."""
    return Change(
        kind=kind,
        subject=subject,
        before=before,
        after=after,
        release=since,
        severity=severity,
        message=message,
        do=do,
        minor=minor,
    )
