"""docs/coverage.md: every entry of the catalogue of cases, with its rules or why it has none.

``tools/coverage/<LETTER>.yaml`` is a list of the entries of a family: ``case``, ``about`` (what it is about),
``reason`` (why no rule decides it, or what its rules leave open) and ``wrong`` (what the entry had wrong).
Which rules answer an entry is read from their ``case`` fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import yaml

from sgdoctor.engine.rules import Pack
from sgdoctor.errors import UsageError
from tools import markdown

FOLDER = Path(__file__).with_name("coverage")

# The families of the catalogue, each with the number of its last entry; R06b is one more.
FAMILIES = {
    "M": ("kernel configs", 22),
    "B": ("RTX PRO 6000, RTX 50xx and DGX Spark", 22),
    "H": ("other hardware", 12),
    "V": ("versions", 16),
    "R": ("memory and capacity", 17),
    "F": ("flags", 23),
    "D": ("several GPUs and nodes", 13),
    "X": ("health at run time", 12),
    "S": ("security", 15),
    "Q": ("quantization", 12),
}
_EXTRA = {"R06": "R06b"}

INTRODUCTION = """\
sgdoctor was built against a catalogue of 165 deployment problems, collected from SGLang's sources and from
users' reports. Each of its entries was checked in the releases themselves. Here is what became of it: the
rules that decide it, or why nothing that can be observed does, and what the entry had wrong."""


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of the catalogue."""

    case: str
    about: str
    reason: str | None = None
    wrong: str | None = None


def entries(folder: Path = FOLDER) -> list[Entry]:
    """Return the entries of all families, in the order of the catalogue.

    Raises UsageError for a file that is missing or is no list of entries.
    """
    found = []
    for family in FAMILIES:
        file = folder / f"{family}.yaml"
        try:
            text = yaml.safe_load(file.read_text(encoding="utf-8"))
            found += msgspec.convert(text, list[Entry])
        except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
            said = " ".join(str(error).split())
            raise UsageError(f"{file}: {said}; it is a list of case, about, reason, wrong") from None
    return found


def expected() -> list[str]:
    """Return the names of all entries that the catalogue has."""
    names = []
    for family, (_, last) in FAMILIES.items():
        for number in range(1, last + 1):
            name = f"{family}{number:02}"
            names += [name, _EXTRA[name]] if name in _EXTRA else [name]
    return names


def answers(pack: Pack) -> dict[str, list[str]]:
    """Return the codes of the rules that answer each entry."""
    found: dict[str, list[str]] = {}
    for each in pack:
        told = each.rule.case
        for case in [told] if isinstance(told, str) else told:
            found.setdefault(case, []).append(each.code)
    return found


def problems(listed: Iterable[Entry], rules: Mapping[str, list[str]]) -> list[str]:
    """Return what is wrong with the decisions, a line each: nothing is left out, twice or undecided."""
    names = [entry.case for entry in listed]
    found = [f"{name} is not listed" for name in expected() if name not in names]
    found += [f"{name} is listed twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    known = set(expected())
    found += [f"{name} is no entry of the catalogue" for name in names if name not in known]
    found += [f"{', '.join(rules[name])}: there is no entry {name}" for name in rules if name not in known]
    found += [
        f"{entry.case} has neither a rule nor a reason"
        for entry in listed
        if entry.case not in rules and not entry.reason
    ]
    return found


def page(pack: Pack, folder: Path = FOLDER) -> str:
    """Return docs/coverage.md; raises UsageError where an entry is not decided."""
    listed, rules = entries(folder), answers(pack)
    if found := problems(listed, rules):
        raise UsageError(f"{folder}: " + "; ".join(found))
    return markdown.page(
        "# The catalogue of cases", INTRODUCTION, _counts(listed, rules), *_tables(listed, rules)
    )


def _counts(listed: list[Entry], rules: Mapping[str, list[str]]) -> str:
    codes = {code for found in rules.values() for code in found}
    rows = []
    for family, (about, _) in FAMILIES.items():
        of = [entry for entry in listed if entry.case.startswith(family)]
        rows.append((f"{family}: {about}", *_numbers(of, rules)))
    rows.append(("all", *_numbers(listed, rules)))
    head = ("family", "entries", "with rules", "with a reason instead", "with something wrong")
    return f"{markdown.table(head, rows)}\n\n{len(codes)} rules answer them."


def _numbers(of: list[Entry], rules: Mapping[str, list[str]]) -> tuple[str, ...]:
    ruled = sum(entry.case in rules for entry in of)
    wrong = sum(entry.wrong is not None for entry in of)
    return str(len(of)), str(ruled), str(len(of) - ruled), str(wrong)


def _tables(listed: list[Entry], rules: Mapping[str, list[str]]) -> Iterator[str]:
    for family, (about, _) in FAMILIES.items():
        yield f"## {family}: {about}"
        rows = [_row(entry, rules) for entry in listed if entry.case.startswith(family)]
        yield markdown.table(("entry", "what it is about", "rules, or why none", "what it had wrong"), rows)


def _row(entry: Entry, rules: Mapping[str, list[str]]) -> tuple[str, ...]:
    links = {code: f"rules/{code}.md" for found in rules.values() for code in found}
    decided = [", ".join(f"[{code}]({links[code]})" for code in rules.get(entry.case, []))]
    decided.append(markdown.prose(entry.reason, links) if entry.reason else "")
    return (
        entry.case,
        markdown.prose(entry.about, links),
        "<br>".join(part for part in decided if part),
        markdown.prose(entry.wrong, links) if entry.wrong else "",
    )
