"""A rule's page for the terminal: what is wrong, why it matters, how it is known, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sgdoctor.engine.model import Rule
from sgdoctor.report.layout import Line, Page, command, flow, printable, words
from sgdoctor.report.words import action

MARGIN = 10  # "verified" and two spaces

_PLACEHOLDER = re.compile(r"\{([\w.]+)(?:\|[^{}]*)?\}")


def render(
    rule: Rule, facts: Mapping[str, str], *, file: str = "", width: int = 80, encoding: str = "utf-8"
) -> list[Line]:
    """Lay out the page of ``rule``; ``facts`` are the names its conditions read, with what each is."""
    page = _RulePage(width, encoding)
    case = rule.case if isinstance(rule.case, str) else ", ".join(rule.case)
    kind = f"{rule.impact}, confidence {rule.confidence}, case {case}"
    lines = flow(
        [
            (rule.code, "code"),
            ("", ""),
            (rule.severity, rule.severity),
            ("", ""),
            *page.words(rule.title, "title"),
        ],
        width,
    )
    lines += [*flow(page.words(f"{rule.name}: {kind}", "dim"), width), []]
    lines += [*page.section("says", _filled(rule.message)), []]
    lines += [*page.paragraphs("why", rule.why), []]
    lines += [*page.known_by(rule, facts), []]
    if rule.recommend:
        lines += [*page.recommended(rule), []]
    lines += page.section("releases", rule.releases or "all that are known")
    lines += page.section("verified", rule.verified)
    lines += page.listed("sources", rule.sources)
    lines += page.listed("cases", [f"{case.expect.replace('_', ' ')}: {case.name}" for case in rule.tests])
    if file:
        lines += page.section("file", file)
    return lines


class _RulePage(Page):
    def section(self, label: str, text: str, style: str = "") -> list[Line]:
        return flow(self.words(text, style), self.width, MARGIN, [(label, "label")])

    def listed(self, label: str, texts: Iterable[str]) -> list[Line]:
        lines: list[Line] = []
        for text in texts:
            opening = [("" if lines else label, "label")]
            lines += flow(self.words(text), self.width, MARGIN, opening, hang=2)
        return lines

    def paragraphs(self, label: str, text: str) -> list[Line]:
        lines: list[Line] = []
        for paragraph in re.split(r"\n\s*\n", text.strip()):
            lines += [[], *self.section("", paragraph)] if lines else self.section(label, paragraph)
        return lines

    def known_by(self, rule: Rule, facts: Mapping[str, str]) -> list[Line]:
        """Lay out the rule's conditions, and what the facts are that they read."""
        lines: list[Line] = []
        conditions = [("where", rule.applies), ("when", rule.when), ("log has", rule.match)]
        for label, condition in conditions:
            if condition is not None:
                lines += self.section(label, condition.strip(), "strong")
        gutter = MARGIN + 2 + max((len(name) for name in facts), default=0)
        for name, about in facts.items():
            if gutter + 24 <= self.width:
                opening = [(" " * MARGIN, ""), (name, "dim")]
                lines += flow(self.words(about, "dim"), self.width, gutter, opening)
            else:
                lines += self.section("", f"{name}: {about}", "dim")
        return lines

    def recommended(self, rule: Rule) -> list[Line]:
        lines: list[Line] = []
        for each in rule.recommend:
            label = [("" if lines else "do", "label")]
            said, is_command = action(each)
            said = printable(_filled(said), self.encoding)
            style = "" if each.do else "command"
            if is_command:
                lines += command(said, self.width, MARGIN, label)
            else:
                lines += flow(words(said, style), self.width, MARGIN, label, hang=2)
            if each.note:
                lines += flow(self.words(f"({_filled(each.note)})", "dim"), self.width, MARGIN + 2)
        return lines


def _filled(text: str) -> str:
    """Return ``text`` with its placeholders as names in angle brackets."""
    return _PLACEHOLDER.sub(lambda found: f"<{found.group(1)}>", text)
