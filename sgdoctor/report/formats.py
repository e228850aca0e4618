"""The formats of a report by their names. Each is imported when it is asked for."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing alone is a good part of the time of --help
if TYPE_CHECKING:
    from sgdoctor.report.model import Report

# Those that are the same wherever they go; "terminal" depends on the terminal and is not among them.
FORMATS = ("plain", "json", "sarif", "junit", "github", "markdown", "html")


def render(report: Report, form: str, *, verbose: bool = False) -> str:
    """Return ``report`` in the format named ``form``, with a newline at its end.

    ``verbose`` shows what is only suspected too, which JSON always has. Raises KeyError for a name that is
    not in FORMATS.
    """
    if form not in FORMATS:
        raise KeyError(form)
    module = importlib.import_module(f"sgdoctor.report.{form}")
    text: str = module.render(report) if form == "json" else module.render(report, verbose=verbose)
    return text
