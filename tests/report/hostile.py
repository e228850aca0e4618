"""Reports whose every text is arbitrary: what no format may stumble over."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from sgdoctor.engine.model import Evidence, Recommendation
from sgdoctor.facts import Excerpt, Series
from sgdoctor.report.model import (
    Broken,
    Change,
    Disagreement,
    Drift,
    Looked,
    Reading,
    Report,
    Suppressed,
    UndecidedRule,
)

from .conftest import make_deployment, make_finding

BREAKERS = [
    "]]>",
    "<!--",
    "--><script>alert(1)</script>",
    "</pre></details>",
    "::error::",
    "\n::stop-commands::x",
    "##[set-env]",
    "a|b",
    "\\|",
    "`",
    "```\n",
    "\n| --- | --- |\n",
    "[text](1)",
    "{0}",
    "%0A",
    "&amp;",
    "\x1b[31m",
    "\x00",
    "\udcff",
    "\ufffe",
    "\u2028",
    "\r\n",
    '"',
    "'",
    "@everyone",
    "#1",
    "*_~$x$",
    "https://example.org/a_b|c",
    "file:///etc/passwd",
    "../x y:3",
    "C:\\x",
    "- ",
    "1. ",
]

texts = st.lists(st.one_of(st.sampled_from(BREAKERS), st.text(max_size=8)), min_size=1, max_size=4).map(
    "".join
)


@st.composite
def reports(draw):
    """Return a report with one deployment that has everything, and a second whose texts are others."""
    made = Report.of([_deployment(draw), _deployment(draw)], notes=[draw(texts)])
    drift = Drift(draw(texts), draw(texts), {draw(texts): [draw(texts)], "another": [draw(texts)]})
    return msgspec.structs.replace(made, drift=[drift])


def _deployment(draw):
    def text():
        return draw(texts)

    place = text()
    evidence = [
        Evidence("log.match", text(), "log", place),
        Evidence("arg.host", text(), draw(st.sampled_from(["launch", "model", "http"])), text(), count=2),
        Evidence("moe.up.source", text(), "derived", text()),
    ]
    steps = [Recommendation(run=text(), note=text()), Recommendation(do=text())]
    finding = make_finding(
        message=text(), title=text(), evidence=evidence, recommendation=steps, why=text(), sources=[text()]
    )
    change = Change(
        kind="flag-gone",
        subject=text(),
        before=text(),
        after=None,
        release="0.5.20",
        severity="error",
        message=text(),
        do=text(),
    )
    reading = Reading(text(), "log", text())
    return make_deployment(
        name=text(),
        suppressed=[Suppressed(make_finding("ARG109", message=text()), text(), "2027-01-31")],
        in_baseline=["SEC101"],
        findings=[finding, make_finding("RUN190", severity="info", message=text())],
        unknown=[UndecidedRule("MEM103", text(), [text()], text(), ["--log"])],
        broken=[Broken("MEM101", text())],
        looked_at=[Looked("log", text(), "partly", text()), Looked("launch", text())],
        notes=[text()],
        conflicts=[Disagreement("triton.version", reading, reading)],
        excerpts=[Excerpt(place, 8, [(7, text()), (8, text()), (9, text())])],
        series=[Series("queued_requests", text(), text(), [(0.0, 1.0), (2.0, 3.0)])],
        moved_from=text(),
        changes=[change],
    )
