"""A server and its log watched for a while, for `--watch`."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.report.model import Looked
from sgdoctor.sources import Sources

if TYPE_CHECKING:
    from sgdoctor.collect.http_get import Answer, Target
    from sgdoctor.collect.window import Window
    from sgdoctor.gather import Gathered, Progress

LEAST, MOST = 5.0, 3600.0  # seconds
# SGLang gives its scheduler 20 s for /health (SGLANG_HEALTH_CHECK_TIMEOUT, 0.5.7 to 0.5.23).
HEALTH_SECONDS = 25.0
BAR = 20  # characters
# What a proxy says when nothing is behind it.
_OF_PROXIES = ("HTTP 502", "HTTP 503", "HTTP 504")
_NOT_YET = ("unreachable", "starting")


class _Ending:
    """Whether the watching of this process has begun, and whether it is to end before its time.

    Plain values: a signal handler that took a lock could wait for the thread that it interrupted.
    """

    begun = False
    asked_for = False


def begin() -> None:
    """Forget what was ended before."""
    _Ending.begun = _Ending.asked_for = False


def end() -> bool:
    """End all watching of this process; return whether any had begun. A signal handler may call it."""
    _Ending.asked_for = _Ending.begun
    return _Ending.begun


def wanted(sources: Sources) -> None:
    """Raise UsageError where the sources cannot be watched, before anything is asked."""
    from sgdoctor.collect import log_follow

    seconds = sources.watch
    if seconds is None:
        return
    if not LEAST <= seconds <= MOST:
        raise UsageError(f"--watch {seconds:g}: takes {LEAST:g} to {MOST:g} seconds")
    if not sources.url and not sources.urls and not sources.logs:
        raise UsageError("--watch says how long a server is watched: name it with --url, or its --log")
    for name in sources.logs:
        log_follow.can_grow(name)
    if sources.snapshot or sources.sample:
        raise UsageError("--watch is for a running server: leave --snapshot or --sample out")


def watch(live: Gathered, sources: Sources, say: Progress) -> None:
    """Watch the server and the logs that ``sources`` name, and set window.* and what has become of it."""
    from sgdoctor.collect import http_get, window, window_facts
    from sgdoctor.collect.log_follow import Follower

    seconds = sources.watch
    if seconds is None:
        return
    facts = live.facts
    where = http_get.target(sources.url, sources.api_key) if sources.url else None
    if where is not None and not facts.known("server.health"):  # something else answered there
        if not sources.logs:
            window_facts.lack(facts, f"{where.url} is no SGLang server")
            return
        where = None
    what = f"watching {where.url if where is not None else ', '.join(sources.logs)}"
    health = _Health(facts, where, seconds)
    _Ending.begun = True
    with contextlib.ExitStack() as opened:
        logs = [opened.enter_context(contextlib.closing(Follower(name))) for name in sources.logs]
        seen = window.watch(
            where, seconds, logs, lambda share: say(f"{what} {bar(share)}"), lambda: _Ending.asked_for
        )
    if not seen.cut_short:
        health.take()
        asked = facts.known("server.status") or _unanswered(facts)
        if where is not None and asked and seconds >= HEALTH_SECONDS and _stands_still(seen):
            _ask_again(facts, where)
        if where is not None and _answers(seen) and facts.value("server.status") in _NOT_YET:
            _came(facts, where)
    if seen.pages:
        place = f"{where.url}/metrics for {window_facts.length(seen.seconds)}" if where is not None else what
        live.looked.append(Looked("metrics", place, "partly" if seen.missed else "understood", seen.last))
    was_there = bool(seen.pages) or facts.value("server.status") != "unreachable"
    gone = seen.last_kind in http_get.NOT_REACHED and was_there
    if where is not None and (gone or _silent(seen, where)):
        _gone(facts, where, seen.last_kind, seen.last)
    if seen.cut_short and seen.seconds < LEAST:
        facts.notes.append(f"{what}: interrupted after {seen.seconds:.1f} s, too short to tell anything")
        window_facts.lack(facts, f"interrupted after {seen.seconds:.1f} s")
        return
    window_facts.set_facts(facts, seen)


def bar(share: float) -> str:
    """Return a progress bar for the share of something that is over."""
    return f"[{'=' * int(share * BAR):<{BAR}}] {share:.0%}"


def _unanswered(facts: Facts) -> bool:
    """Whether /health was asked and had not answered in time."""
    nothing = facts.known("server.health") and facts.value("server.health") is None
    return nothing and not facts.known("server.status")


def _stands_still(seen: Window) -> bool:
    """Whether requests run and not a token was worked on; the gauges alone may be half a minute old."""
    if len(seen.pages) < 2 or seen.several or seen.last:
        return False
    first, last = seen.pages[0], seen.pages[-1]
    worked = [last.counted(name, first) for name in ("decoded_tokens", "prefilled_tokens")]
    return bool(last.running) and worked == [0, 0]


def _answers(seen: Window) -> bool:
    """Whether the server itself answered the last question."""
    return seen.without_metrics or (bool(seen.pages) and not seen.last)


def _came(facts: Facts, where: Target) -> None:
    """Correct the status of a server that answered nothing at first, or was not ready."""
    from sgdoctor.collect import http_get

    before = facts.value("server.status")
    _take(facts, where, http_get.get(where, "/health", HEALTH_SECONDS))
    if before == "unreachable" and facts.value("server.status") != before:
        facts.drop("server.listens")
        facts.notes.append(
            f"{where.url}: came up while it was watched; its flags and model were not asked for: check again"
        )


def _silent(seen: Window, where: Target) -> bool:
    """Whether there is no answer any more, or a proxy's that has none; a page may be late, and pages slow."""
    from sgdoctor.collect import http_get, window

    nothing = seen.last_kind in ("timeout", "broken") or seen.last in _OF_PROXIES
    if not nothing or not seen.pages or seen.in_a_row < 2:
        return False
    answer = http_get.get(where, "/v1/models", window.REQUEST_SECONDS)
    return answer.status is None or answer.said in _OF_PROXIES


def _gone(facts: Facts, where: Target, kind: str, said: str) -> None:
    """Correct the status of a server that answered at first and does not any more."""
    for name in ("server.status", "server.health", "server.listens"):
        facts.drop(name)
    facts.set("server.status", "unreachable", source="http", place=f"{where.url}/metrics")
    facts.set("server.health", None, source="http", place=f"{where.url}/metrics")
    if kind in ("refused", "timeout"):
        facts.set("server.listens", kind == "timeout", source="http", place=f"{where.url}/metrics")
    facts.notes.append(f"{where.url}: went away while it was watched: {said}")


class _Health:
    """Asks /health again, beside the watching, where it had too little time to answer."""

    def __init__(self, facts: Facts, where: Target | None, seconds: float) -> None:
        self._facts = facts
        self._thread: threading.Thread | None = None
        open_question = where is not None and _unanswered(facts)
        if where is None or not open_question or seconds < HEALTH_SECONDS:
            return
        self._where = where
        self._thread = threading.Thread(target=self._ask, name="sgdoctor-health", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from sgdoctor.collect import http_get

        self._answer = http_get.get(self._where, "/health", HEALTH_SECONDS)

    def take(self) -> None:
        """Set server.status and server.health from the answer."""
        if self._thread is not None:
            self._thread.join()
            _take(self._facts, self._where, self._answer)


def _ask_again(facts: Facts, where: Target) -> None:
    """Ask /health_generate, and give it the time that it takes.

    It asks the scheduler also where /health does not (SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION off). A server
    without requests generates a token for it; of one with requests any output counts (health_generate in
    srt/entrypoints/http_server.py, 0.5.7 to 0.5.23).
    """
    from sgdoctor.collect import http_get

    _take(facts, where, http_get.get(where, "/health_generate", HEALTH_SECONDS))


def _take(facts: Facts, where: Target, answer: Answer) -> None:
    """Set server.status and server.health from an answer that had time enough."""
    from sgdoctor.collect.server import STARTING_SECONDS

    if answer.status not in (200, 503) and answer.kind != "timeout":
        return
    status = "ready" if answer.status == 200 else "unhealthy"
    if status == "ready" and facts.value("server.status") == "unauthorized":
        return
    if answer.status == 503 and answer.seconds < STARTING_SECONDS:
        status = "starting"
    for name, value in (("server.status", status), ("server.health", answer.status)):
        facts.drop(name)
        facts.set(name, value, source="http", place=where.url + answer.path)
