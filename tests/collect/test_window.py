"""A server watched for a while: real ones on loopback whose numbers move from page to page."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import pytest

from sgdoctor.collect import http_get, metrics, window, window_facts
from sgdoctor.collect.window import Histogram, Page, Window
from sgdoctor.facts import Facts
from tests.collect import servers
from tests.collect.servers import CAPTURES, Behaviour, Handler, reply, running

PAGE = (CAPTURES / "kv-pool-full" / "metrics.txt").read_text()
PLACE = "http://h:1/metrics"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask every few milliseconds, so that a test need not wait."""
    monkeypatch.setattr(window, "PERIOD", 0.02)


def moved(text: str, name: str, by: float, labels: str = "") -> str:
    """Return the page with a number raised in every sample of that name (and with these labels)."""
    sample = re.compile(rf"^(sglang:{name}\{{[^}}]*{labels}[^}}]*\}}) (\S+)$", re.MULTILINE)
    assert sample.search(text), f"{name} is not on the page"
    return sample.sub(lambda found: f"{found[1]} {float(found[2]) + by}", text)


def turns(*each: str | None) -> Behaviour:
    """Answer with one page after the other, with 503 where there is none; the last one stays."""
    left = list(each)

    def behave(handler: Handler) -> None:
        text = left.pop(0) if len(left) > 1 else left[0]
        (reply(503) if text is None else reply(200, text.encode(), "text/plain"))(handler)

    return behave


def played(*each: str | None) -> Window:
    """Watch a server until it has answered with each of these pages, and with the last one twice."""
    with running({"/metrics": turns(*each)}) as there:
        return window.watch(http_get.target(there.url), 60.0, ended=lambda: len(there.paths) > len(each))


def without(text: str, name: str) -> str:
    """Return the page without the samples of that name, as it is before the first event."""
    kept = [line for line in text.split("\n") if not line.startswith(f"sglang:{name}{{")]
    assert len(kept) < len(text.split("\n")), f"{name} is not on the page"
    return "\n".join(kept)


def watched(behaviour: Behaviour, seconds: float = 0.3) -> Window:
    with running({"/metrics": behaviour}) as there:
        return window.watch(http_get.target(there.url), seconds)


def facts_of(seen: Window) -> Facts:
    facts = Facts()
    window_facts.set_facts(facts, seen)
    return facts


def over(seconds: float, *texts: str) -> Facts:
    """Return the facts of pages that came evenly over so many seconds."""
    step = seconds / (len(texts) - 1)
    read = [window.read_page(text, number * step) for number, text in enumerate(texts)]
    return facts_of(Window(seconds, PLACE, read, asked=len(texts)))


def test_a_captured_page_is_read_in_full() -> None:
    page = window.read_page(PAGE, 0.0)
    assert (page.token_usage, page.running, page.queued) == (0.24, 3, 0)
    assert (page.retracted, page.finished) == (16, 65)
    assert page.accept_length is None  # no speculative decoding: the gauge stays at 0
    assert page.first_token.count == 65
    assert page.between_tokens.count > 1000


def test_what_is_counted_is_counted_in_the_window_alone() -> None:
    later = moved(moved(PAGE, "num_retracted_requests_total", 6), "num_requests_total", 30)
    later = moved(moved(later, "prompt_tokens_total", 1000), "cached_tokens_total", 250)
    later = moved(later, "realtime_tokens_total", 6000, 'mode="decode"')
    facts = over(120.0, PAGE, later)
    assert facts.value("window.seconds") == 120
    assert facts.value("window.retractions_per_minute") == 3
    assert facts.value("window.finished_requests") == 30
    assert facts.value("window.cache_hit_rate") == 0.25
    assert facts.value("window.decode_throughput") == 50
    assert facts.get("window.decode_throughput").provenance[0].place == (
        f"{PLACE}: sglang:realtime_tokens_total over 120 s"
    )


def test_a_number_is_not_more_exact_than_what_was_measured() -> None:
    facts = over(59.07, PAGE, moved(PAGE, "num_retracted_requests_total", 47))
    assert facts.value("window.retractions_per_minute") == 47.7
    assert facts.value("window.seconds") == 59.1
    slow = over(59.07, PAGE, moved(PAGE, "num_retracted_requests_total", 1))
    assert slow.value("window.retractions_per_minute") == 1.0157


def test_a_cache_that_gives_nothing_is_told_from_a_window_without_requests() -> None:
    assert over(60.0, PAGE, moved(PAGE, "prompt_tokens_total", 1000)).value("window.cache_hit_rate") == 0
    nothing = over(60.0, PAGE, PAGE)
    assert nothing.get("window.cache_hit_rate").reason == "nothing of it happened in 60 s"


def test_a_queue_that_grows_and_a_throughput_that_falls() -> None:
    texts, decoded = [], 0.0
    for number in range(9):
        texts.append(
            moved(
                moved(PAGE, "num_queue_reqs", 2 * number),
                "realtime_tokens_total",
                decoded,
                'mode="decode"',
            )
        )
        decoded += 1000 if number < 4 else 500
    facts = over(16.0, *texts)
    assert facts.value("window.queue_growth") == 12
    assert facts.value("window.queued_least") == 0
    assert facts.value("window.throughput_trend") == 0.5


def test_two_pages_show_no_trend() -> None:
    facts = over(10.0, PAGE, moved(PAGE, "num_queue_reqs", 5))
    assert not facts.known("window.queue_growth")
    assert facts.value("window.queued_requests") == 2.5


def test_how_often_the_cache_was_full_within_a_minute() -> None:
    texts = [moved(PAGE, "num_retracted_requests_total", retracted) for retracted in (0, 7, 7, 8, 8, 8, 9)]
    assert over(30.0, *texts).value("window.retraction_peak") == 3
    assert over(600.0, *texts).value("window.retraction_peak") == 1


def test_latencies_come_from_the_difference_of_the_histograms() -> None:
    before = Histogram.of({0.1: 50.0, 1.0: 60.0, float("inf"): 60.0}, 10.0)
    after = Histogram.of({0.1: 50.0, 1.0: 69.0, float("inf"): 70.0}, 30.0)
    seen = after.since(before)
    assert (seen.count, seen.total) == (10, 20)
    assert seen.within(0.9) == 1.0
    assert seen.within(0.95) is None  # above the last bound nothing is said
    pair = [Page(0.0, first_token=before), Page(10.0, first_token=after)]
    facts = facts_of(Window(10.0, PLACE, pair, asked=2))
    assert facts.value("window.first_token_seconds") == 2
    assert facts.value("window.first_token_p90") == 1


def test_dp_ranks_are_added_up_and_their_tensor_ranks_are_not() -> None:
    text = "\n".join(
        f'sglang:num_queue_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {5 + dp}' for dp in (0, 1) for tp in (0, 1)
    )
    assert window.read_page(text, 0.0).queued == 11


def test_a_server_is_asked_again_and_again() -> None:
    seen = played(PAGE, moved(PAGE, "num_requests_total", 4))
    assert len(seen.pages) == 3
    assert (seen.missed, seen.last) == (0, "")
    assert facts_of(seen).value("window.finished_requests") == 4


def test_the_progress_ends_at_all_of_it() -> None:
    shares: list[float] = []
    with running({"/metrics": turns(PAGE)}) as there:
        window.watch(http_get.target(there.url), 0.2, tick=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


FRESH = moved(without(PAGE, "num_retracted_requests_total"), "num_requests_total", -60)


def test_a_server_that_was_started_again_begins_a_new_window() -> None:
    seen = played(PAGE, PAGE, None, FRESH, moved(FRESH, "num_requests_total", 1))
    assert (seen.restarts, seen.several) == (1, False)
    facts = facts_of(seen)
    assert f"{seen.place}: 1 of {seen.asked} times no page: HTTP 503" in facts.notes
    assert facts.value("window.finished_requests") == 1
    assert facts.value("window.retractions_per_minute") == 0
    assert any("started again" in note for note in facts.notes)


def test_no_number_is_negative_whenever_the_server_was_started_again() -> None:
    for at in range(1, 6):
        seen = played(*[PAGE] * at, None, *[FRESH] * (6 - at))
        facts = facts_of(seen)
        assert seen.restarts == 1
        numbers = [facts.value(name) for name in facts.vocabulary.specs if name.startswith("window.")]
        assert all(number >= 0 for number in numbers if number is not None)


def test_before_its_first_batch_a_new_server_has_no_numbers_on_its_page() -> None:
    """The gauges are there from the first record of the scheduler on."""
    empty = without(without(FRESH, "num_running_reqs"), "num_queue_reqs")
    seen = played(PAGE, empty, empty, FRESH)
    assert (seen.restarts, seen.several, seen.missed) == (1, False, 2)


def test_pages_of_several_servers_behind_one_address_give_no_numbers() -> None:
    """A counter that goes back from one page to the next is no restart, which takes longer."""
    seen = played(PAGE, FRESH, PAGE, FRESH, PAGE, FRESH, PAGE)
    assert seen.several
    facts = facts_of(seen)
    known = [name for name in facts.vocabulary.specs if name.startswith("window.") and facts.known(name)]
    assert known == []
    assert "several servers answered" in facts.get("window.decode_throughput").reason


def test_one_page_of_several_servers_gives_no_numbers() -> None:
    other = PAGE.replace('tp_rank="0"', 'tp_rank="0",pod="b"')
    page = PAGE.replace('tp_rank="0"', 'tp_rank="0",pod="a"') + other
    facts = facts_of(played(page, page))
    assert "several servers answered" in facts.get("window.running_requests").reason


def test_a_model_that_changes_from_one_page_to_the_next_is_of_another_server() -> None:
    other = PAGE.replace("/models/dense", "/models/other")
    assert played(PAGE, other).several
    assert played(PAGE, None, other).restarts == 1


@pytest.mark.parametrize(
    ("gone", "unknown"),
    [
        ("realtime_tokens_total", ["decode_throughput", "throughput_trend", "worked_tokens"]),
        ("prompt_tokens_total", ["prompt_tokens", "cache_hit_rate"]),
        ("num_requests_total", ["finished_requests"]),
        ("num_running_reqs", ["running_requests"]),
        ("num_queue_reqs", ["queued_requests", "queued_least", "queue_growth"]),
        ("token_usage", ["token_usage", "token_usage_peak"]),
        ("time_to_first_token_seconds_bucket", ["first_token_seconds", "first_token_p90"]),
    ],
)
def test_what_is_not_on_the_page_is_unknown(gone: str, unknown: list[str]) -> None:
    facts = over(60.0, *[without(PAGE, gone)] * 7)
    assert facts.missing(*(f"window.{name}" for name in unknown)) == [f"window.{name}" for name in unknown]


def test_a_counter_is_on_the_page_from_its_first_event_on() -> None:
    """Beside the scheduler's gauges, retractions that are not there are none, those that appear are new."""
    never = without(PAGE, "num_retracted_requests_total")
    assert over(60.0, never, never).value("window.retractions_per_minute") == 0
    assert over(60.0, never, PAGE).value("window.retractions_per_minute") == 16
    alone = "\n".join(line for line in never.split("\n") if "http_re" in line)
    assert not over(60.0, alone, alone).known("window.retractions_per_minute")
    nothing_cached = without(PAGE, "cached_tokens_total")
    served = moved(nothing_cached, "prompt_tokens_total", 500)
    assert over(60.0, nothing_cached, served).value("window.cache_hit_rate") == 0


def test_requests_with_and_without_streaming_are_added_up() -> None:
    """From 0.5.17 on these counters have the label is_streaming (srt/observability/metrics_collector.py)."""
    lines = ['sglang:num_running_reqs{tp_rank="0"} 1.0']
    for streaming, number in (("true", 30), ("false", 12)):
        lines += [
            f'sglang:{name}{{is_streaming="{streaming}",model_name="m"}} {number}'
            for name in ("num_requests_total", "prompt_tokens_total", "time_to_first_token_seconds_sum")
        ]
    page = window.read_page("\n".join(lines), 0.0)
    assert (page.finished, page.prompt_tokens, page.first_token.total) == (42, 42, 42)


def test_priorities_are_part_of_the_sum() -> None:
    """With --enable-priority-scheduling the sum has an empty one, each its own (0.5.10 and later)."""
    lines = [
        f'sglang:num_queue_reqs{{dp_rank="{rank}",priority="{each}"}} {number}'
        for rank in (0, 1)
        for each, number in (("", 7), ("0", 5), ("9", 2))
    ]
    assert window.read_page("\n".join(lines), 0.0).queued == 14


def test_cached_tokens_of_all_sources_are_added_up() -> None:
    """Each source has a label from 0.5.9 on: device, host, storage; before that there was one number."""
    parts = "\n".join(
        f'sglang:cached_tokens_total{{cache_source="{source}"}} {number}'
        for source, number in (("device", 60), ("host", 30), ("storage_file", 10))
    )
    whole = 'sglang:cached_tokens_total{model_name="m"} 100'
    assert window.read_page(parts, 0.0).cached_tokens == window.read_page(whole, 0.0).cached_tokens == 100


def test_a_page_that_is_gone_for_a_while_comes_back() -> None:
    """As behind a proxy that says 404 while its server is started again."""

    def behave(handler: Handler) -> None:
        second = len(handler.server.paths) == 2
        (reply(404) if second else reply(200, PAGE.encode(), "text/plain"))(handler)

    with running({"/metrics": behave}) as there:
        seen = window.watch(http_get.target(there.url), 60.0, ended=lambda: len(there.paths) > 3)
    assert (seen.without_metrics, seen.missed) == (False, 1)
    assert len(seen.pages) == seen.asked - 1


def test_a_server_without_a_metrics_page_is_not_asked_again() -> None:
    with running({}) as there:
        seen = window.watch(http_get.target(there.url), 0.2)
    assert there.paths == ["/metrics"]
    reason = "the server has no metrics page (--enable-metrics)"
    assert facts_of(seen).get("window.running_requests").reason == reason


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (reply(500, b"boom"), "HTTP 500"),
        (reply(200, b"<html>"), "an answer without SGLang's metrics"),
        (servers.close, "the connection was closed without an answer"),
        (servers.garbage, "no HTTP answer"),
        (servers.cut_off, "the answer was cut off"),
        (reply(302, Location="http://elsewhere.invalid/metrics"), "a redirect to"),
    ],
)
def test_pages_that_do_not_come_are_said_and_end_nothing(behaviour: Behaviour, said: str) -> None:
    seen = watched(behaviour, 0.1)
    assert seen.missed == seen.asked > 0
    facts = facts_of(seen)
    assert said in facts.get("window.token_usage").reason
    assert any(said in note for note in facts.notes)


@pytest.mark.parametrize("behaviour", [servers.hang, servers.drip, servers.drip_headers])
def test_a_page_that_never_comes_has_no_more_time_than_a_request(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "REQUEST_SECONDS", 0.2)
    seen = watched(behaviour, 0.1)
    assert seen.asked == 1
    assert seen.last == "no answer within 0.2 s"


@pytest.mark.parametrize(("seconds", "said"), [(0.6, "0.6 s"), (7.4012, "7.4 s"), (3600.02, "3600 s")])
def test_times_are_written_out(seconds: float, said: str) -> None:
    assert window_facts.length(seconds) == said


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e308"])
@pytest.mark.parametrize("name", ["num_requests_total", "num_queue_reqs", "time_to_first_token_seconds_sum"])
def test_what_is_no_number_is_not_on_the_page(name: str, value: str) -> None:
    broken = re.sub(rf"^(sglang:{name}\{{[^}}]*\}}) \S+$", rf"\1 {value}", PAGE, flags=re.MULTILINE)
    assert broken != PAGE
    page = window.read_page(broken, 1.0)
    assert page == window.read_page(without(PAGE, name), 1.0)


def test_a_page_of_hundreds_of_megabytes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "MAX_BYTES", 2**21)
    seen = watched(servers.endless, 0.05)
    assert seen.last == "more than 2 MiB"


def test_a_server_that_goes_away_is_seen_to() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        seen = window.watch(http_get.target(f"http://127.0.0.1:{unused.getsockname()[1]}"), 0.1)
    assert (seen.last_kind, seen.last) == ("refused", "connection refused")


def test_without_watching_every_fact_of_a_window_says_what_it_needs() -> None:
    facts = Facts()
    window_facts.lack(facts)
    names = [name for name in facts.vocabulary.specs if name.startswith("window.")]
    assert {facts.get(name).reason for name in names} == {"needs --watch"}


def test_every_fact_of_a_window_comes_from_some_page() -> None:
    """All but what a log tells, and the length of drafts, which a page without speculation has not."""
    steps: list[Callable[[str], str]] = [
        lambda text: moved(text, "time_to_first_token_seconds_bucket", 5),
        lambda text: moved(text, "time_to_first_token_seconds_sum", 1),
        lambda text: moved(text, "inter_token_latency_seconds_bucket", 5),
        lambda text: moved(text, "prompt_tokens_total", 5),
        lambda text: moved(text, "realtime_tokens_total", 5, 'mode="decode"'),
    ]
    texts = [PAGE]
    for _ in range(6):
        text = texts[-1]
        for step in steps:
            text = step(text)
        texts.append(text)
    facts = over(12.0, *texts)
    missing = facts.missing(*(name for name in facts.vocabulary.specs if name.startswith("window.")))
    assert missing == ["window.accept_length", "window.log_silent"]
    speculating = PAGE.replace(
        next(line for line in PAGE.split("\n") if line.startswith("sglang:spec_accept_length{")),
        'sglang:spec_accept_length{tp_rank="0"} 2.5',
    )
    assert over(10.0, speculating, speculating).value("window.accept_length") == 2.5


def test_names_of_collectors_without_colons_are_taken() -> None:
    assert window.read_page(PAGE.replace("sglang:", "sglang_"), 0.0).finished == 65
    assert metrics.is_sglang(PAGE.replace("sglang:", "sglang_"))
