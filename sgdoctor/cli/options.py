"""What more than one command takes on its command line."""

from __future__ import annotations

import click

from sgdoctor.report.formats import FORMATS

FORMAT = click.option(
    "--format",
    "form",
    metavar="FORMAT",
    type=click.Choice(["terminal", "json"]),
    default="terminal",
    help="terminal or json. Default: terminal.",
)

REPORT_FORMAT = click.option(
    "--format",
    "form",
    metavar="FORMAT",
    type=click.Choice(["terminal", *FORMATS]),
    default="terminal",
    help=f"{', '.join(('terminal', *FORMATS[:-1]))} or {FORMATS[-1]}. Default: terminal.",
)


def split_launch(ctx: click.Context, args: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the arguments before ``--`` and the launch command behind it, () where there is none.

    Raises click.UsageError when nothing is behind ``--``.
    """
    if "--" not in args:
        return args, ()
    at = args.index("--")
    launch = tuple(args[at + 1 :])
    if not launch and not ctx.resilient_parsing:  # a shell completes what is not complete
        raise click.UsageError("nothing behind --; the launch command goes there", ctx)
    return args[:at], launch
