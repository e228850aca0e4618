"""The HTML page: markup that closes, text that stays text, and what a real browser makes of it."""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings

from sgdoctor import examine
from sgdoctor.engine.model import Evidence
from sgdoctor.report import html
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
    "thead tbody tr th td".split()
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
  const ratios = [...document.querySelectorAll("h1, h2, h3, p, span, li, pre, code, td, th, summary, a")]
    .map(each => {
      const [a, b] = [luminance(getComputedStyle(each).color), luminance(behind(each))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    });
  return Math.min(...ratios);
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_is_legible_and_no_wider_than_the_window(opened, died, fleet, viewport, scheme):
    for report in (died, fleet):
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
    assert article.locator("pre", has_text=line).is_visible()
    assert article.get_by_text("server.log:65").first.is_visible()
    undecided = page.locator("details", has_text="Could not be decided")
    assert not undecided.locator("table").is_visible()
    undecided.locator("summary").click()
    assert undecided.locator("table").is_visible()


def test_markup_in_a_log_runs_nothing(opened, finding, deployment):
    attack = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    found = finding(message=attack, evidence=[Evidence("log.match", attack, "log", "server.log:3")])
    page = opened(html.render(Report.of([deployment(findings=[found])])), DESK, "light")
    assert page.title().startswith("sgdoctor")
    assert page.locator("pre", has_text=attack).is_visible()
    assert page.locator("img, script").count() == 0
