"""The report as one HTML page, to be opened, mailed or kept: nothing in it is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sgdoctor.engine.model import Finding
from sgdoctor.facts import Excerpt
from sgdoctor.report import html_charts, view
from sgdoctor.report.header import header, joined
from sgdoctor.report.html_page import page
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Change, DeploymentReport, Report

_STYLE = """
:root { --error: #b3261e; --warning: #8a5300; --info: #14699a; --box: #f4f4f4; --mark: #ffe9b3; }
@media (prefers-color-scheme: dark) {
  :root { --error: #ff8a80; --warning: #f0b357; --info: #6fc1ea; --box: #242424; --mark: #4d3d0a; }
}
h2 { font-size: 1.15rem; line-height: 1.35; margin: 2rem 0 0.5rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; line-height: 1.45; margin: 0 0 0.5rem; overflow-wrap: anywhere; }
article { border-left: 4px solid var(--line); padding-left: 0.8rem; margin: 1.2rem 0; }
article.error { border-color: var(--error); }
article.warning { border-color: var(--warning); }
article.info { border-color: var(--info); }
.error > h3 > .severity { color: var(--error); }
.warning > h3 > .severity { color: var(--warning); }
.info > h3 > .severity { color: var(--info); }
pre { background: var(--box); padding: 0.5rem 0.7rem; margin: 0.3rem 0; white-space: pre-wrap; }
code, pre { font: 0.875rem/1.5 ui-monospace, monospace; }
code, pre { overflow-wrap: anywhere; }
.log .line { display: block; padding-left: 2.6rem; text-indent: -2.6rem; color: var(--dim); }
.log .number { display: inline-block; min-width: 2.1rem; text-align: right; }
.log .number { text-indent: 0; user-select: none; }
.log mark.line { background: var(--mark); color: inherit; font-weight: bold; }
ul { padding-left: 1.2rem; margin: 0.4rem 0; overflow-wrap: anywhere; }
details { margin: 0.5rem 0; }
summary { cursor: pointer; color: var(--dim); }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 0.4rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.8rem 0.25rem 0; overflow-wrap: anywhere; }
td:first-child { min-width: 8rem; }
th { font-weight: normal; color: var(--dim); }
thead th { border-bottom: 1px solid var(--line); }
@media (max-width: 36rem) {
  thead { display: none; }
  tr, td { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: 0.3rem 0; }
  td { padding: 0; }
  td[data-label]::before { content: attr(data-label); color: var(--dim); }
}
a { color: var(--info); }
"""

# Should a text ever come through as markup, it still runs and loads nothing.
_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def render(report: Report, *, verbose: bool = False) -> str:
    """Return ``report`` as an HTML page in ASCII: findings and evidence open, everything else folded."""
    alone = view.alone(report)
    found = view.found(report.summary)
    parts = [f"<h1>sgdoctor: {_text(found)}</h1>"]
    parts.append(f"<p>{_text(view.rest(report.summary))}. sgdoctor {_text(report.sgdoctor)}</p>")
    if not alone:
        parts.append(_overview(report))
    for number, deployment in enumerate(report.deployments, 1):
        title = _text(" · ".join(header(deployment, alone=alone)))
        parts.append(f'<section>\n<h2 id="d{number}">{title}</h2>')
        parts += _deployment(deployment, verbose=verbose)
        parts.append("</section>")
    if report.drift:
        parts.append(f"<section>\n<h2>What the servers differ in</h2>\n{_drift(report)}\n</section>")
    parts.append(_listed(_text(each) for each in report.notes))
    names = ", ".join(each.summary.model or each.name for each in report.deployments[:3])
    charts = any(each.series for each in report.deployments)
    style = f"{_STYLE}{html_charts.STYLE}" if charts else _STYLE
    made = page(printable(f"sgdoctor: {names}: {found}"), "\n".join(parts), style)
    made = made.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{_POLICY}', 1)
    return made.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _overview(report: Report) -> str:
    rows = []
    for number, each in enumerate(report.deployments, 1):
        counts = [
            str(sum(one.severity == severity and one.confidence != "low" for one in each.findings))
            for severity in ("error", "warning", "info")
        ]
        rows.append((f'<a href="#d{number}">{_text(each.name)}</a>', *counts, str(len(each.unknown))))
    return _table(("deployment", "errors", "warnings", "info", "undecided"), rows)


def _drift(report: Report) -> str:
    rows = [
        (_code(each.fact), _text(value), _text(names), _text(each.model or ""))
        for each in report.drift
        for value, names in view.differences(each)
    ]
    return _table(("fact", "value", "servers", "model"), rows)


def _deployment(deployment: DeploymentReport, *, verbose: bool) -> Iterator[str]:
    findings = view.findings(deployment, verbose=verbose)
    if not findings:
        yield f"<p>{_text(view.nothing_found(deployment))}</p>"
    yield from (_finding(each, deployment) for each in findings)
    if deployment.moved_from is not None:
        yield f"<h2>{_text(view.moved(deployment))}</h2>"
        yield from (_change(each) for each in view.changes(deployment, verbose=verbose))
    yield _watched(deployment)
    remarks = view.remarks(deployment)
    remarks += [f"{each.code} itself broke, which is a bug: {each.reason}" for each in deployment.broken]
    yield _listed(_text(each) for each in remarks)
    looked = [(_code(each.place), _text(each.state), _text(each.said)) for each in deployment.looked_at]
    yield _folded(f"Looked at: {len(looked)}", _table(("source", "understood", ""), looked), len(looked))
    if verbose:
        muted = [
            (each.finding.code, _text(each.finding.message), _text(view.accepted(each)))
            for each in deployment.suppressed
        ]
        yield _folded(f"Suppressed: {len(muted)}", _table(("rule", "", "because"), muted), len(muted))
    undecided = [
        (each.code, _text(each.title), _codes(each.missing), _text(each.reason), _codes(each.options))
        for each in deployment.unknown
    ]
    head = ("rule", "", "missing", "because", "given by any of")
    yield _folded(f"Could not be decided: {len(undecided)}", _table(head, undecided), len(undecided))
    conflicts = [
        (_code(each.fact), *(_text(f"{one.value} ({one.place})") for one in (each.kept, each.other)))
        for each in deployment.conflicts
    ]
    table = _table(("fact", "taken", "the other"), conflicts)
    yield _folded(f"Sources that disagree: {len(conflicts)}", table, len(conflicts))
    for said, codes in (("Passed", deployment.passed), ("Do not apply", deployment.not_applicable)):
        yield _folded(f"{said}: {len(codes)}", f"<p>{_text(', '.join(codes))}</p>", len(codes))


def _watched(deployment: DeploymentReport) -> str:
    """Return what was measured while the server was watched: charts, and their numbers in a table."""
    if not deployment.series:
        return ""
    places = dict.fromkeys(each.place for each in deployment.series)
    read = f"<p>Read in {', '.join(_code(place) for place in places)}.</p>"
    numbers = [tuple(_text(cell) for cell in row) for row in html_charts.rows(deployment.series)]
    table = _table(("", "first", "least", "most", "last"), numbers)
    charts = html_charts.figures(deployment.series)
    return f'<h2>While it was watched</h2>\n{read}\n{charts}\n<div class="numbers">\n{table}\n</div>'


def _finding(finding: Finding, deployment: DeploymentReport) -> str:
    parts = [_opening(finding.severity, finding.code, view.message(finding)), "<ul>"]
    for step in view.steps(finding, deployment):
        do = f"<pre>{_text(step.text)}</pre>" if step.is_command else _text(step.text)
        parts.append(f"<li>{do}{f' ({_text(step.note)})' if step.note else ''}</li>")
    parts.append("</ul>")
    reads = view.reads(finding)
    rows = [(_code(each.place), _text(each.said), _code(each.exact)) for each in reads if not each.is_line]
    parts.append("<details open><summary>Known from</summary>")
    if rows:
        parts.append(_table(("read in", "", "fact"), rows))
    around = {each.place: each for each in view.excerpts(finding, deployment)}
    times = {each.place: each.times for each in reads if each.is_line}
    parts += [
        f"{_code(each.place)}\n<pre>{_text(each.said)}</pre>"
        for each in reads
        if each.is_line and each.place not in around
    ]
    parts += [f"{_code(place)}{times.get(place, '')}\n{_excerpt(each)}" for place, each in around.items()]
    parts.append("</details>")
    why = (
        f"<p>{_text(' '.join(finding.why.split()))}</p>\n{_listed(_source(each) for each in finding.sources)}"
    )
    parts.append(_folded(f"Why: {finding.title}", why))
    return "\n".join([*parts, "</article>"])


def _excerpt(excerpt: Excerpt) -> str:
    """Return lines of a log with their numbers, the one that counts marked."""
    lines = []
    for number, text in excerpt.lines:
        tag = "mark" if number == excerpt.line else "span"
        lines.append(f'<{tag} class="line"><span class="number">{number}</span> {_text(text)}</{tag}>')
    return f'<pre class="log">{"".join(lines)}</pre>'


def _change(change: Change) -> str:
    do = _listed([_text(change.do)] if change.do else [])
    return f"{_opening(change.severity, change.subject, change.message)}\n{do}\n</article>"


def _opening(severity: str, code: str, message: str) -> str:
    return (
        f'<article class="{severity}">\n<h3><span class="severity">{severity}</span> '
        f"<code>{_text(code)}</code> {_text(message)}</h3>"
    )


def _source(source: str) -> str:
    return (
        f'<a href="{_text(source)}">{_text(source)}</a>' if source.startswith("https://") else _code(source)
    )


def _folded(title: str, inside: str, count: int = 1) -> str:
    """Return what is shown when asked for; nothing when there is nothing."""
    return f"<details><summary>{_text(title)}</summary>\n{inside}\n</details>" if count else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{each}</th>' for each in head)
    labels = [f' data-label="{each}: "' if each else "" for each in head]
    body = "\n".join(
        f"<tr>{''.join(f'<td{label}>{cell}</td>' for label, cell in zip(labels, row, strict=True))}</tr>"
        for row in rows
    )
    table = f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="table">{table}</div>'


def _listed(items: Iterable[str]) -> str:
    lines = [f"<li>{each}</li>" for each in items]
    return "\n".join(["<ul>", *lines, "</ul>"]) if lines else ""


def _codes(texts: Sequence[str]) -> str:
    return joined([_code(each) for each in texts], "or") if texts else ""


def _code(text: str) -> str:
    return f"<code>{_text(text)}</code>"


def _text(text: str) -> str:
    return escape(printable(text))
