"""The HTML page: markup that closes, text that stays text, and what a real browser makes of it."""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from sgdoctor import examine
from sgdoctor.engine.model import Evidence
from sgdoctor.facts import Excerpt, Series
from sgdoctor.report import html, html_charts
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Report
from sgdoctor.sources import Sources

from .hostile import reports

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = {"width": 375, "height": 700}
DESK = {"width": 1280, "height": 900}
VOID = {"meta"}
TAGS = VOID | set(
    "html head title style body h1 h2 h3 p a section article span ul li pre code details summary div table "
    "thead tbody tr th td mark figure figcaption svg path text".split()
)
CAPTURES = Path(__file__).parents[1] / "captures"


class Page(HTMLParser):
    """What a page holds: its tags, which must close in order, its links and the text of each tag."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.links = []
        self.texts = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS
        given = dict(attrs)
        assert set(given) <= {
            "lang",
            "charset",
            "name",
            "content",
            "http-equiv",
            "id",
            "class",
            "scope",
            "href",
            "open",
            "data-label",
            *("viewbox", "role", "aria-label", "d", "x", "y", "text-anchor"),
        }
        if "href" in given:
            self.links.append(given["href"])
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open:
            self.texts[tag][-1] += data


def test_findings_with_what_to_do_and_how_it_is_known(scenario):
    page = Page(html.render(Report.of([scenario])))
    assert page.texts["title"] == ["sgdoctor: qwen3.5-122b: 0 errors, 3 warnings, 1 info, 1 only suspected"]
    assert "pip install torch==2.9.1" in page.texts["pre"]
    [fusion] = [text for text in page.texts["article"] if "ARG103" in text]
    for said in (
        "does nothing on this GPU",
        "launch-fusion.sh:15",
        "compute capability 12.0",
        "remove --enable",
    ):
        assert said in fusion
    assert "Could not be decided: 15" in page.texts["summary"]
    assert "Looked at: 3" in page.texts["summary"]


def test_a_fleet_begins_with_a_table_that_leads_to_each_deployment(fleet):
    page = Page(html.render(fleet))
    assert [link for link in page.links if link.startswith("#")] == ["#d1", "#d2", "#d3", "#d4", "#d5"]
    assert len(page.texts["section"]) == 5


@pytest.fixture
def watched(deployment):
    """Return a report on a server that was watched for a minute, for 14 s of which it did not answer."""
    times = [2.0 * number for number in range(31) if not 20 < 2 * number < 34]

    def series(name, unit, value):
        place = "http://10.0.0.1:30000/metrics"
        return Series(name, unit, place, [(at, value(at)) for at in times])

    return Report.of(
        [
            deployment(
                series=[
                    series("running_requests", "requests", lambda at: 24 + at % 5),
                    series("queued_requests", "requests", lambda at: at / 4),
                    series("token_usage", "share", lambda at: 0.5 + at / 120),
                    series("decode_throughput", "tokens/s", lambda at: 123456 + at),
                    series("retractions_per_minute", "requests/min", lambda _: 0.0),
                    series("between_tokens_seconds", "s", lambda _: 0.0142),
                ]
            )
        ]
    )


def test_a_watched_server_has_charts_and_their_numbers(watched):
    text = html.render(watched)
    page = Page(text)
    assert page.texts["figcaption"] == [
        "Generated tokens",
        "Requestsrunningwaiting",
        "KV cache in use",
        "Time between tokens",
    ]  # nothing was retracted: a row of the table says so
    cells = [cell for cell in page.texts["td"] if cell]
    start = cells.index("Requests, waiting")
    assert cells[start + 1 : start + 5] == ["0", "0", "15", "15"]
    assert "Retracted requests, a minute" in cells
    assert 'aria-label="Requests over time: running 24 to 28 requests; waiting 0 to 15 requests"' in text
    assert "Read in http://10.0.0.1:30000/metrics." in page.texts["p"]


def test_a_line_is_interrupted_where_nothing_is_known(watched):
    lines = re.findall(r'<path class="line line1" d="([^"]*)"', html.render(watched))
    assert [line.count("M") for line in lines] == [2] * 4


@pytest.mark.parametrize("points", [[], [(0.0, 1e308), (2.0, -1e308)]])
def test_a_measure_that_cannot_be_drawn_is_left_out(deployment, points):
    """A snapshot may hold one."""
    text = html.render(Report.of([deployment(series=[Series("token_usage", "share", "somewhere", points)])]))
    assert "<svg" not in text


def test_a_log_line_stands_among_its_neighbours_once(finding, deployment):
    evidence = [
        Evidence("log.match", "out of memory", "log", "server.log:65", 4),
        Evidence("log.died", True, "log", "server.log:65"),
        Evidence("log.match", "elsewhere", "log", "other.log:3"),
    ]
    lines = [(64, "before <b>"), (65, "[x] out of memory"), (66, "after")]
    report = Report.of(
        [deployment(findings=[finding(evidence=evidence)], excerpts=[Excerpt("server.log:65", 65, lines)])]
    )
    page = Page(html.render(report))
    assert page.texts["pre"] == ["elsewhere", "64 before <b>65 [x] out of memory66 after"]
    assert page.texts["mark"] == ["65 [x] out of memory"]
    assert "server.log:65 (4 times)" in page.texts["details"][0]


def test_a_server_that_was_not_watched_has_no_chart(scenario):
    text = html.render(Report.of([scenario]))
    assert "<svg" not in text
    assert "figure" not in text


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, [0, 1]),
        (5e-324, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1]),
        (34, [0, 10, 20, 30, 40]),
        (60, [0, 20, 40, 60]),
        (100, [0, 25, 50, 75, 100]),
        (0.0142, [0, 0.005, 0.01, 0.015]),
        (123456, [0, 50000, 100000, 150000]),
    ],
)
def test_ticks_are_round_numbers_that_reach_the_highest_value(most, expected):
    assert html_charts.ticks(most) == expected


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (0.0142, "0.0142"), (2.5, "2.5"), (33.333, "33.3"), (2210.4, "2210")]
)
def test_numbers_have_three_digits(value, said):
    assert html_charts.number(value) == said


def test_nothing_is_loaded_from_elsewhere(fleet):
    text = html.render(fleet)
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text


@settings(max_examples=30, deadline=None)
@given(reports())
def test_any_text_stays_text(report):
    text = html.render(report)
    assert text.isascii()
    page = Page(text)
    assert len(page.texts["article"]) == 6
    assert all(re.match(r"https://|#d\d\Z", link) for link in page.links)
    for deployment in report.deployments:
        for finding in deployment.findings:
            assert any(printable(finding.message) in each for each in page.texts["h3"])


# --- in a browser -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    """Give Debian's Chromium without a window; without one the test is skipped, under CI it fails."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        said = "no Chromium: apt-get install chromium (the HTML report was not looked at in a browser)"
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(said, pytrace=False)
        pytest.skip(said)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Return what opens a report in a window of that size and colour, and holds it to load nothing else."""
    contexts = []

    def show(text, viewport, scheme):
        file = tmp_path / "report.html"
        file.write_text(text)
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.said = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.said.append(message.text))
        page.goto(file.as_uri())
        assert page.asked == [file.as_uri()]
        assert page.said == []
        return page

    yield show
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def died():
    """Return the report on a server that died: an error with a line of its log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(CAPTURES / "mem-fraction-too-small")
        return examine.check(Sources(logs=("server.log",)))


CONTRAST = """
() => {
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return getComputedStyle(document.documentElement).colorScheme.includes("dark")
      && matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(18, 18, 18)" : "rgb(255, 255, 255)";
  };
  const ratios = [...document.querySelectorAll("h1, h2, h3, p, span, li, pre, code, td, th, summary, a, "
      + "mark, figcaption, svg text")]
    .map(each => {
      const [a, b] = [luminance(getComputedStyle(each).color), luminance(behind(each))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    });
  return Math.min(...ratios);
}
"""

LINES = CONTRAST.replace("h1, h2", "svg .line, h1, h2").replace(
    "getComputedStyle(each).color)",
    'each.matches(".line") ? getComputedStyle(each).stroke : getComputedStyle(each).color)',
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_is_legible_and_no_wider_than_the_window(opened, died, fleet, watched, viewport, scheme):
    for report in (died, fleet, watched):
        page = opened(html.render(report, verbose=True), viewport, scheme)
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert page.evaluate(CONTRAST) >= 4.5  # WCAG 2, AA


def test_the_scheme_is_followed(opened, died):
    text = html.render(died)
    ink = {
        scheme: opened(text, DESK, scheme).evaluate("getComputedStyle(document.body).color")
        for scheme in ("light", "dark")
    }
    assert ink == {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}


def test_a_reader_sees_the_finding_and_its_log_line_at_once_and_opens_the_rest(opened, died):
    page = opened(html.render(died), PHONE, "light")
    article = page.locator("article.error")
    line = "RuntimeError: Not enough memory. Please try to increase"
    log = article.locator("pre", has_text=line)
    assert log.is_visible()
    assert log.locator("mark").inner_text() == f"65 {line} --mem-fraction-static."
    assert log.locator(".number").all_inner_texts() == ["63", "64", "65", "66", "67"]
    assert "raise RuntimeError(msg)" in log.inner_text()
    assert article.get_by_text("server.log:65").first.is_visible()
    undecided = page.locator("details", has_text="Could not be decided")
    assert not undecided.locator("table").is_visible()
    undecided.locator("summary").click()
    assert undecided.locator("table").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_as_wide_as_a_phone_and_two_beside_each_other_on_a_desk(opened, watched, scheme):
    text = html.render(watched)
    phone = opened(text, PHONE, scheme).locator("svg")
    assert phone.count() == 4
    boxes = [phone.nth(number).bounding_box() for number in range(4)]
    assert all(PHONE["width"] * 0.9 <= box["width"] <= PHONE["width"] for box in boxes)
    assert all(after["y"] > before["y"] for before, after in pairwise(boxes))
    desk = opened(text, DESK, scheme).locator("svg")
    first, second = desk.nth(0).bounding_box(), desk.nth(1).bounding_box()
    assert abs(first["y"] - second["y"]) <= 1
    assert first["x"] + first["width"] <= second["x"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_of_a_chart_stand_out_and_no_text_leaves_it(opened, watched, scheme):
    page = opened(html.render(watched), PHONE, scheme)
    assert page.evaluate(LINES) >= 3  # WCAG 2, graphics
    outside = """() => [...document.querySelectorAll("svg text")].filter(each => {
      const [text, chart] = [each, each.ownerSVGElement].map(one => one.getBoundingClientRect());
      return text.left < chart.left || text.right > chart.right + 6 || text.bottom > chart.bottom + 1;
    }).map(each => each.textContent)"""
    assert page.evaluate(outside) == []


def test_a_reader_without_eyes_is_told_what_a_chart_shows(opened, watched):
    page = opened(html.render(watched), PHONE, "light")
    assert page.get_by_role("img", name="Generated tokens over time: 123456 to 123516 tokens/s").count() == 1


def test_markup_in_a_log_runs_nothing(opened, finding, deployment):
    attack = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    found = finding(message=attack, evidence=[Evidence("log.match", attack, "log", "server.log:3")])
    page = opened(html.render(Report.of([deployment(findings=[found])])), DESK, "light")
    assert page.title().startswith("sgdoctor")
    assert page.locator("pre", has_text=attack).is_visible()
    assert page.locator("img, script").count() == 0
