"""What a tuning says of itself: the table, the picture, the page, JSON."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sgdoctor.errors import UsageError
from sgdoctor.fix import moe_html, moe_picture, moe_report
from sgdoctor.report.layout import plain
from sgdoctor.tune.model import Times
from tests.fix import made

FEW = {
    1: (29.6, 31.6, 26.9, ""),
    16: (137.9, 141.4, 137.0, "0.7% is less than 1%"),
    512: (341.2, 371.0, 342.4, "0.7% is less than 1%"),
    4096: (7310.4, 9036.1, 6884.0, ""),
}


def test_the_table_has_what_is_used_today_the_default_and_the_new_file():
    assert plain(moe_report.lines(made.tuning(measured=FEW))) == (
        "NVIDIA H200 · SGLang 0.5.12 · Triton 3.6.0 · 256 experts of 3072 x 256, top 8,\n"
        "bf16\n"
        "\n"
        "                           whole, µs        up, µs     down, µs\n"
        "tokens  today  default    new   gain  today    new  today   new\n"
        "     1   29.6     31.6   26.9  1.10x   14.8   14.0    8.9   7.5\n"
        "    16  137.9    141.4  137.0   kept   69.0   71.2   41.4  38.4\n"
        "   512  341.2    371.0  342.4   kept  170.6  178.0  102.4  95.9\n"
        "  4096   7310     9036   6884  1.06x   3655   3580   2193  1928\n"
        "\n"
        "gain     1.04x in geometric mean over the file for Triton 3.2.0, which is used\n"
        "         today; 1.15x over the built-in default\n"
        "best     1.10x at M = 1\n"
        "worst    1.00x: 2 of 4 batch sizes keep what they have today\n"
        "kept     M = 16, 512: 0.7% is less than 1%\n"
        "dropped  206 candidates: 143 shared memory, 61 spills registers, 2 did not\n"
        "         compile\n"
        "tuned    by sgdoctor, effort balanced in 3 min 7 s\n"
        "on       gpu NVIDIA H200, uuid GPU-5f2a, driver 580.65.06, torch 2.11.0, triton\n"
        "         3.6.0, routing uniform\n"
    )


def test_the_default_has_no_column_of_its_own_where_it_is_what_is_used_today():
    shown = plain(moe_report.lines(made.on_default(FEW)))
    assert "tokens  today    new   gain" in shown
    assert "     1   31.6   26.9  1.17x" in shown
    assert "gain     1.11x in geometric mean over the built-in default, which is used today\n" in shown


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_fits_80_columns_and_any_terminal(encoding):
    for tuning in (made.tuning(), made.on_default(), made.tuning(measured={131072: (1e6, 2e6, 9e5, "")})):
        shown = plain(moe_report.lines(tuning, 80, encoding))
        shown.encode(encoding)
        assert max(map(len, shown.splitlines())) <= 80


def repairing(*, everywhere=False):
    """Return a tuning where today's file does not run at 4096 tokens and computes wrong results at 512."""
    none = Times(*[math.nan] * 4)
    told = {
        512: {"kept": "", "wrong_today": "relative error 0.7 of the up product at 512 tokens"},
        4096: {"today": none, "default": none, "wrong_today": "OutOfResources: shared memory"},
    }
    lines = made.tuning(measured=FEW).lines
    if everywhere:
        return replace(
            made.on_default(FEW), lines=tuple(replace(line, kept="", today=none) for line in lines)
        )
    lines = tuple(replace(line, **told.get(line.tokens, {})) for line in lines)
    return replace(made.tuning(), lines=lines)


def test_what_does_not_run_today_or_computes_wrong_is_named():
    shown = plain(moe_report.lines(repairing()))
    assert "  4096      -        -   6884      -      -   3580      -  1928\n" in shown
    assert (
        "gain     1.03x in geometric mean over the file for Triton 3.2.0, which is used\n"
        "         today; 1.09x over the built-in default\n"
        "best     1.10x at M = 1\n"
        "worst    1.00x at M = 512\n"
        "repairs  M = 512: the file for Triton 3.2.0 computes wrong results today\n"
        "         (relative error 0.7 of the up product at 512 tokens)\n"
        "repairs  M = 4096: the file for Triton 3.2.0 does not run today (OutOfResources:\n"
        "         shared memory)\n"
    ) in shown


def test_where_nothing_runs_today_there_is_no_gain_to_tell():
    shown = plain(moe_report.lines(repairing(everywhere=True)))
    said = "none to tell: the built-in default, which is used today, does not run on this GPU"
    assert f"gain     {said}" in shown.replace("\n         ", " ")
    assert "best" not in shown
    assert "repairs  M = 1, 16, 512, 4096: the built-in default does not run today\n" in shown


def test_json_has_null_for_what_does_not_run():
    *_, wrong, broken = json.loads(json.dumps(moe_report.to_json(repairing()), allow_nan=False))[
        "batch_sizes"
    ]
    assert broken["gain"] is None
    assert broken["today"] == {"whole": None, "error": None, "up": None, "down": None}
    assert broken["new"]["whole"] == 6884.0
    assert wrong["wrong_today"].startswith("relative error")


def test_what_does_not_run_today_is_drawn_around(tmp_path):
    for number, tuning in enumerate((repairing(), repairing(everywhere=True))):
        assert moe_picture.png(tuning, tmp_path / f"{number}.png") is None
        assert "<svg" in moe_html.html(tuning)


def test_a_tuning_that_gains_nothing_says_so():
    nothing = made.tuning(measured={1: (29.6, 31.6, 29.7, "not faster")})
    assert not nothing.worth_installing
    assert ": not worth a file" in plain(moe_report.lines(nothing)).replace("\n         ", " ")


def test_sglangs_own_tuner_is_named():
    theirs = replace(made.tuning(), tuner="sglang", dropped={}, about={}, seconds=31.0)
    shown = plain(moe_report.lines(theirs))
    assert "tuned    by SGLang's own tuner in 31 s\n" in shown
    assert "dropped" not in shown
    assert "\non " not in shown


def test_json_holds_every_number():
    tuning = made.tuning()
    read = json.loads(json.dumps(moe_report.to_json(tuning)))
    assert [line["tokens"] for line in read["batch_sizes"]] == list(tuning.table)
    first, kept = read["batch_sizes"][0], read["batch_sizes"][4]
    assert first["today"] == {"whole": 29.6, "error": 0.0592, "up": 14.8, "down": pytest.approx(8.88)}
    assert first["kept"] is None
    assert first["entries"] == first["tuned"] == tuning.lines[0].pair.to_list()
    assert kept["kept"] == "0.7% is less than 1%"
    assert kept["entries"] != kept["tuned"]
    assert read["gain"] == tuning.gain
    assert read["files"] == [made.UP, made.DOWN]


def test_the_picture_is_a_png_of_a_readable_size(tmp_path):
    path = tmp_path / "tuning.png"
    assert moe_picture.png(made.tuning(), path) is None
    drawn = path.read_bytes()
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", drawn[16:24])
    assert (width, height) == (1080, 930)


def test_a_picture_that_cannot_be_written_is_an_error_of_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"missing/tuning\.png: No such file or directory"):
        moe_picture.png(made.tuning(), tmp_path / "missing" / "tuning.png")


@pytest.mark.parametrize("measured", [made.MEASURED, {1: made.MEASURED[1]}, {24: made.MEASURED[24]}])
def test_any_tuning_can_be_drawn(measured):
    for tuning in (made.tuning(measured=measured), made.on_default(measured)):
        drawn = moe_picture.svg(tuning)
        assert drawn is not None
        texts = {element.text for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}  # noqa: S314 (our own)
        assert {"whole expert computation", "up product", "down product", "new file"} <= texts
        assert ("built-in default" in texts) == (tuning.job.source == "fallback")
        assert ("kept as today" in texts) == any(line.kept for line in tuning.lines)


def test_the_same_tuning_gives_the_same_page_in_the_pages_colours():
    assert moe_html.html(made.tuning()) == moe_html.html(made.tuning())
    drawn = moe_picture.svg(made.tuning()) or ""
    assert "currentColor" in drawn
    assert "#000000" not in drawn
    assert "fill: #ffffff" in drawn  # the circles of what was kept


class _Page(HTMLParser):
    """Keeps what a browser would fetch, the cells of the table, and tags that were left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.fetched += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not value.startswith("#")
        ]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th") and data.strip():
            self.cells.append(data)


def test_the_page_needs_nothing_from_elsewhere_and_holds_the_table():
    text = moe_html.html(made.tuning())
    page = _Page(text)
    assert page.open == []
    assert page.fetched == []
    assert "@import" not in text
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert page.cells[:12] == ["whole, µs", "up, µs", "down, µs", *moe_report.head(made.tuning()).cells()]
    assert page.cells[12:] == [cell for row in moe_report.rows(made.tuning()) for cell in row.cells()]


def test_names_are_text_on_the_page_whatever_they_hold():
    odd = replace(
        made.tuning(), job=replace(made.tuning().job, device="<script>$x</script>", today_is="a & b")
    )
    text = moe_html.html(odd)
    assert "<script>" not in text
    assert "a &amp; b" in text
    assert _Page(text).open == []


def test_without_matplotlib_there_is_a_line_in_place_of_the_picture(tmp_path):
    script = f"""
import sys
sys.modules["matplotlib"] = None  # as where it is not installed
from pathlib import Path
from sgdoctor.fix import moe_html, moe_picture
from tests.fix import made
print(moe_picture.png(made.tuning(), Path({str(tmp_path / "none.png")!r})))
print(moe_html.html(made.tuning()))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    said, page = ended.stdout.split("\n", 1)
    assert said == "no picture: matplotlib is not installed here (pip install 'sgdoctor[plot]')"
    assert "<p>no picture: matplotlib is not installed" in page
    assert "<svg" not in page
    assert "1.11x at M = 2048" in page
    assert not (tmp_path / "none.png").exists()


def test_nothing_draws_until_a_picture_is_asked_for():
    script = "import sys, sgdoctor.fix.moe_html; print('matplotlib' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
