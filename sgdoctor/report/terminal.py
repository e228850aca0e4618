"""The report for a terminal: each deployment with what is wrong, how it is known and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from sgdoctor.engine.model import Evidence, Finding, Recommendation
from sgdoctor.facts import NOT_ASKED, Excerpt
from sgdoctor.report import changes, drift, view
from sgdoctor.report.header import deciding, header, joined, looked
from sgdoctor.report.layout import NARROWEST, Line, Page, Span, columns, command, flow, printable, words
from sgdoctor.report.model import DeploymentReport, Report, Summary, Suppressed, UndecidedRule
from sgdoctor.report.view import nothing_found, remarks
from sgdoctor.report.words import FIRST, QUIET, action, is_absence, literal, phrase

MARGIN = 9  # "warning" and two spaces
DETAIL = 21  # where the text behind "known from" and "do" starts
MOST_PLACES = 4
MOST_PLACE = 34
MOST_PHRASES = 3

# What the eye should catch first: a message up to the end of its first clause.
_CLAUSE = re.compile(r"[:;.](?=\s)")


def render(
    report: Report,
    *,
    width: int = 80,
    verbose: bool = False,
    encoding: str = "utf-8",
    severities: Iterable[str] = (),
) -> list[Line]:
    """Lay ``report`` out at ``width`` columns, in characters that ``encoding`` has.

    ``severities`` are the codes and names of rules to which the report's settings give another severity;
    ``verbose`` says so at their findings.

    :func:`sgdoctor.report.layout.plain` and :func:`sgdoctor.report.colour.painted` write the lines.
    """
    page = _ReportPage(max(width, NARROWEST), encoding, verbose=verbose, alone=len(report.deployments) == 1)
    page.severities = {name: report.settings for name in severities if verbose and report.settings}
    blocks = [page.deployment(each) for each in report.deployments]
    if not blocks:
        blocks = [page.entry("unknown", "unknown", "No deployment and no installation was found.")]
    blocks += [page.settings(report)] if report.notes or (verbose and report.settings) else []
    differ = drift.lay_out(report, width=page.width, encoding=encoding, verbose=verbose)
    return _separated([*blocks, *([differ] if differ else []), page.totals(report)])


class _ReportPage(Page):
    """Lays out one report."""

    def __init__(self, width: int, encoding: str, *, verbose: bool, alone: bool = True) -> None:
        super().__init__(width, encoding)
        self.verbose = verbose
        self.alone = alone
        self.severities: dict[
            str, str
        ] = {}  # rules whose severity is not their own, and the file that set it

    def name(self, text: str) -> str:
        """Return a name as it can be shown on one line, its spaces kept."""
        return printable(text, self.encoding).replace("\n", "\\n").replace("\t", "\\t")

    def entry(self, label: str, style: str, text: str | list[Span]) -> list[Line]:
        """Lay out a paragraph with a word in the margin."""
        pieces = self.words(text) if isinstance(text, str) else text
        return flow(pieces, self.width, MARGIN, [(label, style)])

    def detail(self, label: str, pieces: list[Span], *, hang: int = 0) -> list[Line]:
        """Lay out a paragraph that belongs to the entry above it."""
        return flow(pieces, self.width, DETAIL, [(" " * MARGIN, ""), (label, "label")], hang=hang)

    # --- a deployment ---------------------------------------------------------------------------------

    def deployment(self, deployment: DeploymentReport) -> list[Line]:
        shown = [each for each in deployment.findings if self.verbose or each.confidence != "low"]
        notes = self.notes(deployment)
        moves = changes.lay_out(deployment, width=self.width, encoding=self.encoding, verbose=self.verbose)
        if not (shown or notes or moves or self.verbose) and deployment.decided and deployment.understood:
            return self.healthy(deployment)
        blocks = [self.title(deployment)]
        blocks += [moves] if moves else []
        blocks += [self.finding(each, deployment) for each in shown]
        blocks += [self.suppressed(each) for each in deployment.suppressed] if self.verbose else []
        if not shown:
            blocks.append(self.nothing_found(deployment) + notes)
        elif notes:
            blocks.append(notes)
        if self.verbose and deployment.unknown:
            blocks.append(self.undecided(deployment.unknown))
        return _separated(blocks)

    def title(self, deployment: DeploymentReport) -> list[Line]:
        separator = printable(" · ", self.encoding)
        lines: list[str] = []
        for part in (printable(each, self.encoding) for each in header(deployment, alone=self.alone)):
            if lines and columns(lines[-1] + separator + part) <= self.width - 2:
                lines[-1] += separator + part
            else:
                lines.append(part)
        title: list[Line] = []
        for line in lines:
            title += flow(words(line, "title"), self.width, 2 if title else 0)
        read = looked(deployment)
        if self.verbose and read:
            title += flow(self.words(f"looked at {read}", "dim"), self.width, 2)
        return title

    def healthy(self, deployment: DeploymentReport) -> list[Line]:
        title = printable(" · ".join(header(deployment, alone=self.alone)), self.encoding)
        said = f"{_nothing(deployment)} found in {looked(deployment)}.{_left_open(deployment)}"
        label, style = _verdict(deployment)
        return self.entry(label, style, [*words(f"{title}:", "title"), *self.words(said)])

    def nothing_found(self, deployment: DeploymentReport) -> list[Line]:
        sure = deployment.decided and deployment.understood and not deployment.broken
        label, style = _verdict(deployment) if sure else ("unknown", "unknown")
        read = looked(deployment)
        nothing = _nothing(deployment).capitalize()
        if self.verbose or not read:  # the title says what was looked at
            said = nothing_found(deployment)
        elif not deployment.decided:
            said = f"Nothing could be decided from {read}."
        elif deployment.broken:
            said = f"{nothing} found in {read}, but not every rule worked."
        elif deployment.understood:
            said = f"{nothing} found in {read}.{_left_open(deployment)}"
        else:
            said = f"{nothing} found in what could be read: {read}."
        return self.entry(label, style, said)

    def notes(self, deployment: DeploymentReport) -> list[Line]:
        """Lay out what was not understood, what broke and, when asked for more, who disagrees."""
        said = remarks(deployment)
        if self.verbose:
            said += [
                f"{each.kept.place} says {phrase(each.fact, each.kept.value)}, {each.other.place} says "
                f"{phrase(each.fact, each.other.value)}: the first is taken."
                for each in deployment.conflicts
            ]
        lines = list(chain.from_iterable(self.entry("note", "note", each) for each in said))
        for broken in deployment.broken:
            reason = f"This rule itself broke, which is a bug: {broken.reason}"
            lines += self.entry("broken", "error", [(broken.code, "code"), ("", ""), *self.words(reason)])
        return lines

    # --- a finding ------------------------------------------------------------------------------------

    def finding(self, finding: Finding, deployment: DeploymentReport) -> list[Line]:
        cause = deployment.consequences.get(finding.code)
        message = printable(finding.message, self.encoding)
        clause = _CLAUSE.search(message)
        end = clause.end() if clause else len(message)
        pieces = words(message[:end], "strong") + words(message[end:])
        if finding.confidence == "low":
            pieces += words("(only suspected)", "dim")
        label = [(finding.severity.ljust(MARGIN), finding.severity), (finding.code, "code"), (" ", "")]
        lines = flow(pieces, self.width, MARGIN, label)
        set_by = self.severities.get(finding.code) or self.severities.get(finding.name)
        if set_by:
            lines += self.detail("severity", self.words(f"set by {set_by}"))
        around = view.excerpts(finding, deployment) if self.verbose else []
        lines += self.known_from(finding.evidence, {each.place: each for each in around})
        if cause:
            return lines + self.detail("do", self.words(f"what {cause} says: this follows from it"))
        for number, recommendation in enumerate(finding.recommendation):
            lines += self.action(recommendation, "" if number else "do")
        return lines

    def suppressed(self, muted: Suppressed) -> list[Line]:
        """Lay out a finding that the settings suppress, with the reason instead of what to do."""
        until = f" (until {muted.until})" if muted.until else ""
        lines = self.entry(
            "off", "note", [(muted.finding.code, "code"), ("", ""), *self.words(muted.finding.message)]
        )
        return lines + self.detail("suppressed", self.words(f"{muted.reason}{until}"))

    def known_from(self, evidence: list[Evidence], around: Mapping[str, Excerpt]) -> list[Line]:
        """Lay out where the finding's facts were read, a place a line, and what was read there.

        ``around`` are the lines of logs to be shown below their places.
        """
        said_at = _in_full(evidence) if self.verbose else _in_short(evidence)
        items = {self.name(place): said for place, said in said_at.items()}
        excerpts = {self.name(place): each for place, each in around.items()}
        widest = 0 if self.verbose else min(MOST_PLACE, (self.width - DETAIL) * 3 // 5)
        gutter = 2 + max((columns(place) for place in items if columns(place) <= widest), default=0)
        lines: list[Line] = []
        for place, said in items.items():
            label = "" if lines else "known from"
            if columns(place) <= widest:
                opening = [(" " * MARGIN, ""), (label.ljust(DETAIL - MARGIN), "label"), (place, "place")]
                lines += flow(self.words(said), self.width, DETAIL + gutter, opening)
            else:
                lines += self.detail(label, self.words(place, "place"))
                lines += flow(self.words(said), self.width, DETAIL + 2)
            if place in excerpts:
                lines += self.excerpt(excerpts[place])
        return lines

    def excerpt(self, excerpt: Excerpt) -> list[Line]:
        """Lay out lines of a log with their numbers, the one that counts marked."""
        lines: list[Line] = []
        gutter = len(str(max(number for number, _ in excerpt.lines)))
        for number, text in excerpt.lines:
            counts = number == excerpt.line
            style = "strong" if counts else "dim"
            indent = min(len(text) - len(text.lstrip()), 8)
            opening = f"{' ' * DETAIL}{'>' if counts else ' '} {number:{gutter}}  {' ' * indent}"
            lines += flow(self.words(text, style), self.width, len(opening), [(opening, style)])
        return lines

    def action(self, recommendation: Recommendation, label: str) -> list[Line]:
        said, is_command = action(recommendation)
        said = printable(said, self.encoding)
        note = self.words(f"({recommendation.note})", "dim") if recommendation.note else []
        if not is_command:
            return self.detail(label, words(said, "" if recommendation.do else "command") + note, hang=2)
        lines = command(said, self.width, DETAIL, [(" " * MARGIN, ""), (label, "label")])
        return lines + (flow(note, self.width, DETAIL + 2) if note else [])

    def undecided(self, rules: list[UndecidedRule]) -> list[Line]:
        """Lay out the rules that were not decided, with what they lack and which option gives it."""
        lines: list[Line] = []
        for rule in rules:
            lines += self.entry(
                "unknown", "unknown", [(rule.code, "code"), ("", ""), *self.words(rule.title)]
            )
            lacks = f"{', '.join(rule.missing)}{'' if rule.reason == NOT_ASKED else f': {rule.reason}'}"
            options = words(f"({joined(rule.options, 'or')})", "command") if rule.options else []
            lines += self.detail("missing", self.words(lacks) + options)
        return lines

    # --- the last line --------------------------------------------------------------------------------

    def settings(self, report: Report) -> list[Line]:
        """Lay out what is to be said of the settings."""
        followed = [f"settings of {report.settings}"] if self.verbose and report.settings else []
        return list(
            chain.from_iterable(self.entry("note", "note", each) for each in [*followed, *report.notes])
        )

    def totals(self, report: Report) -> list[Line]:
        summary = report.summary
        pieces = [*self.counts(summary), ("", "")]
        told = [f"{_number(summary.passed, 'rule')} passed"]
        most, options = deciding([rule for each in report.deployments for rule in each.unknown])
        if summary.unknown:
            part = "all" if most == summary.unknown else f"{most} of them"
            way = f" ({part} with {joined(options, 'or')})" if most else ""
            told.append(f"{summary.unknown} could not be decided{way}")
        if summary.not_applicable:
            told.append(f"{summary.not_applicable} do{'es' if summary.not_applicable == 1 else ''} not apply")
        rest = f"{', '.join(told)}."
        pieces += self.words(rest)
        codes = [finding.code for each in report.deployments for finding in each.findings]
        if codes:
            pieces += [("", ""), (f"sgdoctor explain {codes[0]}", "command")]
        return flow(pieces, self.width)

    def counts(self, summary: Summary) -> list[Span]:
        """Return the number of findings of each severity, those that are there in its colour."""
        counted = [
            (_number(summary.errors, "error"), "error" if summary.errors else ""),
            (_number(summary.warnings, "warning"), "warning" if summary.warnings else ""),
            (f"{summary.infos} info", "info" if summary.infos else ""),
        ]
        if summary.low_confidence:
            counted.append((f"{summary.low_confidence} only suspected{'' if self.verbose else ' (-v)'}", ""))
        if summary.suppressed:
            counted.append((f"{summary.suppressed} suppressed{'' if self.verbose else ' (-v)'}", ""))
        if summary.in_baseline:
            counted.append((f"{summary.in_baseline} in the baseline", ""))
        if summary.broken:
            counted.append((f"{_number(summary.broken, 'rule')} broken", "error"))
        *head, (last, style) = counted
        pieces = [piece for said, style in head for piece in words(f"{said},", style)]
        return pieces + words(f"{last}.", style)


def counted(summary: Summary) -> str:
    """Return the number of findings of each severity, in words."""
    return " ".join(word for word, _ in _ReportPage(NARROWEST, "utf-8", verbose=True).counts(summary))


def _by_place(evidence: list[Evidence]) -> dict[str, list[Evidence]]:
    """Group evidence by where it was read; what was worked out from other facts names these as its place."""
    places: dict[str, list[Evidence]] = {}
    for each in evidence:
        worked_out = f"worked out from {each.place}" if each.place else "worked out"
        place = worked_out if each.source == "derived" else each.place
        places.setdefault(place, []).append(each)
    return places


def _in_short(evidence: list[Evidence]) -> dict[str, str]:
    """Return the places to go to and, in a few words, what stands there."""
    places = _by_place(_telling(evidence))
    items = {}
    for place, facts in list(places.items())[:MOST_PLACES]:
        said = list(dict.fromkeys(phrase(each.fact, each.value) for each in facts))
        if len(said) > MOST_PHRASES + 1:
            said[MOST_PHRASES:] = [f"{len(said) - MOST_PHRASES} more"]
        items[place] = ", ".join(said) + _times(max(each.count for each in facts))
    if len(places) > MOST_PLACES:
        items["..."] = f"{len(places) - MOST_PLACES} more with -v"
    return items


def _telling(evidence: list[Evidence]) -> list[Evidence]:
    """Return the evidence that is worth its place; of much, what tells most comes first."""
    told = [each for each in evidence if each.place and each.source != "derived"] or evidence
    told = [each for each in told if each.fact not in QUIET] or told
    present = [each for each in told if not is_absence(each.fact, each.value)]
    told = present if len(present) > MOST_PHRASES else told
    return sorted(told, key=lambda each: each.fact not in FIRST) if len(told) > MOST_PLACES else told


def _in_full(evidence: list[Evidence]) -> dict[str, str]:
    """Return every place with every fact that was read there, by the names that rules use."""
    return {
        place: ", ".join(f"{each.fact} = {literal(each.value)}{_times(each.count)}" for each in facts)
        for place, facts in _by_place(evidence).items()
    }


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _verdict(deployment: DeploymentReport) -> tuple[str, str]:
    """Return the word for a deployment without findings, and its style: no all-clear where most is open."""
    return ("ok", "ok") if len(deployment.passed) >= len(deployment.unknown) else ("so far", "note")


def _nothing(deployment: DeploymentReport) -> str:
    return "nothing more" if deployment.suppressed or deployment.in_baseline else "nothing"


def _left_open(deployment: DeploymentReport) -> str:
    number = len(deployment.unknown)
    return f" {_number(number, 'rule')} could not be decided from that." if number else ""


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _separated(blocks: Iterable[list[Line]]) -> list[Line]:
    lines: list[Line] = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return lines
