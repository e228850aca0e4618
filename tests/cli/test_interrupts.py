"""Ctrl-C and SIGTERM while servers are watched: real child processes, which get real signals."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.collect import servers
from tests.collect.servers import Behaviour, Handler, Server, running, sglang

# Looks every few milliseconds, so that nobody waits long for a few pages.
QUICK = """
import sys
from sgdoctor import watching
from sgdoctor.collect import window
window.PERIOD, watching.LEAST = 0.05, 0.0
from sgdoctor.cli import main
sys.exit(main())
"""
PATIENCE = 60.0


@contextlib.contextmanager
def watching(*there: Server) -> Iterator[subprocess.Popen[str]]:
    """Run a check of these servers that would watch them for an hour."""
    urls = [word for each in there for word in ("--url", each.url)]
    command = [sys.executable, "-c", QUICK, "check", *urls, "--watch", "3600", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def until(so: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.02)):
        if so():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


def looked(there: Server, path: str, times: int) -> Callable[[], bool]:
    return lambda: there.paths.count(path) >= times


def hangs_from(answers: int, behaviour: Behaviour) -> Behaviour:
    """Answer so often, and then take the question and say nothing."""
    left = answers

    def behave(handler: Handler) -> None:
        nonlocal left
        left -= 1
        (behaviour if left >= 0 else servers.hang)(handler)

    return behave


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_seen_until_then_is_reported(number: signal.Signals) -> None:
    with running(sglang()) as there, watching(there) as child:
        until(looked(there, "/metrics", 8))
        child.send_signal(number)
        out, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, errors) == (0, "")
    (deployment,) = json.loads(out)["deployments"]
    notes = deployment["notes"]
    assert any(note.startswith(f"{there.url}/metrics: interrupted; this is about the ") for note in notes)
    assert any("3.0 requests running" in note for note in notes)


def test_all_servers_of_a_fleet_are_reported() -> None:
    with running(sglang()) as one, running(sglang()) as other, watching(one, other) as child:
        until(lambda: looked(one, "/metrics", 8)() and looked(other, "/metrics", 8)())
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    for deployment in json.loads(out)["deployments"]:
        assert any("interrupted" in note for note in deployment["notes"])


def test_the_second_stops_at_once() -> None:
    """The first one waits for the page that was asked for, which does not come."""
    routes = sglang()
    with (
        running({**routes, "/metrics": hangs_from(3, routes["/metrics"])}) as there,
        watching(there) as child,
    ):
        until(looked(there, "/metrics", 4))
        while child.poll() is None:
            child.send_signal(signal.SIGINT)  # those that come at the same time are one
            time.sleep(0.1)
        out, errors = child.communicate(timeout=PATIENCE)
    assert child.returncode in (3, -signal.SIGINT)  # the latter: a third met Python's end
    assert (out, errors) == ("", "sgdoctor: interrupted\n")


def test_before_anything_is_watched_one_is_enough() -> None:
    with running({**sglang(), "/v1/models": servers.hang}) as there, watching(there) as child:
        until(looked(there, "/v1/models", 1))
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out, errors) == (3, "", "sgdoctor: interrupted\n")
