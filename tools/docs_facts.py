"""docs/facts.md: the vocabulary, in the sections of rules/facts.yaml, with the rules that read each fact."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from sgdoctor.engine.messages import placeholders
from sgdoctor.engine.rules import CompiledRule, Pack
from sgdoctor.vocabulary import FactSpec
from tools import markdown

_SECTION = re.compile(r"# --- (.+?) -+\s*$")
_FACT = re.compile(r"([A-Za-z][\w.]*):")

INTRODUCTION = """\
Every fact that a rule may read. A fact is known, perhaps as `null` (known not to be set), or unknown (with
the reason why); [writing rules](writing-rules.md#conditions) says how conditions treat the two. Only a fact
that is marked as nullable can be `null`. Facts of the type *version* are compared as PEP 440 has it.

- `arg.*` is what is in effect: what `/server_info` says, then the log's banner, then what was asked for and
  the release's defaults.
- `asked.*` is what the operator wrote; every `arg.NAME` has a twin `asked.NAME`, which is `null` where the
  flag was not written.
- `env.*` are environment variables of the server, `null` where they are not set.
- `package.*` are versions of installed distributions (dashes as underscores), `null` where there is none.
- `pin.*` is what the SGLang release requires of a distribution exactly, `null` where it has no exact pin."""


class Section(NamedTuple):
    """A part of the vocabulary: its heading, what else its comment says, its facts."""

    heading: str
    remark: str
    facts: list[str]


def sections(file: Path) -> list[Section]:
    """Read the sections of the vocabulary from the comments between its facts."""
    found: list[Section] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if opening := _SECTION.match(line):
            heading, _, remark = re.sub(r"[:;,] ", "\n", opening.group(1), count=1).partition("\n")
            found.append(Section(_capital(heading), _capital(remark), []))
        elif fact := _FACT.match(line):
            found[-1].facts.append(fact.group(1))
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def anchors(parts: list[Section]) -> dict[str, str]:
    """Return the section of every fact, as an anchor in docs/facts.md; the twins of flags too."""
    places = {fact: markdown.anchor(part.heading) for part in parts for fact in part.facts}
    twins = {
        f"asked.{fact.removeprefix('arg.')}": place
        for fact, place in places.items()
        if fact.startswith("arg.")
    }
    return {**twins, **places}


def read_by(rule: CompiledRule) -> set[str]:
    """Return the facts that a rule names, in its conditions or its texts."""
    texts = [rule.rule.message]
    for each in rule.rule.recommend:
        texts += [str(text) for text in (each.run, each.install, each.do, each.note, each.value) if text]
    named = {one.name for text in texts for one in placeholders(text)}
    return named | set(rule.names)


def page(pack: Pack, parts: list[Section]) -> str:
    """Return docs/facts.md."""
    readers: dict[str, list[str]] = {}
    for rule in pack:
        for fact in read_by(rule):
            readers.setdefault(fact, []).append(rule.code)
    blocks = ["# Facts", INTRODUCTION, "They are, by what they are about:"]
    blocks.append("\n".join(f"- [{part.heading}](#{markdown.anchor(part.heading)})" for part in parts))
    for part in parts:
        rows = [
            (markdown.code(fact), *_described(pack.vocabulary.specs[fact]), _readers(fact, readers))
            for fact in part.facts
        ]
        remark = f"{markdown.prose(part.remark)}." if part.remark else ""
        blocks += [
            f"## {part.heading}",
            remark,
            markdown.table(("fact", "type", "what it is", "read by"), rows),
        ]
    blocks.append("Made from `rules/facts.yaml` and the rules by `make docs`.")
    return markdown.page(*blocks)


def _described(spec: FactSpec) -> tuple[str, str]:
    about = markdown.prose(spec.about)
    if spec.fields:
        fields = [
            f"{markdown.code(name)} ({field.type}{', nullable' if field.nullable else ''})"
            for name, field in spec.fields.items()
        ]
        about += f". Each has {', '.join(fields)}"
    return kind(spec), about


def kind(spec: FactSpec) -> str:
    """Return the type of a fact in words."""
    words = [spec.type, spec.unit or "", "nullable" if spec.nullable else ""]
    return ", ".join(word for word in words if word)


def _readers(fact: str, readers: dict[str, list[str]]) -> str:
    links = [f"[{code}](rules/{code}.md)" for code in readers.get(fact, [])]
    if fact.startswith("arg."):
        twin = readers.get(f"asked.{fact.removeprefix('arg.')}", [])
        links += [f"[{code}](rules/{code}.md) (asked)" for code in twin]
    return ", ".join(links)
