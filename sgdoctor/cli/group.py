"""The commands, each imported when it is called, and what becomes of their errors."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable

import click

import sgdoctor
from sgdoctor.cli.output import complain
from sgdoctor.errors import DoctorError

DEBUG = "SGDOCTOR_DEBUG"
USAGE, UNDECIDED, INTERNAL = 2, 3, 4

# The help of the whole must not import the parts.
COMMANDS = {
    "check": "Say what is wrong with a deployment and what to do about it.",
    "gate": "Check a launch command on this machine, then become it.",
    "fix": "Repair launch flags, tune a missing fused-MoE config; undo.",
    "snapshot": "Write all facts about a deployment to one file.",
    "diff": "Say what changed between two recordings of a deployment.",
    "explain": "Print a rule's page: what, why, how it is known, what to do.",
    "rules": "List rules; hold rule files to their own test cases.",
    "configs": "List, lint and explain kernel configuration files.",
}

EPILOG = """\b
Examples:
  sgdoctor check                          this machine and its running servers
  sgdoctor check --log server.log         what a server said
  sgdoctor check --launch launch.sh       what will happen, before the launch
  sgdoctor gate -- sglang serve ...       the same, and then the launch
  sgdoctor check --sample moe-no-config   a first look, with nothing installed

Exit codes: 0 nothing found, 1 something found, 2 change the command or a file, 3 could not decide,
4 internal error.
"""


class Commands(click.Group):
    """A group that knows the names and the short helps of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"sgdoctor.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{nearest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint at the names most like ``name``, or nothing."""
    import difflib

    names = list(names)
    begun = [each for each in names if each.startswith(name)][:3]
    found = begun or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else ""


@click.command(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(sgdoctor.__version__, message="sgdoctor %(version)s")
def commands() -> None:
    """Find what is slow, broken or without effect in an SGLang deployment, and say what to change."""


def run(arguments: list[str]) -> int:
    """Run the command that ``arguments`` name; errors become one line and an exit code, never a traceback."""
    if "_SGDOCTOR_COMPLETE" in os.environ:
        commands.main(arguments, prog_name="sgdoctor")
    try:
        with commands.make_context("sgdoctor", arguments) as context:
            code = commands.invoke(context)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and newer
            complain(error.format_message())
            return USAGE
        return _failed(_usage(error), USAGE)
    except DoctorError as error:
        return _failed(str(error), error.exit_code, detail=getattr(error, "detail", ""))
    except (KeyboardInterrupt, click.Abort):
        return _failed("interrupted", UNDECIDED)
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 (the operator gets a line, whatever happened)
        return _broke(error)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    if not message.partition(" ")[0].endswith(":"):  # else it begins with what was typed
        message = f"{message[:1].lower()}{message[1:]}"
    if context is None:
        return message
    return f"{message} ({context.command_path} --help)"


def _broke(error: Exception) -> int:
    import traceback

    if os.environ.get(DEBUG):
        complain(traceback.format_exc().rstrip())
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    more = "" if os.environ.get(DEBUG) else f"; {DEBUG}=1 shows the traceback"
    place = "/".join(last.filename.split("/")[-2:])
    return _failed(f"internal error, a bug of sgdoctor: {said} (at {place}:{last.lineno}{more})", INTERNAL)


def _failed(message: str, code: int, *, detail: str = "") -> int:
    from sgdoctor import redact
    from sgdoctor.report.layout import printable

    complain(printable(redact.text(f"sgdoctor: {' '.join(message.split())}")))
    if detail:
        complain(printable(redact.text(detail)))
    return code
