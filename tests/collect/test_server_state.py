"""What a server is doing: the same code told apart by what else is known."""

from __future__ import annotations

from typing import Any

import pytest

from sgdoctor.collect import server_state
from sgdoctor.facts import Facts

READY: dict[str, Any] = {"server.url": "http://h:1", "server.status": "ready", "server.health": 200}
STUCK: dict[str, Any] = {"server.url": "http://h:1", "server.status": "unhealthy", "server.health": 503}
SILENT: dict[str, Any] = {"server.url": "http://h:1", "server.status": "unreachable", "server.health": None}
GONE: dict[str, Any] = {**SILENT, "server.listens": False}
EARLY: dict[str, Any] = {"server.url": "http://h:1", "server.status": "starting", "server.health": 503}
LOG: dict[str, Any] = {
    "log.records": 40, "log.has_start": True, "log.ready": False, "log.died": False, "log.stopped": False,
    "log.listening": False, "log.decode_batches": 0, "log.stage": None,
}  # fmt: skip
WINDOW: dict[str, Any] = {
    "window.seconds": 60.0, "window.running_requests": 12.0, "window.queued_requests": 0.0,
    "window.queued_least": 0, "window.queue_growth": 0.0, "window.worked_tokens": 9000,
}  # fmt: skip
HUNG = {**STUCK, **WINDOW, "window.worked_tokens": 0, "window.log_silent": True, "log.paused": None}
STILL = "not a token came in 60 s, and /health fails"
LOAD = {**READY, "metrics.running_requests": 3, "metrics.queued_requests": 0}
IDLE = {**READY, "metrics.running_requests": 0, "metrics.queued_requests": 0}


def queue(mean: float, least: int, growth: float) -> dict[str, Any]:
    """Return a busy server with such a queue."""
    waiting = {"window.queued_requests": mean, "window.queued_least": least, "window.queue_growth": growth}
    return {**READY, **WINDOW, **waiting}


def judged(known: dict[str, Any]) -> Facts:
    facts = Facts()
    for name, value in known.items():
        facts.set(name, value, source="http", place="here")
    server_state.derive(facts)
    return facts


@pytest.mark.parametrize(
    ("known", "state"),
    [
        (READY, "ready"),  # no metrics page
        (IDLE, "idle"),
        (LOAD, "busy"),
        ({**LOAD, "metrics.queued_requests": 900}, "busy"),  # one look
        ({**IDLE, "server.status": "unauthorized"}, "idle"),
        ({**READY, **WINDOW}, "busy"),
        # The gauges stand still between two requests: the tokens tell.
        ({**READY, **WINDOW, "window.running_requests": 0.0}, "busy"),
        ({**READY, **WINDOW, "window.running_requests": 0.0, "window.worked_tokens": 0}, "idle"),
        ({**READY, **WINDOW, "window.worked_tokens": 0}, "idle"),  # the gauge is from before
        ({**READY, **WINDOW, "window.worked_tokens": 0, "window.seconds": 6.0}, "busy"),
        ({**READY, **WINDOW, "window.worked_tokens": 0, "window.queued_requests": 2.0}, "busy"),
        (queue(40.0, 9, 30.0), "overloaded"),
        # A steady queue, of clients that wait for their answers or of a batch that is worked off.
        (queue(900.0, 880, 9.0), "busy"),
        (queue(900.0, 500, -300.0), "busy"),
        # A burst that came meanwhile.
        (queue(20.0, 0, 60.0), "busy"),
        (EARLY, "warming_up"),
        ({**EARLY, **LOG, "log.stage": "compiling"}, "warming_up"),
        ({**EARLY, **LOG, "log.stopped": True}, "stopping"),
        (STUCK, None),  # one look does not tell a hang from a long prefill
        ({**STUCK, **WINDOW}, "busy"),
        (HUNG, "hung"),
        ({**HUNG, "window.seconds": 8.0}, None),
        ({**HUNG, "window.log_silent": False}, None),  # it compiles, or captures graphs again
        ({**STUCK, **WINDOW, "window.worked_tokens": 0}, None),  # no log
        ({**HUNG, **LOG, "log.stage": "compiling"}, "warming_up"),
        ({**HUNG, "log.paused": "pause_generation"}, "paused"),
        ({**STUCK, "log.paused": "release_memory_occupation"}, "paused"),
        ({**HUNG, "server.health": 500}, None),
        ({**HUNG, "server.health": None}, "hung"),  # it waits for longer than anybody asked
        ({"server.url": "http://h:1"}, None),  # /health did not answer in time
        ({"server.url": "http://h:1", **WINDOW}, "busy"),
        ({"server.url": "http://h:1", **WINDOW, "window.worked_tokens": 0}, None),
        (GONE, None),  # it may still load its weights
        ({**GONE, **LOG, "log.stage": "loading"}, "starting"),
        ({**GONE, **LOG, "log.ready": True}, "dead"),  # killed without a word
        ({**SILENT, **LOG, "log.ready": True}, None),  # a network in between
        ({**SILENT, "server.listens": True, **LOG, "log.ready": True}, None),  # its HTTP server hangs
        ({**GONE, "server.process": True}, "starting"),
        ({**GONE, "server.process": True, **LOG, "log.stage": "loading"}, "starting"),
        ({**GONE, "server.process": True, **LOG, "log.ready": True}, None),
        ({**GONE, "server.process": True, **LOG, "log.died": True}, "starting"),  # another run's log
        ({**GONE, **LOG, "log.died": True}, "dead"),
        ({**GONE, **LOG, "log.stopped": True}, "stopped"),
        ({**LOG, "log.stage": "capturing"}, "starting"),
        ({**LOG, "log.listening": True, "log.stage": "warming_up"}, "warming_up"),
        ({**LOG, "log.died": True}, "dead"),
        ({**LOG, "log.ready": True}, None),  # a log ends somewhere
        ({**LOG, "log.has_start": False}, None),
        # An earlier run's log beside a server that answers.
        ({**READY, **LOG, "log.died": True}, "ready"),
    ],
)  # fmt: skip
def test_states(known: dict[str, Any], state: str | None) -> None:
    facts = judged(known)
    assert facts.value("server.state") == state
    assert facts.known("server.waiting_for") == (state is not None)


def test_tokens_that_decide_are_named_beside_a_gauge_that_is_old() -> None:
    facts = judged({**READY, **WINDOW, "window.running_requests": 3.0, "window.queued_requests": 0.0,
                    "window.worked_tokens": 0})  # fmt: skip
    assert facts.value("server.state") == "idle"
    assert "window.worked_tokens" in facts.get("server.state").inputs


@pytest.mark.parametrize(
    ("known", "waits"),
    [
        ({**GONE, **LOG, "log.stage": "joining"}, "all ranks to join (torch.distributed)"),
        ({**GONE, **LOG, "log.stage": "loading"}, "the weights to be loaded"),
        ({**GONE, **LOG, "log.stage": "capturing"}, "the CUDA graphs to be captured"),
        ({**EARLY, **LOG, "log.stage": "compiling"}, "DeepGEMM's kernels to be compiled"),
        (EARLY, "the answer to its warm-up request"),
        ({**GONE, **LOG}, "the first steps of its start"),
        ({**GONE, **LOG, "log.died": True}, None),
        (READY, None),
    ],
)
def test_what_it_waits_for(known: dict[str, Any], waits: str | None) -> None:
    assert judged(known).value("server.waiting_for") == waits


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (GONE, "nothing answers: it still loads, or it is gone; its --log tells"),
        ({**SILENT, "server.listens": True}, "it takes connections and answers nothing"),
        (STUCK, "/health fails: whether it hangs or works on something long needs --watch 30 and its --log"),
        ({**LOG, "log.ready": True}, "the log does not say what the server does now"),
        (
            {**STUCK, **WINDOW, "window.worked_tokens": 0},
            f"{STILL}: it hangs, was paused, takes new weights or ",
        ),
        (
            {**HUNG, "window.log_silent": False},
            f"{STILL}; its log goes on, so that it may compile kernels or ",
        ),
        ({"server.url": "http://h:1"}, "no source given tells"),  # what read_server said of it
    ],
)
def test_why_it_is_not_known(known: dict[str, Any], reason: str) -> None:
    assert judged(known).get("server.state").reason.startswith(reason)
