"""The generated pages: they are those of today's rules, and readable as Markdown whatever a rule says."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tools import docs, docs_rules, markdown

RENDERER = MarkdownIt("commonmark").enable("table")


def shown(text: str) -> str:
    """Return what a reader of the rendered Markdown sees."""
    return html.unescape(re.sub(r"<[^>]+>", "", RENDERER.render(text))).strip()


def test_the_pages_in_docs_are_fresh():
    found = docs.problems(docs.pages(), docs.DOCS)
    assert not found, "\n".join([*found, "make docs brings them up to date"])


def test_what_is_not_fresh_is_named_and_mended(tmp_path):
    made = {"rules/CFG101.md": "now\n", "rules/index.md": "all\n", "facts.md": "facts\n"}
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "CFG101.md").write_text("before\n")
    (tmp_path / "rules" / "CFG900.md").write_text("of a rule that is gone\n")
    (tmp_path / "facts.md").write_text("facts\n")
    (tmp_path / "exit-codes.md").write_text("written by hand\n")
    assert docs.problems(made, tmp_path) == [
        "stale: docs/rules/CFG101.md",
        "missing: docs/rules/index.md",
        "superfluous: docs/rules/CFG900.md",
    ]
    docs.write(made, tmp_path)
    assert docs.problems(made, tmp_path) == []
    assert (tmp_path / "exit-codes.md").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mem_fraction_static is too high.", "`mem_fraction_static` is too high."),
        ("remove --enable-mixed-chunk, or not", "remove `--enable-mixed-chunk`, or not"),
        ("SGLang {sglang.version|in use} with {gpu.name}", "SGLang `{sglang.version}` with `{gpu.name}`"),
        ("no E=256,N=256,device_name=X.json here", "no `E=256,N=256,device_name=X.json` here"),
        ("block_shape=[128, 128].json, or", "`block_shape=[128, 128].json`, or"),
        ("always <redacted> when set", r"always \<redacted\> when set"),
        ("read `the log` of /dev/shm", "read `the log` of `/dev/shm`"),
        ("which is CFG102", "which is [CFG102](CFG102.md)"),
        ("the INT8 GEMM of TP1", "the INT8 GEMM of TP1"),
        ("see https://github.com/a/b_c/issues/1.", "see https://github.com/a/b_c/issues/1."),
    ],
)
def test_code_and_links_are_recognized(text, expected):
    assert markdown.prose(text, {"CFG102": "CFG102.md"}) == expected


plain_text = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="`{}"))


@given(st.lists(plain_text, max_size=6))
def test_no_text_is_taken_for_markup(words):
    text = " ".join(" ".join(words).split())
    assert shown(markdown.prose(text)) == text


@given(plain_text.filter(bool))
def test_a_table_has_its_cells_whatever_is_in_them(text):
    rendered = RENDERER.render(markdown.table(["a", "b"], [[markdown.code(text), markdown.prose(text)]]))
    cells = re.findall(r"<td>(.*?)</td>", rendered, re.DOTALL)
    assert [html.unescape(re.sub(r"</?\w+>", "", cell)) for cell in cells] == [text, text]


def test_code_that_holds_a_fence_is_fenced_by_a_longer_one():
    assert markdown.fenced("```\nx\n```", "text") == "````text\n```\nx\n```\n````"


def test_control_characters_of_a_log_are_escapes():
    assert markdown.fenced("50%\r100%\n\x1b[31mred") == "```\n50%\\r100%\n\\x1b[31mred\n```"


def test_paragraphs_and_lists_are_kept():
    text = "One\nparagraph.\n\nThen:\n- this\n  and more\n- that\n"
    assert markdown.paragraphs(text) == ["One paragraph.", "Then:", "- this and more\n- that"]


def test_a_long_condition_is_broken_where_it_is_read():
    condition = (
        'a_long_name is not None and (another is None or third > 4) and fourth == "this and that" or x'
    )
    assert docs_rules.broken(condition) == (
        'a_long_name is not None\nand (another is None or third > 4)\nand fourth == "this and that"\nor x'
    )


LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def every_page() -> dict[Path, str]:
    """Return all Markdown files, those that are generated as they would be."""
    written = [*docs.DOCS.glob("*.md"), docs.ROOT / "README.md", docs.ROOT / "CONTRIBUTING.md"]
    made = {docs.DOCS / name: text for name, text in docs.pages().items()}
    return {**{file: file.read_text(encoding="utf-8") for file in written}, **made}


def test_every_link_leads_somewhere():
    pages = {file: re.sub(r"```.*?```", "", text, flags=re.DOTALL) for file, text in every_page().items()}
    anchors = {
        file: {markdown.anchor(heading) for heading in HEADING.findall(text)} for file, text in pages.items()
    }
    lost = []
    for file, text in pages.items():
        for target in LINK.findall(text):
            name, _, anchor = target.partition("#")
            place = (file.parent / name).resolve() if name else file
            known = place in pages or place.exists()
            if "://" not in target and not (known and (not anchor or anchor in anchors[place])):
                lost.append(f"{file.relative_to(docs.ROOT)}: {target}")
    assert lost == []
