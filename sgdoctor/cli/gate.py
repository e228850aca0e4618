"""``sgdoctor gate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sgdoctor.cli.check import SEVERITIES
from sgdoctor.cli.sources import SourcesCommand, sources_among, sources_from

SOURCES = ("--environment", "--model", "--python", "--gpu", "--assume")

_FAIL_ON = "Launch nothing at findings this bad: error, warning, info or never. Default: error."
_REQUIRE = "Launch nothing either when the check did not work or could not decide."
_CONFIG = "Settings and suppressions. Those of the working folder are not followed."
_DEADLINE = "Launch unchecked when the check takes longer. Default: 10."

EPILOG = """\b
Examples:
  exec sgdoctor gate -- sglang serve --model-path "$MODEL" --tp 8
  sgdoctor gate --fail-on warning -- python3 -m sglang.launch_server ...
  SGDOCTOR_GATE=off sgdoctor gate -- sglang serve ...

\b
Exit codes:
  the command's own, once it is launched: the gate has become it
  1   findings at or above --fail-on; the report is on standard error
  2   an option is wrong
  126, 127  the command cannot be executed, is not found
  2, 3, 4   with --require-known: a file is wrong, not decided, a bug

Nothing is launched with 1 and 2. Everything else launches, with one line on
standard error: a check that fails, takes too long or cannot decide, a file or
folder that is missing or broken, a command that starts no SGLang.
SGDOCTOR_GATE=off launches at once, without a check. No network is used.
"""


class GateCommand(SourcesCommand):
    """A command that is nothing without the one behind ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the command to launch."""
        rest = super().parse_args(ctx, args)
        if not ctx.params["command"] and not ctx.resilient_parsing:
            raise click.UsageError("nothing to launch; the command goes behind --", ctx)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        return [*click.Command.collect_usage_pieces(self, ctx), "-- COMMAND ..."]


@click.command("gate", cls=GateCommand, epilog=EPILOG)
@sources_among(*SOURCES)
@click.option("--fail-on", metavar="SEVERITY", type=click.Choice(SEVERITIES), help=_FAIL_ON)
@click.option("--require-known", is_flag=True, help=_REQUIRE)
@click.option(
    "--deadline",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600, min_open=True),
    default=10.0,
    help=_DEADLINE,
)
@click.option("--select", metavar="CODES", multiple=True, help="Only these rules: CFG101, or CFG,ARG1.")
@click.option("--ignore", metavar="CODES", multiple=True, help="All rules but these.")
@click.option(
    "--rules", metavar="DIR", multiple=True, type=click.Path(path_type=Path), help="Add a folder of rules."
)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help=_CONFIG)
def command(**options: Any) -> int:
    """Check a launch command on this machine, then become it.

    The command gets this process: its number, environment, folder, files and signals. Put it in front of a
    launch in a script, a systemd unit, a container's entrypoint.
    """
    from sgdoctor.gate import guard

    def judge(say: guard.Progress) -> guard.Answer:
        from sgdoctor.cli.check import codes
        from sgdoctor.gate.judging import Asked, judge

        asked = Asked(
            command=options.pop("command"),
            fail_on=options["fail_on"],
            select=codes(options["select"]),
            ignore=codes(options["ignore"]),
            rules=options["rules"],
            config=options["config"],
            sources=sources_from(options),
        )
        return judge(asked, say)

    return guard.guard(judge, options["deadline"], require_known=options["require_known"])
