"""``sgdoctor snapshot``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sgdoctor.cli.sources import SourcesCommand, source_options, sources_from

EPILOG = """\b
Examples:
  sgdoctor snapshot -o environment.json
  sgdoctor snapshot -o before.json --url http://127.0.0.1:30000
  sgdoctor check --snapshot before.json

The file holds every fact with where it was read, and no secrets. Take it where the server runs and judge it
anywhere; check --environment takes it as the machine that a launch is planned for.
"""


@click.command("snapshot", cls=SourcesCommand, epilog=EPILOG)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to write.",
)
@source_options
def command(**options: Any) -> int:
    """Write all facts about a deployment to one file."""
    from sgdoctor.cli.interrupts import ends_the_watching
    from sgdoctor.cli.output import complain, emit_json, keep, save, writable
    from sgdoctor.cli.progress import Progress
    from sgdoctor.examine import snapshot

    output: Path = options["output"]
    to_stdout = str(output) == "-"
    if not to_stdout:
        writable(output)
    sources = sources_from(options)
    keep("--output", None if to_stdout else output, sources.files())
    with ends_the_watching(sources), Progress() as progress:
        text = snapshot(sources, progress=progress.say)
    if to_stdout:
        emit_json(text)
    else:
        save(output, text)
        complain(f"{output}: written")
    return 0
