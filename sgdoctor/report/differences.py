"""What changed between two recordings, for the terminal: worst first, a line or two each."""

from __future__ import annotations

import re

from sgdoctor.compare.model import Diff, Difference, Side, Totals
from sgdoctor.report.layout import NARROWEST, Line, Page, Span, flow, printable, words
from sgdoctor.report.words import bare

MARGIN = 9  # "changed" and two spaces
DETAIL = 15  # where the text behind "with" starts

# What a verdict looks like, in the styles of sgdoctor.report.colour.
_STYLES = {"worse": "warning", "changed": "info", "better": "ok"}
_CLAUSE = re.compile(r"[:;.](?=\s)")
# Kinds of which it is worth saying that nothing is known to have a part in them.
_HAVE_CAUSES = ("capacity", "graphs", "config")


def render(diff: Diff, *, width: int = 80, verbose: bool = False, encoding: str = "utf-8") -> list[Line]:
    """Lay ``diff`` out at ``width`` columns, in characters that ``encoding`` has.

    ``verbose``: what is minor, and the notes of each file, too.
    """
    page = _DiffPage(max(width, NARROWEST), encoding)
    lines = page.title(diff)
    shown = [each for each in diff.differences if verbose or not each.minor]
    blocks = [line for each in shown for line in page.difference(each)] or page.nothing(diff)
    lines += [[], *blocks]
    notes = [*diff.notes, *(f"{each.code} broke, which is a bug: {each.reason}" for each in diff.broken)]
    if verbose:
        notes += [f"{side.file}: {note}" for side in (diff.before, diff.after) for note in side.notes]
    if notes:
        lines.append([])
    for note in notes:
        lines += page.entry("note", "note", page.words(note))
    return [*lines, [], *page.totals(diff, verbose=verbose)]


class _DiffPage(Page):
    def entry(self, label: str, style: str, pieces: list[Span]) -> list[Line]:
        return flow(pieces, self.width, MARGIN, [(label, style)])

    def title(self, diff: Diff) -> list[Line]:
        """Lay out what the two are; in one line where both say the same of themselves."""
        before, after = _described(diff.before), _described(diff.after)
        if before == after:
            files = f"{diff.before.file} to {diff.after.file}"
            return flow(self.words(" · ".join([files, *before]), "title"), self.width, hang=2)
        lines: list[Line] = []
        for word, side, parts in (("from", diff.before, before), ("to", diff.after, after)):
            told = " · ".join([side.file, *parts])
            lines += flow(self.words(told, "title"), self.width, 5, [(word, "label")], hang=2)
        return lines

    def difference(self, each: Difference) -> list[Line]:
        message = printable(each.message, self.encoding)
        clause = _CLAUSE.search(message)
        end = clause.end() if clause else len(message)
        style = "strong" if each.verdict == "worse" else ""
        pieces = words(message[:end], style) + words(message[end:])
        lines = self.entry(each.verdict, _STYLES[each.verdict], pieces)
        told = list(each.together_with)
        if not told and each.verdict == "worse" and each.kind in _HAVE_CAUSES:
            told = ["no change that is known to have a part in it"]
        for number, cause in enumerate(told):
            label: list[Span] = [(" " * MARGIN, ""), ("" if number else "with", "label")]
            lines += flow(self.words(cause), self.width, DETAIL, label, hang=2)
        return lines

    def nothing(self, diff: Diff) -> list[Line]:
        if not diff.totals.compared:
            return self.entry("unknown", "unknown", self.words("The two tell nothing that can be compared."))
        return self.entry(
            "same", "ok", self.words(f"Nothing changed in {diff.totals.compared} facts that both tell.")
        )

    def totals(self, diff: Diff, *, verbose: bool) -> list[Line]:
        totals = diff.totals
        told = f"{totals.worse} worse, {totals.changed} changed, {totals.better} better."
        if totals.minor:
            told += f" {_minor(totals, diff.tolerance)}{'' if verbose else ', with -v'}."
        return flow(self.words(told), self.width)


def _minor(totals: Totals, tolerance: float) -> str:
    return f"{totals.minor} more within {tolerance:g}% or for completeness"


def _described(side: Side) -> list[str]:
    """Return what a deployment is, in the parts of a title."""
    summary = side.summary
    parts = [summary.model] if summary.model else []
    if summary.sglang:
        parts.append(f"SGLang {summary.sglang}")
    for gpus in summary.gpus:
        number = f"{gpus.count} x " if gpus.count > 1 else ""
        parts.append(f"{number}{bare(gpus.name)}")
    return parts + [f"{name.upper()} {size}" for name, size in summary.parallel.items()]
