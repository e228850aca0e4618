"""The report as Markdown for an issue or a pull request, as GitHub and GitLab show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sgdoctor.engine.model import Finding
from sgdoctor.report import view
from sgdoctor.report.header import header
from sgdoctor.report.layout import printable
from sgdoctor.report.model import DeploymentReport, Report
from sgdoctor.report.view import Step

BAR = "&#124;"  # "\\|" would end a table's cell where a backslash comes before it

_URL = re.compile(r"https?://[^\s<>|\\^`{}\"\[\]]*[^\s<>|\\^`{}\"\[\].,:;!?')(*_~]")
_SPECIAL = re.compile(r"[\\`*_\[\]<>~&$#]")
# "@name", "#12" and "GH-12" would call people in and link to issues, although they are no Markdown.
_CALL = re.compile(r"(?<!\w)@(?=\w)|(?<!&)#(?=\d)|(?i:\bgh-)(?=\d)")
_OPENING = re.compile(r"\A(\d*)([-+.)=])")


def render(report: Report, *, verbose: bool = False) -> str:
    """Return ``report`` as Markdown: a table of the findings a deployment, the evidence folded below it."""
    alone = view.alone(report)
    blocks = [f"## sgdoctor: {view.found(report.summary)}"]
    for deployment in report.deployments:
        blocks += _deployment(deployment, alone=alone, verbose=verbose)
    if report.drift:
        rows = (
            (prose(each.fact), prose(value), prose(names), prose(each.model or ""))
            for each in report.drift
            for value, names in view.differences(each)
        )
        blocks += ["### What the servers differ in", _table(("", "value", "servers", "model"), rows)]
    if report.notes:
        blocks.append("\n".join(f"- {_paragraph(each)}" for each in report.notes))
    blocks.append(f"{view.rest(report.summary)}. sgdoctor {prose(report.sgdoctor)}")
    return "\n\n".join(blocks) + "\n"


def _deployment(deployment: DeploymentReport, *, alone: bool, verbose: bool) -> Iterator[str]:
    yield f"### {prose(' · '.join(header(deployment, alone=alone)))}"
    findings = view.findings(deployment, verbose=verbose)
    if findings:
        yield _table(
            ("", "rule", "what is wrong", "what to do"), (_row(each, deployment) for each in findings)
        )
    else:
        yield view.nothing_found(deployment)
    changes = view.changes(deployment, verbose=verbose)
    if deployment.moved_from is not None:
        yield f"{prose(view.moved(deployment))}:"
        yield _table(
            ("", "what changes", "what to do"),
            ((f"**{each.severity}**", prose(each.message), prose(each.do or "")) for each in changes),
        )
    remarks = [_paragraph(each) for each in view.remarks(deployment)]
    remarks += [f"{each.code} itself broke, a bug: {prose(each.reason)}" for each in deployment.broken]
    if remarks:
        yield "\n".join(f"- {each}" for each in remarks)
    for finding in findings:
        yield _evidence(finding)
    if deployment.suppressed and verbose:
        muted = (
            (each.finding.code, prose(each.finding.message), prose(view.accepted(each)))
            for each in deployment.suppressed
        )
        table = _table(("rule", "what is wrong", "suppressed, because"), muted)
        yield _folded(f"Suppressed: {len(deployment.suppressed)}", table)
    if deployment.unknown:
        undecided = (
            (each.code, prose(each.title), _codes(each.missing), _codes(each.options))
            for each in deployment.unknown
        )
        table = _table(("rule", "", "missing", "given by any of"), undecided)
        yield _folded(f"Could not be decided: {len(deployment.unknown)}", table)
    if deployment.looked_at:
        rows = ((code(each.place), prose(each.said or each.state)) for each in deployment.looked_at)
        yield _folded(f"Looked at: {len(deployment.looked_at)}", _table(("source", ""), rows))


def _row(finding: Finding, deployment: DeploymentReport) -> tuple[str, ...]:
    steps = "<br>".join(_step(each) for each in view.steps(finding, deployment))
    return f"**{finding.severity}**", finding.code, prose(view.message(finding)), steps


def _step(step: Step) -> str:
    text = code(step.text) if step.is_command else prose(step.text)
    return f"{text} ({prose(step.note)})" if step.note else text


def _evidence(finding: Finding) -> str:
    rows = (
        (code(each.place), prose(each.said), code(each.exact))
        for each in view.reads(finding)
        if not each.is_line
    )
    lines = [each for each in view.reads(finding) if each.is_line]
    blocks = [_table(("read in", "", "fact"), rows)] if len(lines) < len(finding.evidence) else []
    blocks += [f"{code(each.place)}:\n\n{_fenced(each.said)}" for each in lines]
    blocks.append(_paragraph(finding.why))
    blocks.append("\n".join(f"- {_paragraph(each)}" for each in finding.sources))
    return _folded(f"{finding.code}: {finding.title}", "\n\n".join(blocks))


def _folded(title: str, inside: str) -> str:
    title = printable(" ".join(title.split()))  # a line that ends would end the tag's block
    return f"<details><summary>{_calm(escape(title))}</summary>\n\n{inside}\n\n</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def prose(text: str) -> str:
    """Return ``text`` as one line of Markdown that shows it as it is; URLs become links."""
    text = printable(" ".join(text.split()))
    parts, end = [], 0
    for url in _URL.finditer(text):
        parts += [_plain(text[end : url.start()]), f"<{url.group()}>"]
        end = url.end()
    return "".join([*parts, _plain(text[end:])])


def _paragraph(text: str) -> str:
    """Return ``text`` as a paragraph that is no list, whatever it begins with."""
    return _OPENING.sub(r"\1\\\2", prose(text))


def _plain(text: str) -> str:
    return _calm(_SPECIAL.sub(r"\\\g<0>", text)).replace("|", BAR)


def _calm(text: str) -> str:
    return _CALL.sub(r"\g<0><!-- -->", text)


def code(text: str) -> str:
    """Return ``text`` as a code span that may stand in a table."""
    text = printable(" ".join(text.split()))
    if "|" in text or not text:
        return f"<code>{_plain(text)}</code>"
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(code(each) for each in texts)


def _fenced(text: str) -> str:
    text = printable(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
