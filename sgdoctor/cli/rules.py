"""``sgdoctor rules``: list, lint and test rule packs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sgdoctor.cli.options import FORMAT

if TYPE_CHECKING:
    from sgdoctor.engine.rules import CompiledRule
    from sgdoctor.report.layout import Line

_FOLDERS = click.option(
    "--rules",
    "folders",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A folder of rules.",
)


EPILOG = """\b
Examples:
  sgdoctor rules list
  sgdoctor rules lint --rules ops/rules
  sgdoctor rules test --rules ops/rules
"""

LIST_EPILOG = """\b
Examples:
  sgdoctor rules list
  sgdoctor rules list --rules ops/rules --format json
"""

LINT_EPILOG = """\b
Examples:
  sgdoctor rules lint
  sgdoctor rules lint --rules ops/rules || exit 1
"""

TEST_EPILOG = """\b
Examples:
  sgdoctor rules test
  sgdoctor rules test --rules ops/rules || exit 1
"""


@click.group("rules", epilog=EPILOG)
def command() -> None:
    """List rules; hold rule files to what a rule must have and to their own test cases."""


@command.command("list", epilog=LIST_EPILOG)
@_FOLDERS
@FORMAT
def list_rules(folders: tuple[Path, ...], form: str) -> int:
    """List all rules, those of added folders too."""
    from sgdoctor.cli.output import emit, emit_json
    from sgdoctor.cli.terminal import show
    from sgdoctor.engine.rules import load

    pack = load(folders)
    if form == "json":
        import msgspec

        rules = [_described(rule) for rule in pack]
        emit_json(msgspec.json.format(msgspec.json.encode(rules), indent=2).decode() + "\n")
        return 0
    emit(show(lambda width, encoding: _table(list(pack), width, encoding)))
    return 0


@command.command("lint", epilog=LINT_EPILOG)
@_FOLDERS
def lint_rules(folders: tuple[Path, ...]) -> int:
    """Say what is wrong with rule files.

    Those of a folder, or all that come with sgdoctor. Exits with 2 when something is.
    """
    from sgdoctor.cli.output import emit
    from sgdoctor.engine.lint import lint_folder
    from sgdoctor.engine.rules import find

    problems: list[str] = []
    files = 0
    for folder in _folders(folders):
        problems += lint_folder(folder)
        files += len(find(folder))
    emit("".join(f"{problem}\n" for problem in problems))
    emit(f"{_number(files, 'rule')}, {_number(len(problems), 'problem')}\n")
    return 2 if problems else 0


@command.command("test", epilog=TEST_EPILOG)
@_FOLDERS
def test_rules(folders: tuple[Path, ...]) -> int:
    """Run the rules' own test cases.

    Those of a folder, or all that come with sgdoctor. Exits with 2 when a rule does not come to what its case
    expects.
    """
    from sgdoctor.cli.output import emit
    from sgdoctor.engine.rules import load

    ran = 0
    failed: list[str] = []
    for folder in _folders(folders):
        for rule in load(root=folder, tests=True):
            ran += len(rule.rule.tests)
            failed += [f"{rule.file.path}: {problem}" for problem in _failures(rule)]
    emit("".join(f"{each}\n" for each in failed))
    emit(f"{_number(ran, 'case')}, {len(failed)} failed\n")
    return 2 if failed else 0


def _failures(rule: CompiledRule) -> list[str]:
    """Return what went wrong in the rule's own cases."""
    from sgdoctor.engine.cases import CaseError, verdict
    from sgdoctor.errors import DoctorError
    from sgdoctor.vocabulary import FactTypeError

    problems = []
    for case in rule.rule.tests:
        try:
            result = verdict(rule, case)
        except (CaseError, FactTypeError, DoctorError) as error:  # noqa: PERF203 (each case alone)
            problems.append(f"{rule.code} {case.name}: {error}")
        else:
            problems += [] if result.ok else [str(result)]
    return problems


def _folders(named: tuple[Path, ...]) -> tuple[Path, ...]:
    from sgdoctor.vocabulary import rules_root

    return named or (rules_root(),)


def _described(rule: CompiledRule) -> dict[str, Any]:
    """Return what a list of rules says about each."""
    told = rule.rule
    fields = ("code", "name", "title", "severity", "impact", "confidence", "case", "releases", "fix")
    return {**{field: getattr(told, field) for field in fields}, "file": str(rule.file.path)}


def _table(rules: list[CompiledRule], width: int, encoding: str) -> list[Line]:
    from sgdoctor.report.layout import flow, printable, words

    lines: list[Line] = []
    for rule in rules:
        told = rule.rule
        opening = [(f"{told.code}  ", "code"), (told.severity.ljust(9), told.severity)]
        lines += flow(words(printable(told.title, encoding)), width, 17, opening)
    return [
        *lines,
        [],
        [(_number(len(rules), "rule"), ""), (".  ", ""), ("sgdoctor explain CODE", "command")],
    ]


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
