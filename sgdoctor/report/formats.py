"""The formats of a report by their names. Each is imported when it is asked for."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing alone is a good part of the time of --help
if TYPE_CHECKING:
    from sgdoctor.report.model import FailOn, Report

# Those that are the same wherever they go; "terminal" depends on the terminal and is not among them.
FORMATS = ("plain", "json", "sarif", "junit", "github", "markdown", "html")


def render(report: Report, form: str, *, verbose: bool = False, fail_on: FailOn = "error") -> str:
    """Return ``report`` in the format named ``form``, with a newline at its end.

    ``verbose`` shows what is only suspected too, which JSON always has; ``fail_on`` decides which cases of
    JUnit fail. Raises KeyError for a name that is not in FORMATS.
    """
    if form not in FORMATS:
        raise KeyError(form)
    module = importlib.import_module(f"sgdoctor.report.{form}")
    asked = {"json": {}, "junit": {"verbose": verbose, "fail_on": fail_on}}
    text: str = module.render(report, **asked.get(form, {"verbose": verbose}))
    return text
