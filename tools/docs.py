"""Write the generated pages of docs/ (rules, facts, commands, cases); with --check, say which are not fresh.

Run as ``python -m tools.docs [--check]`` in the checkout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sgdoctor.engine import rules
from sgdoctor.errors import UsageError
from tools import coverage, docs_cli, docs_facts, docs_rules

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RULES = ROOT / "rules"


def pages() -> dict[str, str]:
    """Return the text of every generated page by its path in docs/.

    Raises UsageError for a bad rule, and for an entry of the catalogue that is not decided.
    """
    pack = rules.load(root=RULES, tests=True)
    parts = docs_facts.sections(RULES / "facts.yaml")
    anchors = docs_facts.anchors(parts)
    made = {f"rules/{rule.code}.md": docs_rules.page(rule, pack, anchors, ROOT) for rule in pack}
    made["rules/index.md"] = docs_rules.index(pack)
    made["facts.md"] = docs_facts.page(pack, parts)
    made["cli.md"] = docs_cli.page()
    made["coverage.md"] = coverage.page(pack)
    return made


def problems(made: dict[str, str], docs: Path) -> list[str]:
    """Return how the files in ``docs`` differ from the pages, a line each."""
    found = []
    for name, text in sorted(made.items()):
        file = docs / name
        if not file.exists():
            found.append(f"missing: docs/{name}")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"stale: docs/{name}")
    return found + [f"superfluous: docs/{name}" for name in superfluous(made, docs)]


def superfluous(made: dict[str, str], docs: Path) -> list[str]:
    """Return the files among the rule pages that no rule has any more."""
    names = (f"rules/{file.name}" for file in (docs / "rules").glob("*"))
    return sorted(name for name in names if name not in made)


def write(made: dict[str, str], docs: Path) -> None:
    """Write the pages and remove those that are superfluous."""
    (docs / "rules").mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (docs / name).write_text(text, encoding="utf-8")
    for name in superfluous(made, docs):
        (docs / name).unlink()


def main() -> int:
    """Write or check; return 1 when something is not fresh, 2 when the rules cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Generate pages of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which pages are not fresh")
    given = parser.parse_args()
    try:
        made = pages()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    if not given.check:
        write(made, DOCS)
        return 0
    found = problems(made, DOCS)
    for problem in found:
        print(problem)
    if found:
        print("make docs brings them up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
