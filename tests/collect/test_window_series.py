"""Measures over the time that a server was watched: from its metrics pages, else from its log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sgdoctor import examine, watching
from sgdoctor.collect import window, window_series
from sgdoctor.collect.log_follow import Follower
from sgdoctor.collect.window import Page, Window
from sgdoctor.facts import Series
from sgdoctor.report import formats
from sgdoctor.sources import Sources
from tests.collect.servers import CAPTURES, Handler, reply, running, sglang

PAGE = (CAPTURES / "kv-pool-full" / "metrics.txt").read_text()
PLACE = "http://h:1/metrics"


def of_pages(*pages: Page) -> dict[str, Series]:
    made = window_series.of(Window(60.0, PLACE, list(pages), asked=len(pages)))
    return {series.name: series for series in made}


def test_gauges_are_those_of_each_page() -> None:
    series = of_pages(Page(0.0, running=3.0, queued=0.0), Page(2.0, running=4.0, queued=7.0))
    assert series["queued_requests"] == Series("queued_requests", "requests", PLACE, [(0.0, 0.0), (2.0, 7.0)])
    assert series["running_requests"].points == [(0.0, 3.0), (2.0, 4.0)]


def test_what_is_counted_is_a_rate_from_page_to_page() -> None:
    decoded = ((0.0, 1000.0), (2.0, 1600.0), (6.0, 1800.0))
    series = of_pages(*(Page(at, decoded_tokens=tokens, retracted=tokens / 100) for at, tokens in decoded))
    assert series["decode_throughput"].points == [(2.0, 300.0), (6.0, 50.0)]
    assert series["retractions_per_minute"].points == [(2.0, 180.0), (6.0, 30.0)]


def test_a_short_rest_at_the_end_is_no_peak() -> None:
    decoded = ((0.0, 0.0), (2.0, 400.0), (4.0, 800.0), (4.1, 1200.0))
    series = of_pages(*(Page(at, decoded_tokens=tokens) for at, tokens in decoded))
    assert series["decode_throughput"].points == [(2.0, 200.0), (4.1, 380.9524)]


def test_a_time_without_prompts_has_no_hit_rate() -> None:
    prompts = ((0.0, 0.0, 0.0), (2.0, 100.0, 40.0), (4.0, 100.0, 40.0), (6.0, 200.0, 40.0))
    series = of_pages(*(Page(at, prompt_tokens=some, cached_tokens=cached) for at, some, cached in prompts))
    assert series["cache_hit_rate"].points == [(2.0, 0.4), (6.0, 0.0)]


def test_what_a_page_does_not_say_is_no_measure_and_one_point_is_none() -> None:
    page = window.read_page(PAGE, 0.0)
    assert of_pages(page) == {}
    later = window.read_page(PAGE, 2.0)
    assert "accept_length" not in of_pages(page, later)  # no speculative decoding
    assert of_pages(page, later)["token_usage"].points == [(0.0, 0.24), (2.0, 0.24)]


def test_an_hour_has_no_more_points_than_can_be_looked_at() -> None:
    hour = [
        Page(2.0 * number, running=float(number % 2), decoded_tokens=20.0 * number) for number in range(1801)
    ]
    series = of_pages(*hour)
    assert {len(each.points) for each in series.values()} <= {113, 114}
    assert window_series.MOST_POINTS >= 114
    assert {value for _, value in series["decode_throughput"].points} == {10.0}
    assert all(0.4 < value < 0.6 for _, value in series["running_requests"].points[:-1])
    assert series["running_requests"].points[-1][0] <= 3600.0


def test_pages_of_several_servers_in_turn_are_no_measure_of_one() -> None:
    pages = [Page(0.0, running=1.0), Page(2.0, running=9.0)]
    assert window_series.of(Window(60.0, PLACE, pages, several=True)) == []


def line(running: int, usage: float, rank: str = "") -> str:
    return (
        f"[2026-11-30 05:50:01{rank}] Decode batch, #running-req: {running}, #token: 2000, token usage: "
        f"{usage}, cuda graph: True, gen throughput (token/s): {100.0 * running}, #queue-req: 4\n"
    )


def followed(log: Path, *parts: str) -> Window:
    """Follow a log that gets these parts, two seconds apart."""
    log.write_text(line(1, 0.1))
    follower = Follower(str(log))
    for number, part in enumerate(parts):
        with log.open("a") as stream:
            stream.write(part)
        follower.read_on(2.0 * number)
    follower.close()
    return Window(60.0, "", logs=[follower])


def test_a_log_alone_tells_by_its_decode_lines(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    made = window_series.of(followed(log, line(2, 0.2) + line(4, 0.4), "", line(6, 0.9)))
    series = {each.name: each for each in made}
    assert series["running_requests"] == Series(
        "running_requests", "requests", str(log), [(0.0, 3.0), (4.0, 6.0)]
    )
    assert series["token_usage"].points == [(0.0, 0.3), (4.0, 0.9)]
    assert series["decode_throughput"].points == [(0.0, 300.0), (4.0, 600.0)]


def test_workers_are_added_up_where_all_of_them_wrote(tmp_path: Path) -> None:
    both = line(2, 0.2, " DP0 TP0") + line(3, 0.5, " DP1 TP1")
    made = window_series.of(followed(tmp_path / "server.log", both, line(9, 0.9, " DP0 TP0"), both))
    series = {each.name: each for each in made}
    assert series["running_requests"].points == [(0.0, 5.0), (4.0, 5.0)]
    assert series["token_usage"].points == [(0.0, 0.5), (4.0, 0.5)]


def test_the_metrics_go_before_the_log(tmp_path: Path) -> None:
    seen = followed(tmp_path / "server.log", line(2, 0.2), line(2, 0.2))
    seen.pages, seen.place = [Page(0.0, running=8.0), Page(2.0, running=9.0)], PLACE
    places = {each.name: each.place for each in window_series.of(seen)}
    assert places["running_requests"] == PLACE
    assert places["token_usage"] == str(tmp_path / "server.log")


def test_what_was_watched_is_in_every_report_and_in_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "PERIOD", 0.05)
    monkeypatch.setattr(watching, "LEAST", 0.0)
    asked = 0

    def more(handler: Handler) -> None:
        """Answer with one request more in the queue at each question."""
        nonlocal asked
        asked += 1
        queue = re.compile(r"^(sglang:num_queue_reqs\{[^}]*\}) .*$", re.MULTILINE)
        reply(200, queue.sub(rf"\g<1> {asked}", PAGE).encode(), "text/plain")(handler)

    saved = tmp_path / "watched.json"
    with running({**sglang(), "/metrics": more}) as there:
        saved.write_text(examine.snapshot(Sources(url=there.url, watch=0.5)))
    report = examine.check(Sources(snapshot=str(saved)))
    (deployment,) = json.loads(formats.render(report, "json"))["deployments"]
    (queue,) = [each for each in deployment["series"] if each["name"] == "queued_requests"]
    values = [value for _, value in queue["points"]]
    assert values == [values[0] + number for number in range(len(values))]
    assert queue["place"] == f"{there.url}/metrics"
    assert f"waiting {values[0]:.0f} to {values[-1]:.0f} requests" in formats.render(report, "html")
    (other,) = examine.check(Sources(snapshot=str(saved), assume=("arg.tp_size=8",))).deployments
    assert other.series == []  # it was measured with another
