"""``sgdoctor diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgdoctor.cli.options import FORMAT

if TYPE_CHECKING:
    from sgdoctor.compare.model import Diff

_TOLERANCE = "Percent by which a measure may get worse. Default: 5."

EPILOG = """\b
Examples:
  sgdoctor diff before.json after.json
  sgdoctor diff before.json after.json --tolerance 2 || echo "got worse"
  sgdoctor diff before.json <(curl -s http://127.0.0.1:30000/server_info)

Each file is a snapshot (sgdoctor snapshot) or a saved answer of /server_info. The exit code is 1 when
something got worse, 0 when nothing did, 2 for a file that is neither, 3 when nothing can be compared.
"""


@click.command("diff", epilog=EPILOG)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--tolerance", metavar="PERCENT", type=float, default=5.0, help=_TOLERANCE)
@FORMAT
@click.option("-v", "--verbose", is_flag=True, help="Show what is within the tolerance, and all notes.")
def command(before: Path, after: Path, tolerance: float, form: str, verbose: bool) -> int:  # noqa: FBT001
    """Say what changed between two recordings of a deployment, worst first."""
    from sgdoctor.cli.output import emit, emit_json
    from sgdoctor.compare.diff import diff
    from sgdoctor.compare.model import exit_code

    found = diff(before, after, tolerance=tolerance)
    write = emit_json if form == "json" else emit
    write(_rendered(found, form, verbose=verbose))
    return exit_code(found)


def _rendered(found: Diff, form: str, *, verbose: bool) -> str:
    if form == "json":
        from sgdoctor.report import json

        return json.render(found)
    from sgdoctor.cli.terminal import show
    from sgdoctor.report import differences

    return show(
        lambda width, encoding: differences.render(found, width=width, verbose=verbose, encoding=encoding)
    )
