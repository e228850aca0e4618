"""What is looked at in the built site: links that lead nowhere, and what a page would load from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools import site


def built(folder, body, head=""):
    """Write a site of two pages, a picture and a style sheet; ``body`` is that of rules/CFG101.html."""
    (folder / "rules").mkdir()
    (folder / "style.css").write_text("")
    (folder / "drawn picture.png").write_bytes(b"")
    (folder / "index.html").write_text('<a href="rules/CFG101.html#why">one</a>')
    (folder / "rules" / "CFG101.html").write_text(f"<head>{head}</head><body>{body}</body>")
    return site.problems(folder)


@pytest.mark.parametrize(
    "body",
    [
        '<a href="../index.html">home</a> <a href="#why">why</a>',
        '<img src="../drawn%20picture.png"> <img src="/drawn%20picture.png">',
        '<a href="https://github.com/sgl-project/sglang">what a reader may follow</a>',
        '<a href="mailto:a@b.example">or write to</a>',
    ],
)
def test_what_is_there_is_no_problem(tmp_path, body):
    assert built(tmp_path, body, '<link rel="stylesheet" href="../style.css">') == []


@pytest.mark.parametrize("target", ["../gone.html", "/gone.html", "../report.schema.json", "../../README.md"])
def test_a_link_that_leads_nowhere_is_named(tmp_path, target):
    assert built(tmp_path, f'<a href="{target}#part">there</a>') == [
        f"rules/CFG101.html: {target}#part is not there"
    ]


@pytest.mark.parametrize(
    "head",
    [
        '<script src="{}"></script>',
        '<link rel="stylesheet" href="{}">',
        '<img src="{}">',
    ],
)
@pytest.mark.parametrize("url", ["https://fonts.example/a", "//cdn.example/a"])
def test_what_is_loaded_from_elsewhere_is_named(tmp_path, head, url):
    assert built(tmp_path, "", head.format(url)) == [f"rules/CFG101.html: loads {url}"]


def test_the_next_page_is_named_and_not_loaded(tmp_path):
    assert built(tmp_path, "", '<link rel="canonical" href="https://docs.example/a.html">') == []


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_where_zensical_is_not_it_says_what_to_do(ci, code):
    program = "import sys; sys.modules['zensical'] = None; from tools import site; sys.exit(site.main())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=site.ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.endswith("needs Python 3.11 or newer (make site VENV=.venv-site PYTHON=python3.11)\n")
