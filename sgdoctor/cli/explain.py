"""``sgdoctor explain``."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """\b
Examples:
  sgdoctor explain CFG101
  sgdoctor explain moe-config-missing
  sgdoctor explain --rules ops/rules ARG901
"""


@click.command("explain", epilog=EPILOG)
@click.argument("code", metavar="CODE")
@click.option(
    "--rules", metavar="DIR", multiple=True, type=click.Path(path_type=Path), help="Add a folder of rules."
)
def command(code: str, rules: tuple[Path, ...]) -> int:
    """Print a rule's page: what, why, how it is known, what to do, where it is from.

    CODE is a rule's code or name: CFG101, moe-config-missing.
    """
    from sgdoctor.cli.group import nearest
    from sgdoctor.cli.output import emit
    from sgdoctor.cli.terminal import show
    from sgdoctor.engine import rule_file
    from sgdoctor.engine import rules as packs
    from sgdoctor.errors import UsageError
    from sgdoctor.report import page

    pack = packs.load(rules)
    found = pack.get(code.upper()) or pack.get(code.lower())
    if found is None:
        names = [name for rule in pack for name in (rule.code, rule.rule.name)]
        hint = nearest(code.upper(), names) or nearest(code.lower(), names) or "; sgdoctor rules list has all"
        raise UsageError(f"no rule is called {code}{hint}")
    facts = {name: spec.about for name in found.names if (spec := pack.vocabulary.spec(name)) is not None}
    rule = rule_file.read(found.file.path).rule
    path = str(found.file.path)
    emit(show(lambda width, encoding: page.render(rule, facts, file=path, width=width, encoding=encoding)))
    return 0
