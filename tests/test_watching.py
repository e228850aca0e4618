"""`--watch`: a stand-in server whose numbers move, from the sources to the report."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgdoctor import check, examine, watching
from sgdoctor.collect import window
from sgdoctor.errors import UsageError
from sgdoctor.report.model import DeploymentReport
from sgdoctor.sources import Sources
from tests.collect import servers
from tests.collect.servers import Handler, reply, running, sglang

PAGE = (servers.CAPTURES / "kv-pool-full" / "metrics.txt").read_text()
LINE = (
    "[2026-11-30 05:50:01] Decode batch, #running-req: 7, #token: 2000, token usage: 0.24, cuda graph: True, "
    "gen throughput (token/s): 500.00, #queue-req: 4\n"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PERIOD", 0.05)
    monkeypatch.setattr(watching, "LEAST", 0.0)


def growing(name: str, step: float) -> servers.Behaviour:
    """Answer with the captured page, one number higher at each question."""
    asked = 0

    def behave(handler: Handler) -> None:
        nonlocal asked
        asked += 1
        sample = re.compile(rf"^(sglang:{name}\{{[^}}]*\}}) (\S+)$", re.MULTILINE)
        text = sample.sub(lambda found: f"{found[1]} {float(found[2]) + step * asked}", PAGE)
        reply(200, text.encode(), "text/plain")(handler)

    return behave


def watched(url: str | None, *, seconds: float = 0.6, **sources: object) -> DeploymentReport:
    (deployment,) = check(url=url, watch=seconds, **sources).deployments
    return deployment


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Path]:
    """Return a log into which a server writes."""
    log, over = tmp_path / "server.log", threading.Event()
    log.write_text(LINE)

    def write() -> None:
        while not over.wait(0.01):
            with log.open("a") as stream:
                stream.write(LINE)

    thread = threading.Thread(target=write)
    thread.start()
    yield log
    over.set()
    thread.join()


def test_a_watched_server_is_told_in_numbers() -> None:
    with running({**sglang(), "/metrics": growing("num_queue_reqs", 1)}) as there:
        report = watched(there.url)
    numbers = next(note for note in report.notes if note.startswith("in 1 s: "))
    assert "3.0 requests running" in numbers
    assert report.summary.status == "busy"
    assert any(looked.place.endswith("/metrics for 0.6 s") for looked in report.looked_at)


def test_without_watching_rules_about_a_window_say_what_they_need() -> None:
    with running(sglang()) as there:
        (report,) = check(url=there.url).deployments
    waiting = [rule for rule in report.unknown if any(name.startswith("window.") for name in rule.missing)]
    assert all(rule.reason == "needs --watch" and rule.options == ["--watch"] for rule in waiting)
    assert report.summary.status == "busy"


def test_what_is_no_sglang_server_is_not_watched() -> None:
    page = reply(200, b"<html>a page for whatever was asked</html>", "text/html")
    with running({}, page) as there:
        report = watched(there.url, seconds=3600)
    assert any("not an SGLang server" in note for note in report.notes)
    assert there.paths.count("/metrics") == 1


def test_a_server_without_metrics_and_log_is_not_waited_for() -> None:
    routes = sglang()
    del routes["/metrics"]
    with running(routes) as there:
        report = watched(there.url, seconds=3600)
    waiting = [rule for rule in report.unknown if "window.seconds" in rule.missing]
    assert {rule.reason for rule in waiting} == {"the server has no metrics page (--enable-metrics)"}


def test_a_log_is_followed_beside_the_server(writing: Path) -> None:
    routes = sglang()
    del routes["/metrics"]
    with running(routes) as there:
        report = watched(there.url, logs=(str(writing),))
    assert any("7.0 requests running, 4.0 waiting" in note for note in report.notes)


def test_a_log_alone_can_be_watched(writing: Path) -> None:
    report = watched(None, logs=(str(writing),))
    assert any("7.0 requests running" in note for note in report.notes)


def test_a_log_that_is_rotated_meanwhile(writing: Path) -> None:
    def rotate(share: str) -> None:
        if "%" in share and not writing.with_suffix(".1").exists():
            writing.rename(writing.with_suffix(".1"))

    (report,) = examine.check(Sources(logs=(str(writing),), watch=0.6), progress=rotate).deployments
    assert f"{writing}: was rotated while it was watched; both files were read" in report.notes


def test_a_log_that_is_cut_short_meanwhile(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LINE * 50)

    def cut(share: str) -> None:
        if "%" in share and log.stat().st_size > len(LINE):
            os.truncate(log, 0)
            log.write_text(LINE)

    (report,) = examine.check(Sources(logs=(str(log),), watch=0.3), progress=cut).deployments
    assert any("was cut short while it was watched" in note for note in report.notes)


def dies_after(answers: int) -> servers.Behaviour:
    """Answer with so many metrics pages, and then listen no more."""
    left = answers

    def behave(handler: Handler) -> None:
        nonlocal left
        reply(200, PAGE.encode(), "text/plain")(handler)
        left -= 1
        if left == 0:
            handler.server.socket.close()

    return behave


def test_a_server_that_goes_away_meanwhile_is_not_called_ready() -> None:
    with running({**sglang(), "/metrics": dies_after(4)}) as there:
        report = watched(there.url)
    assert report.summary.status == "unreachable"
    assert any("went away while it was watched" in note for note in report.notes)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what takes SGLang 20 seconds take 0.4, and the doctor's patience be shorter or longer than that."""
    for name, seconds in (
        ("sgdoctor.gather.SERVER_SECONDS", 0.2),
        ("sgdoctor.collect.server.STARTING_SECONDS", 0.3),
        ("sgdoctor.collect.server_state._HANG_SECONDS", 0.3),
        ("sgdoctor.watching.HEALTH_SECONDS", 0.6),
    ):
        monkeypatch.setattr(name, seconds)


def silent_after(answers: int, then: servers.Behaviour) -> servers.Behaviour:
    """Answer with so many metrics pages, and then otherwise."""
    left = answers

    def behave(handler: Handler) -> None:
        nonlocal left
        left -= 1
        (reply(200, PAGE.encode(), "text/plain") if left >= 0 else then)(handler)

    return behave


@pytest.mark.parametrize("then", [servers.hang, servers.close, reply(502, b"<html>Bad Gateway</html>")])
def test_a_server_that_answers_no_more_is_not_called_ready(
    then: servers.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "REQUEST_SECONDS", 0.2)
    routes = sglang()

    def models(handler: Handler) -> None:
        late = handler.server.paths.count("/metrics") >= 3
        (then if late else routes["/v1/models"])(handler)

    with running({**routes, "/metrics": silent_after(3, then), "/v1/models": models}) as there:
        report = watched(there.url, seconds=1.5)
    assert report.summary.status == "unreachable"
    assert any("went away while it was watched" in note for note in report.notes)


def test_a_server_whose_pages_alone_come_no_more_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "REQUEST_SECONDS", 0.2)
    with running({**sglang(), "/metrics": silent_after(3, servers.hang)}) as there:
        report = watched(there.url, seconds=1.5)
    assert report.summary.status == "busy"
    assert any("times no page: no answer within 0.2 s" in note for note in report.notes)


def test_a_server_that_fails_all_the_time_did_not_go_away() -> None:
    with running({}, otherwise=reply(500, b"boom")) as there:
        report = watched(there.url)
    assert report.summary.status == "unhealthy"
    assert not any("went away" in note for note in report.notes)


def test_a_page_that_is_late_once_is_no_server_that_is_gone() -> None:
    """The last page of the window, for one."""
    with running({**sglang(), "/metrics": silent_after(3, servers.close)}) as there:
        (report,) = examine.check(
            Sources(url=there.url, watch=3600.0),
            progress=lambda _said: there.paths.count("/metrics") > 3 and watching.end(),
        ).deployments
        watching.begin()
    assert report.summary.status == "busy"


def test_a_server_that_was_never_there_did_not_go_away() -> None:
    with running({}) as there:
        pass
    report = watched(there.url)
    assert report.summary.status == "unreachable"
    assert not any("went away" in note for note in report.notes)


def test_a_server_that_comes_up_meanwhile_is_not_called_unreachable() -> None:
    with running({}) as gone:
        pass
    with contextlib.ExitStack() as stack:
        started: list[servers.Server] = []

        def progress(said: str) -> None:
            if "%" in said and not started:
                started.append(stack.enter_context(running(sglang(), port=gone.server_address[1])))

        (report,) = examine.check(Sources(url=gone.url, watch=1.5), progress=progress).deployments
    assert report.summary.status == "busy"
    assert any("came up while it was watched" in note for note in report.notes)


def test_a_server_that_gets_ready_meanwhile_is_not_called_starting() -> None:
    """/health says 503 until the warm-up request was answered."""
    answers = [reply(503), reply(200)]

    def health(handler: Handler) -> None:
        answers.pop(0)(handler)

    routes = {**sglang(), "/health": health}
    with running(routes) as there:
        report = watched(there.url)
    assert report.summary.status == "busy"
    assert not any("came up" in note for note in report.notes)


FAILS = servers.slowly(0.4, reply(503))
ANSWERED = '[2026-11-30 23:59:31] INFO:     127.0.0.1:40460 - "POST /generate HTTP/1.1" 200 OK\n'


def test_a_server_that_is_started_again_meanwhile() -> None:
    """Its port refuses connections in between, and its counters begin anew, lower than they were."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(running({**sglang(), "/metrics": growing("realtime_tokens_total", 9)}))
        port, shares = first.server_address[1], 0
        again = {**sglang("dense-healthy"), "/metrics": growing("realtime_tokens_total", -40)}

        def progress(said: str) -> None:
            nonlocal shares
            shares += "%" in said
            if shares == 6:
                first.shutdown()
                first.server_close()
            elif shares == 9:
                stack.enter_context(running(again, port=port))
            elif shares == 14:
                watching.end()

        (report,) = examine.check(Sources(url=first.url, watch=3600.0), progress=progress).deployments
        watching.begin()
    assert any("started again while it was watched" in note for note in report.notes)
    assert any("times no page: connection refused" in note for note in report.notes)
    assert report.summary.status != "unreachable"


@pytest.mark.usefixtures("hasty")
def test_health_is_asked_once_more_where_it_had_too_little_time(tmp_path: Path) -> None:
    """A scheduler that neither answers nor computes: /health says 503, once it has waited for it."""
    log = tmp_path / "server.log"
    log.write_text(LINE + ANSWERED)
    with running({**sglang(), "/health": FAILS, "/health_generate": FAILS}) as there:
        report = watched(there.url, logs=(str(log),), seconds=0.7)
    assert report.summary.status == (
        "hung, waits for its scheduler, which neither answers nor works on anything"
    )
    assert "RUN502" in [finding.code for finding in report.findings]
    assert there.paths[-1] == "/health_generate"  # a second look at it


@pytest.mark.usefixtures("hasty")
def test_a_url_alone_does_not_tell_a_hang_from_a_pause_and_says_what_would() -> None:
    with running({**sglang(), "/health": FAILS, "/health_generate": FAILS}) as there:
        report = watched(there.url, seconds=0.7)
    assert report.summary.status == "unhealthy"
    said = (
        "and /health fails: it hangs, was paused, takes new weights or compiles; --log beside --watch tells"
    )
    assert any(said in note for note in report.notes)
    assert next(rule for rule in report.unknown if rule.code == "RUN502").missing == ["server.state"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        (["pause_generation"], "POST /continue_generation"),
        (["pause_generation", "continue_generation", "pause_generation"], "POST /continue_generation"),
        (["release_memory_occupation"], "POST /resume_memory_occupation"),
    ],
)
def test_a_server_that_was_paused_does_not_hang(tmp_path: Path, asked: list[str], waits: str) -> None:
    """As training does it while it replaces the weights; nobody answers /health then."""
    log = tmp_path / "server.log"
    log.write_text(LINE + "".join(ANSWERED.replace("generate", what) for what in asked))
    with running({**sglang(), "/health": FAILS, "/health_generate": FAILS}) as there:
        report = watched(there.url, logs=(str(log),), seconds=0.7)
    assert report.summary.status == f"paused, waits for {waits}"
    assert "RUN502" not in [finding.code for finding in report.findings]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("lines", "state"),
    [
        (["pause_generation", "continue_generation"], "hung"),  # it was let go on
        ([], "unhealthy"),  # requests are not logged (--log-level-http warning)
    ],
)
def test_a_hang_is_told_where_the_log_shows_that_nobody_paused_it(
    tmp_path: Path, lines: list[str], state: str
) -> None:
    log = tmp_path / "server.log"
    log.write_text(LINE + "".join(ANSWERED.replace("generate", what) for what in lines))
    with running({**sglang(), "/health": FAILS, "/health_generate": FAILS}) as there:
        report = watched(there.url, logs=(str(log),), seconds=0.7)
    assert report.summary.status is not None
    assert report.summary.status.startswith(state)
    assert ("RUN502" in [finding.code for finding in report.findings]) == (state == "hung")


@pytest.mark.usefixtures("hasty")
def test_a_health_that_does_not_ask_the_scheduler_hides_no_hang(tmp_path: Path) -> None:
    """With SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION off /health is always 200, and /health_generate tells."""
    log = tmp_path / "server.log"
    log.write_text(LINE + ANSWERED)
    with running({**sglang(), "/health": reply(200), "/health_generate": FAILS}) as there:
        report = watched(there.url, logs=(str(log),), seconds=0.7)
    assert report.summary.status is not None
    assert report.summary.status.startswith("hung")


@pytest.mark.usefixtures("hasty")
def test_a_health_that_takes_longer_than_anybody_waits_is_no_health(tmp_path: Path) -> None:
    """SGLANG_HEALTH_CHECK_TIMEOUT can be longer than its 20 seconds."""
    log = tmp_path / "server.log"
    log.write_text(LINE + ANSWERED)
    with running({**sglang(), "/health": servers.hang, "/health_generate": servers.hang}) as there:
        report = watched(there.url, logs=(str(log),), seconds=0.7)
    assert report.summary.status is not None
    assert report.summary.status.startswith("hung")


@pytest.mark.usefixtures("hasty")
def test_requests_that_run_and_get_no_token_are_of_a_gauge_from_before() -> None:
    """SGLang sets its gauges with every record of a batch, and 30 s after the last one."""
    with running({**sglang(), "/health_generate": reply(200)}) as there:
        report = watched(there.url, seconds=0.7)
    assert report.summary.status == "idle"


@pytest.mark.usefixtures("hasty")
def test_a_server_that_works_on_something_long_is_no_hang() -> None:
    routes = {**sglang(), "/health": FAILS, "/metrics": growing("realtime_tokens_total", 9)}
    with running(routes) as there:
        report = watched(there.url, seconds=0.7)
    assert report.summary.status == "busy"
    assert "/health_generate" not in there.paths


@pytest.mark.usefixtures("hasty")
def test_tokens_tell_that_a_server_works_while_its_health_is_still_asked_for() -> None:
    routes = {**sglang(), "/health": servers.hang, "/metrics": growing("realtime_tokens_total", 9)}
    with running(routes) as there:
        report = watched(there.url, seconds=0.3)
    assert report.summary.status == "busy"


def test_the_bar() -> None:
    assert watching.bar(0.0) == "[                    ] 0%"
    assert watching.bar(0.5) == "[==========          ] 50%"
    assert watching.bar(1.0) == "[====================] 100%"


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (Sources(watch=60.0), "name it with --url"),
        (Sources(watch=-1.0, url="http://h:1"), "takes 0 to 3600 seconds"),
        (Sources(watch=float("nan"), url="http://h:1"), "takes 0 to 3600 seconds"),
        (Sources(watch=60.0, url="http://h:1", sample="moe-no-config"), "leave --snapshot or --sample out"),
        (Sources(watch=60.0, logs=("-",)), "standard input is none"),
    ],
)
def test_what_cannot_be_watched_is_refused(sources: Sources, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        examine.check(sources)
