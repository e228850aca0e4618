"""docs/cli.md: the help of every command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from tools import markdown

_PREFORMATTED = "\b"


class _Recorder(click.HelpFormatter):
    """Takes down the sections of a help text instead of laying them out."""

    def __init__(self) -> None:
        super().__init__(width=100)
        self.sections: list[tuple[str, list[tuple[str, str]]]] = []
        self._title = ""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self._title = name
        yield

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        del col_max, col_spacing
        self.sections.append((self._title, list(rows)))


def page() -> str:
    """Return docs/cli.md."""
    from sgdoctor.cli.group import commands

    found = list(_walk(commands, "sgdoctor"))
    links = [f"- [{name}](#{markdown.anchor(name)}): {_first(command)}" for name, command, _ in found]
    blocks = ["# Commands", "\n".join(links)]
    for name, command, context in found:
        blocks += [f"## {name}", *_described(command, context)]
    blocks.append("Made from the commands' own help by `make docs`.")
    return markdown.page(*blocks)


def _walk(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, parent, name, **command.context_settings)
    # click keeps the help option of the first context that a command was in, with that one's names for it.
    command._help_option = None  # noqa: SLF001
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None, part
            yield from _walk(found, part, context)


def _first(command: click.Command) -> str:
    return markdown.paragraphs(command.help or "")[0]


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield markdown.fenced(usage, "text")
    yield from _blocks(command.help or "")
    formatter = _Recorder()
    command.format_options(context, formatter)
    for title, rows in formatter.sections:
        cells = [(markdown.code(names), markdown.prose(text)) for names, text in rows]
        yield markdown.table((title.lower(), ""), cells)
    yield from _blocks(command.epilog or "")


def _blocks(text: str) -> Iterator[str]:
    r"""Iterate over the paragraphs of a help text; those behind `\b` are laid out already."""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.strip("\n").splitlines()
        if not lines or lines[0].strip() != _PREFORMATTED:
            yield from markdown.paragraphs(block)
            continue
        title, *rest = lines[1:]
        indent = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
        yield markdown.prose(title)
        yield markdown.fenced("\n".join(line[indent:] for line in rest), "sh")
