"""docs/rules/: a page a rule, and their index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgdoctor.engine import cases
from sgdoctor.engine.messages import placeholders
from sgdoctor.engine.model import Recommendation, Rule, TestCase
from sgdoctor.engine.rules import CompiledRule, Pack
from sgdoctor.report.words import action
from tools import markdown
from tools.docs_facts import kind
from tools.docs_sources import raw_inputs, source

FAMILIES = {
    "ENV": "versions and imports",
    "HW": "GPU and architecture",
    "CFG": "kernel configs",
    "ARG": "flags",
    "MEM": "memory and capacity",
    "NET": "multi-GPU and network",
    "RUN": "health at run time",
    "SEC": "security",
    "QNT": "quantization",
}

INTRODUCTION = """\
What sgdoctor looks for. A rule that does not concern the deployment, or that lacks a fact, says nothing.
`sgdoctor explain CODE` prints a rule's page; [writing rules](../writing-rules.md) says how to add one."""

_LONG = 90  # characters of a line that GitHub shows without a scroll bar
_TOKENS = re.compile(r"""\"[^"]*\"|'[^']*'| and | or |.""")


def index(pack: Pack) -> str:
    """Return docs/rules/index.md."""
    blocks = ["# Rules", INTRODUCTION]
    for family, about in FAMILIES.items():
        rows = [_row(rule.rule) for rule in pack if rule.code[:-3] == family]
        if rows:
            blocks += [
                f"## {family}: {about}",
                markdown.table(("code", "severity", "what is wrong", "SGLang"), rows),
            ]
    return markdown.page(*blocks)


def _row(rule: Rule) -> tuple[str, ...]:
    link = f"[{rule.code}]({rule.code}.md)"
    return link, rule.severity, markdown.prose(rule.title), _releases(rule)


def _releases(rule: Rule) -> str:
    return markdown.code(rule.releases) if rule.releases else "all releases"


def page(rule: CompiledRule, pack: Pack, anchors: Mapping[str, str], root: Path) -> str:
    """Return the page of a rule; ``anchors`` are those of docs/facts.md, ``root`` is the checkout."""
    told = rule.rule
    links = {each.code: f"{each.code}.md" for each in pack if each is not rule}
    case = told.case if isinstance(told.case, str) else ", ".join(told.case)
    file = rule.file.path.relative_to(root).as_posix()
    return markdown.page(
        f"# {told.code}: {markdown.prose(told.title)}",
        markdown.table(
            ("severity", "impact", "confidence", "SGLang", "name", "catalogue"),
            [
                (
                    told.severity,
                    told.impact,
                    told.confidence,
                    _releases(told),
                    markdown.code(told.name),
                    case,
                )
            ],
        ),
        "## What it says",
        *_says(rule, links),
        "## Why",
        *markdown.paragraphs(told.why, links),
        "## How it is decided",
        *_decided(rule, pack, anchors),
        "## What to do",
        *_to_do(told, links),
        *_related(told, pack),
        "## How it was verified",
        *markdown.paragraphs(_sentence(told.verified), links),
        "## Sources",
        "\n".join(f"- {source(each)}" for each in told.sources),
        "## Test cases",
        *_cases(told, links),
        f"Made from `{file}` by `make docs`; `sgdoctor explain {told.code}` prints its text.",
    )


def _sentence(text: str) -> str:
    text = text.strip()
    if text.partition(" ")[0].isalpha():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _says(rule: CompiledRule, links: Mapping[str, str]) -> Iterator[str]:
    message = rule.rule.message
    yield f"> {markdown.prose(message, links)}"
    if any(placeholders(message)):
        for case in rule.rule.tests:
            said = _example(rule, case)
            if said is not None:
                yield f"For example ({markdown.prose(case.name, links)}):"
                yield f"> {markdown.prose(said, links)}"
                return


def _example(rule: CompiledRule, case: TestCase) -> str | None:
    """Return what a rule says in one of its cases; None where it says nothing or lacks a name."""
    if case.expect != "fail" or case.input is not None:
        return None
    finding = cases.verdict(rule, case).result.finding
    if finding is None:
        return None
    lacking = [f"unknown {one.name}" for one in placeholders(rule.rule.message)]
    return None if any(words in finding.message for words in lacking) else finding.message


def _decided(rule: CompiledRule, pack: Pack, anchors: Mapping[str, str]) -> Iterator[str]:
    told = rule.rule
    if told.applies is not None:
        yield "The rule applies where"
        yield markdown.fenced(broken(told.applies), "python")
    if told.when is not None:
        yield "and the problem is there when" if told.applies is not None else "The problem is there when"
        yield markdown.fenced(broken(told.when), "python")
    if told.match is not None:
        plain = told.when is None and told.applies is None
        yield "The problem is there when the log has" if plain else "and the log has"
        yield markdown.fenced(told.match, "text")
    rows = [
        (
            f"[{markdown.code(name)}](../facts.md#{anchors[name]})",
            kind(pack.vocabulary.specs[name]),
            markdown.prose(pack.vocabulary.specs[name].about),
        )
        for name in rule.names
    ]
    if rows:
        yield markdown.table(("fact", "type", "what it is"), rows)


def broken(condition: str) -> str:
    """Return a long condition with every `and` and `or` that is in no parentheses on a line of its own."""
    condition = condition.strip()
    if len(condition) <= _LONG or "\n" in condition:
        return condition
    lines, depth = [""], 0
    for part in _TOKENS.findall(condition):
        depth += (part in "([") - (part in ")]")
        if depth == 0 and part in (" and ", " or "):
            lines.append(part.lstrip())
        else:
            lines[-1] += part
    return "\n".join(lines)


def _to_do(rule: Rule, links: Mapping[str, str]) -> Iterator[str]:
    items = []
    for each in rule.recommend:
        note = f" ({markdown.prose(each.note, links)})" if each.note else ""
        items.append(f"- {_action(each, links)}{note}")
    yield "\n".join(items) or "Nothing; it is worth knowing."


def _action(each: Recommendation, links: Mapping[str, str]) -> str:
    said, is_command = action(each)
    if is_command:
        return markdown.code(said)
    if each.set is not None:
        return "set " + markdown.code(each.set if each.value is None else f"{each.set} {each.value}")
    return markdown.prose(said, links)


def _related(rule: Rule, pack: Pack) -> Iterator[str]:
    explained = [f"[{code}]({code}.md)" for code in rule.explains]
    if explained:
        yield f"It explains {', '.join(explained)}, shown below it in a report."
    causes = [f"[{each.code}]({each.code}.md)" for each in pack if rule.code in each.rule.explains]
    if causes:
        yield f"It is a consequence of {' or '.join(causes)} where both are found."


def _cases(rule: Rule, links: Mapping[str, str]) -> Iterator[str]:
    told = [case for case in rule.tests if case.input is None]
    if told:
        rows = []
        for at, case in enumerate(told):
            given = _given(rule, case, told[0] if at else None)
            rows.append((markdown.prose(case.name, links), _outcome(case), given))
        yield markdown.table(("case", "result", "facts given; all others are unknown"), rows)
    for case in rule.tests:
        if case.input is not None:
            yield f"### {markdown.prose(case.name, links)}: {_outcome(case)}"
            yield from raw_inputs(case.input)


def _outcome(case: TestCase) -> str:
    return case.expect.replace("_", " ")


def _given(rule: Rule, case: TestCase, first: TestCase | None) -> str:
    """Return the facts of a case, as what differs from the first one where that is shorter."""
    facts = case.facts or {}
    whole = [_fact(name, value) for name, value in facts.items()]
    if first is not None and first.facts:
        changed = [_fact(name, value) for name, value in facts.items() if _differs(first.facts, name, value)]
        gone = [f"no {markdown.code(name)}" for name in first.facts if name not in facts]
        if len(changed) + len(gone) < len(whole):
            whole = ["as in the first case" + (", but" if changed or gone else ""), *changed, *gone]
    if rule.match is not None:
        whole.append(_found(case))
    return "<br>".join(whole) or "none"


def _differs(facts: Mapping[str, Any], name: str, value: Any) -> bool:
    return name not in facts or facts[name] != value


def _found(case: TestCase) -> str:
    if case.match is None:
        return "pattern not found"
    groups = [_fact(name, value) for name, value in case.match.items()]
    return "pattern found" + (f" with {', '.join(groups)}" if groups else "")


def _fact(name: str, value: Any) -> str:
    shown = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return markdown.code(f"{name} = {shown}")
