"""Markdown, read by a Markdown parser: what was text is text again, in as many cells as there should be."""

from __future__ import annotations

import re

from hypothesis import given, settings
from markdown_it import MarkdownIt

from sgdoctor.engine.model import Evidence
from sgdoctor.report import markdown
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Report

from .hostile import reports, texts

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OWN_HTML = re.compile(r"</?(?:details|summary|br|code)>|<!-- -->")
FOLDS = re.compile(r"<details><summary>[^\n<]*(?:<!-- -->[^\n<]*)*</summary>|</details>")


def shown(tokens):
    """Return the text of inline tokens as a reader sees it."""
    return "".join(
        each.content if each.type in ("text", "code_inline") else "\n" if each.content == "<br>" else ""
        for each in tokens
    )


def tables(text):
    """Return the tables of a page: lists of rows, which are lists of cells."""
    found, inside = [], False
    for token in PARSER.parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            inside = True
        elif token.type == "inline" and inside:
            found[-1][-1].append(shown(token.children or []))
            inside = False
    return found


def one_line(text):
    return printable(" ".join(text.split()))


def test_a_table_of_findings_with_their_evidence_folded_below(scenario):
    text = markdown.render(Report.of([scenario]))
    findings, *_ = tables(text)
    assert [row[:2] for row in findings] == [
        ["", "rule"],
        ["warning", "SEC101"],
        ["warning", "ARG103"],
        ["warning", "CFG101"],
        ["info", "ENV102"],
    ]
    assert findings[4][3] == "pip install torch==2.9.1"
    assert text.startswith("## sgdoctor: 0 errors, 3 warnings, 1 info")
    assert "<details><summary>ARG103: A rule</summary>" in text
    assert "<details><summary>Could not be decided: 15</summary>" in text


def test_a_log_line_stands_as_it_is(finding, deployment):
    line = "RuntimeError: ``` | <b>\nTry *this*"
    found = finding(evidence=[Evidence("log.match", line, "log", "server.log:65")])
    fences = [
        token.content
        for token in PARSER.parse(markdown.render(Report.of([deployment(findings=[found])])))
        if token.type == "fence"
    ]
    assert fences == [f"{line}\n"]


def test_nobody_is_called_and_no_issue_is_linked():
    """GitHub does both for text that is no Markdown at all, outside of code."""
    assert markdown.prose("@everyone see #12, gh-3") == "@<!-- -->everyone see \\#<!-- -->12, gh-<!-- -->3"
    assert markdown.prose("user@host") == "user@host"


def test_an_address_becomes_a_link():
    [paragraph] = [each for each in PARSER.parse(markdown.prose("see https://x.org/a_b_c.")) if each.children]
    [link] = [each for each in paragraph.children if each.type == "link_open"]
    assert link.attrs["href"] == "https://x.org/a_b_c"


@settings(max_examples=200, deadline=None)
@given(texts)
def test_any_text_in_a_cell_is_read_back(text):
    table = f"| a | b | c |\n| --- | --- | --- |\n| {markdown.prose(text)} | {markdown.code(text)} | end |"
    [[_, row]] = tables(table)
    assert len(row) == 3
    assert row[0].strip() == one_line(text).strip()
    assert row[1].strip() == one_line(text).strip()
    assert row[2] == "end"


@settings(max_examples=30, deadline=None)
@given(reports())
def test_any_report_has_its_tables_and_only_its_own_html(report):
    text = markdown.render(report)
    found = tables(text)
    first = [table for table in found if table[0][:2] == ["", "rule"]]
    assert [len(table) for table in first] == [3, 3]
    assert all(len(row) == len(table[0]) for table in found for row in table)
    for table, deployment in zip(first, report.deployments, strict=True):
        assert [row[2].strip() for row in table[1:]] == [
            one_line(each.message) for each in deployment.findings
        ]
    for token in PARSER.parse(text):
        if token.type == "html_block":
            assert FOLDS.fullmatch(token.content.strip()), token.content
        for part in token.children or []:
            assert part.type != "image"
            if part.type == "html_inline":
                assert OWN_HTML.fullmatch(part.content), part.content
