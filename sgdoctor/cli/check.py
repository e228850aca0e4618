"""``sgdoctor check``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sgdoctor.cli.options import REPORT_FORMAT
from sgdoctor.cli.sources import SourcesCommand, source_options, sources_from

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sgdoctor.report.model import FailOn, Report

SEVERITIES = ("error", "warning", "info", "never")

_FAIL_ON = "Exit with 1 at findings this bad: error, warning, info or never. Default: error."

_CONFIG = "Settings and suppressions. Default: sgdoctor.toml, or pyproject.toml, in this folder."
_BASELINE = "Count the findings that this file knows, and show the others."
_WRITE_BASELINE = "Write what is found today to this file."

_TARGET = "At another release (or sglang=latest), and what changes on the way there."
_FROM = "The release in use, for --target, where no source tells."

EPILOG = """\b
Examples:
  sgdoctor check
  sgdoctor check --url http://127.0.0.1:30000 --log server.log
  sgdoctor check --url http://127.0.0.1:30000 --log server.log --watch 60
  sgdoctor check --url http://10.0.0.1:30000 --url http://10.0.0.2:30000
  docker logs sglang 2>&1 | sgdoctor check --log -
  sgdoctor check --launch launch.sh --model config.json --environment env.json
  sgdoctor check --gpu H200:8 -- python3 -m sglang.launch_server --tp 8 ...
  sgdoctor check --launch launch.sh --fail-on warning || exit 1
  sgdoctor check --launch launch.sh --write-baseline known.json
  sgdoctor check --launch launch.sh --baseline known.json
  sgdoctor check --target sglang=latest --launch launch.sh --model config.json

With no source, this machine is looked at: its GPUs, its Python environment and every running server.
Each source alone is enough for the rules that it can decide; the others are counted, and listed with -v.
"""


@click.command("check", cls=SourcesCommand, epilog=EPILOG)
@source_options
@click.option("--target", metavar="sglang=VERSION", help=_TARGET)
@click.option("--from-version", metavar="VERSION", help=_FROM)
@REPORT_FORMAT
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the report there.")
@click.option("--fail-on", metavar="SEVERITY", type=click.Choice(SEVERITIES), help=_FAIL_ON)
@click.option("--strict", is_flag=True, help="Exit with 3 when a named source could be read only in part.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show what is only suspected, all evidence, what is undecided."
)
@click.option("--select", metavar="CODES", multiple=True, help="Only these rules: CFG101, or CFG,ARG1.")
@click.option("--ignore", metavar="CODES", multiple=True, help="All rules but these.")
@click.option(
    "--rules", metavar="DIR", multiple=True, type=click.Path(path_type=Path), help="Add a folder of rules."
)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help=_CONFIG)
@click.option("--baseline", metavar="FILE", type=click.Path(path_type=Path), help=_BASELINE)
@click.option("--write-baseline", metavar="FILE", type=click.Path(path_type=Path), help=_WRITE_BASELINE)
def command(**options: Any) -> int:
    """Say what is wrong with SGLang deployments, how that is known, and what to do.

    Nothing is changed, and no server is asked for more than its status.
    """
    from sgdoctor import baseline, config
    from sgdoctor.cli.interrupts import ends_the_watching
    from sgdoctor.cli.output import complain, emit, emit_json, keep, save, writable
    from sgdoctor.cli.progress import Progress
    from sgdoctor.examine import check
    from sgdoctor.report.model import exit_code

    output: Path | None = options["output"]
    if output is not None and str(output) == "-":
        output = None
    new_baseline: Path | None = options["write_baseline"]
    for file in (output, new_baseline):
        if file is not None:
            writable(file)
    settings = config.read(options["config"]) if options["config"] else config.found(Path())
    choice = config.chosen(
        settings,
        fail_on=options["fail_on"],
        select=codes(options["select"]),
        ignore=codes(options["ignore"]),
        rules=options["rules"],
    )
    known = baseline.load(options["baseline"]) if options["baseline"] else frozenset()
    sources = sources_from(options)
    read = [*sources.files(), ("--config", options["config"])]
    keep("--write-baseline", new_baseline, read)
    known_too = [("--baseline", options["baseline"]), ("--write-baseline", new_baseline)]
    keep("--output", output, [*read, *known_too])
    with ends_the_watching(sources), Progress() as progress:
        report = check(
            sources,
            select=choice.select,
            ignore=choice.ignore,
            rules=choice.rules,
            target=options["target"],
            from_version=options["from_version"],
            config=settings,
            progress=progress.say,
        )
    if new_baseline is not None:
        save(new_baseline, baseline.dump(report))
    report = baseline.apply(report, known)
    severities = settings.settings.severity if settings is not None else ()
    rendered = partial(
        _rendered, report, options["form"], severities, choice.fail_on, verbose=options["verbose"]
    )
    if output is None:
        write = emit_json if options["form"] in ("json", "sarif") else emit
        write(rendered(to_file=False))
    else:
        save(output, rendered(to_file=True))
        complain(f"{output}: {_line(report)}")
    return exit_code(report, choice.fail_on, strict=options["strict"])


def codes(given: tuple[str, ...]) -> list[str]:
    """Return the codes of options that may be repeated and may hold several, with commas."""
    return [code.strip() for each in given for code in each.split(",") if code.strip()]


def _rendered(
    report: Report, form: str, severities: Iterable[str], fail_on: FailOn, *, verbose: bool, to_file: bool
) -> str:
    from sgdoctor.report import formats

    if form in formats.FORMATS:
        return formats.render(report, form, verbose=verbose, fail_on=fail_on)
    from sgdoctor.cli.terminal import show
    from sgdoctor.report import terminal

    return show(
        lambda width, encoding: terminal.render(
            report, width=width, verbose=verbose, encoding=encoding, severities=severities
        ),
        to_file=to_file,
    )


def _line(report: Report) -> str:
    """Return what was found, for standard error when the report went to a file."""
    from sgdoctor.report import terminal

    return terminal.counted(report.summary)
