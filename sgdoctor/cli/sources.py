"""The options that name sources, the same for every command that reads a deployment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sgdoctor.cli.options import split_launch

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# A file or folder for the completion of shells; whoever opens it says what is wrong with it.
_PLACE = click.Path(readable=False)

# Each option of a source: its names, what it takes, its help.
_SOURCES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (
        ("--url",),
        {
            "metavar": "URL",
            "multiple": True,
            "help": "A running server, asked with GET alone; check compares several.",
        },
    ),
    (
        ("--api-key",),
        {
            "metavar": "KEY",
            "envvar": "SGDOCTOR_API_KEY",
            "show_envvar": True,
            "help": "Its API key.",
        },
    ),
    (
        ("--log", "logs"),
        {
            "metavar": "FILE",
            "type": _PLACE,
            "multiple": True,
            "help": "A server's log, also .gz; - is standard input. Once a node.",
        },
    ),
    (
        ("--launch",),
        {
            "metavar": "FILE",
            "type": _PLACE,
            "help": "A launch script, compose file, manifest, unit, Dockerfile; a command goes behind --.",
        },
    ),
    (("--model",), {"metavar": "PATH", "type": _PLACE, "help": "The model's folder or its config.json."}),
    (
        ("--python",),
        {
            "metavar": "PATH",
            "type": _PLACE,
            "help": "The Python environment or interpreter that runs SGLang.",
        },
    ),
    (
        ("--environment",),
        {
            "metavar": "FILE",
            "type": _PLACE,
            "help": "What another machine has: a snapshot, or JSON with packages and gpus.",
        },
    ),
    (("--server-info",), {"metavar": "FILE", "type": _PLACE, "help": "A saved answer of /server_info."}),
    (("--metrics",), {"metavar": "FILE", "type": _PLACE, "help": "A saved answer of /metrics."}),
    (
        ("--watch",),
        {"metavar": "SECONDS", "type": float, "help": "Watch the server and its log for so long: 60."},
    ),
    (("--gpu",), {"metavar": "NAME[:COUNT]", "help": "As if the GPUs were these: H200:8."}),
    (
        ("--assume",),
        {"metavar": "FACT=VALUE", "multiple": True, "help": "As if this were so: triton.version=3.6.0."},
    ),
    (("--sample",), {"metavar": "NAME", "help": "A deployment that comes with sgdoctor."}),
    (("--snapshot",), {"metavar": "FILE", "type": _PLACE, "help": "A file that sgdoctor snapshot wrote."}),
    (("--deep",), {"is_flag": True, "help": "Also try `import sglang`, in a child with a timeout."}),
]


def source_options(function: Decorated) -> Decorated:
    """Give a command the options that name sources."""
    for names, settings in reversed(_SOURCES):
        function = click.option(*names, **settings)(function)
    return function


def sources_among(*names: str) -> Callable[[Decorated], Decorated]:
    """Give a command these of the options that name sources."""

    def decorate(function: Decorated) -> Decorated:
        for options, settings in reversed(_SOURCES):
            if options[0] in names:
                function = click.option(*options, **settings)(function)
        return function

    return decorate


class SourcesCommand(click.Command):
    """A command whose arguments behind ``--`` are a launch command; there are no others."""

    allow_extra_args = True  # to say more about them than that they are unexpected

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the launch command; a word before it that belongs to no option is a mistake."""
        args, launch = split_launch(ctx, args)
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(f"{rest[0]}: {_meant(rest[0])}", ctx)
        ctx.params["command"] = launch
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of sources and the others in a section each."""
        sources = {(names[0], settings["help"]) for names, settings in _SOURCES}
        sections: dict[str, list[tuple[str, str]]] = {"Sources": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_source = (parameter.opts[0], getattr(parameter, "help", None)) in sources
                sections["Sources" if is_source else "Options"].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ...]"]


def _meant(word: str) -> str:
    """Return which option an argument without one was probably meant for."""
    options = {".log": "--log", ".gz": "--log", ".txt": "--log", ".sh": "--launch"}
    options |= dict.fromkeys([".yml", ".yaml", ".service", ".sbatch", "Dockerfile"], "--launch")
    options |= {
        "config.json": "--model",
        "environment.json": "--environment",
        "server_info.json": "--server-info",
    }
    for end, option in options.items():
        if word.endswith(end):
            return f"name it as {option} {word}"
    if word.startswith(("http://", "https://")):
        return f"name it as --url {word}"
    return "sources are named by options, and a launch command goes behind --"


def sources_from(options: dict[str, Any]) -> Any:
    """Take the options of sources out of ``options`` and return them as Sources."""
    from sgdoctor.sources import Sources

    urls = options.pop("url", ())
    options["urls" if len(urls) > 1 else "url"] = urls if len(urls) > 1 else next(iter(urls), None)
    return Sources(**{name: options.pop(name) for name in Sources.__struct_fields__ if name in options})
