"""What a server is doing, and what it waits for: from its health code, its log and its load together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sgdoctor.facts import Facts, Unknown

STATE, WAITS = "server.state", "server.waiting_for"

_STAGES = {
    "joining": "all ranks to join (torch.distributed)",
    "loading": "the weights to be loaded",
    "sizing": "the KV cache and the kernels to be set up",
    "capturing": "the CUDA graphs to be captured",
    "compiling": "DeepGEMM's kernels to be compiled",
    "warming_up": "the answer to its warm-up request",
}
_GOES_ON = {
    "pause_generation": "POST /continue_generation",
    "release_memory_occupation": "POST /resume_memory_occupation",
}
_OVER = ("dead", "stopped")
# A shorter window says nothing: a single long prefill or a graph that is captured again may take as long.
_HANG_SECONDS = 20.0
# Clients that each wait for their answer keep a queue steady: what it sways by is no growth.
_OVERLOAD_SECONDS, _OVERLOAD_GROWTH, _OVERLOAD_SHARE = 25.0, 2.0, 0.1


class _State(NamedTuple):
    """A state, what is waited for, and the facts that say so."""

    name: str
    inputs: tuple[str, ...]
    waits: str | None = None


def derive(facts: Facts) -> None:
    """Derive server.state and server.waiting_for; both stay unknown where nothing tells them apart.

    A server that answers is judged by its answers, one that does not by its log: a log may be of an earlier
    run, and a refused connection is as well a server that loads its weights as one that is gone (the HTTP
    server starts after the schedulers, 0.5.7 to 0.5.23).
    """
    status = facts.value("server.status")
    judge: dict[str, Callable[[Facts], _State | None]] = {
        "ready": _serving,
        "unauthorized": _serving,
        "starting": _not_ready,
        "unhealthy": _unhealthy,
        "unreachable": _silent,
    }
    if status in judge:
        found = judge[status](facts)
    else:
        found = _unanswered(facts) if facts.known("server.url") else _logged(facts)
    if found is None:
        reason = _reason(facts, status)
        if _stands_still(facts) and reason not in facts.notes:
            facts.notes.append(reason)
        missing = [] if status else ["server.status"]
        facts.set_unknown(STATE, reason, missing)
        facts.set_unknown(WAITS, reason, missing)
        return
    facts.derive(STATE, found.name, found.inputs)
    facts.derive(WAITS, found.waits, found.inputs)


def _reason(facts: Facts, status: str | None) -> str:
    if status == "unreachable":
        if facts.value("server.listens"):
            return "it takes connections and answers nothing"
        return "nothing answers: it still loads, or it is gone; its --log tells"
    unanswered = facts.get("server.status")
    if facts.known("server.url") and isinstance(unanswered, Unknown):
        return unanswered.reason
    if _stands_still(facts):
        still = f"not a token came in {facts.value('window.seconds'):.0f} s, and /health fails"
        if facts.value("window.log_silent"):
            return f"{still}; it hangs or was paused: its log does not show the requests that tell"
        if facts.known("window.log_silent"):
            return (
                f"{still}; its log goes on, so that it may compile kernels or take new weights: watch longer"
            )
        return f"{still}: it hangs, was paused, takes new weights or compiles; --log beside --watch tells"
    if status == "unhealthy":
        return "/health fails: whether it hangs or works on something long needs --watch 30 and its --log"
    if facts.known("log.records"):
        return "the log does not say what the server does now"
    return "no server was asked"


def _serving(facts: Facts) -> _State | None:
    """Judge a server whose scheduler answers, by its load."""
    if facts.value("server.health") != 200:
        return None
    read = ("server.health",)
    if _overloaded(facts):
        queue = ("window.queued_least", "window.queue_growth", "window.queued_requests")
        return _State("overloaded", (*read, *queue), "room for the requests in its queue")
    names: tuple[str, ...] = ("window.running_requests", "window.queued_requests")
    if facts.missing(*names):
        names = ("metrics.running_requests", "metrics.queued_requests")
    if facts.missing(*names):
        return _State("ready", read)
    inputs = (*read, *names, *(("window.worked_tokens",) if facts.known("window.worked_tokens") else ()))
    worked, (running, queued) = facts.value("window.worked_tokens"), (facts.value(name) for name in names)
    if worked == 0 and facts.value("window.seconds") >= _HANG_SECONDS:
        running = 0  # the gauge is as old as the last batch's record, half a minute at most
    idle = not running and not queued and not worked
    return _State("idle" if idle else "busy", inputs)


def _overloaded(facts: Facts) -> bool:
    """Whether some request always waits, and more and more of them do."""
    queued, growth = facts.value("window.queued_requests"), facts.value("window.queue_growth")
    if not facts.value("window.queued_least") or growth is None or queued is None:
        return False
    long_enough = facts.value("window.seconds", 0.0) >= _OVERLOAD_SECONDS
    return long_enough and bool(growth >= max(_OVERLOAD_GROWTH, _OVERLOAD_SHARE * queued))


def _not_ready(facts: Facts) -> _State:
    """Judge one that says 503 at once: before its first request was answered, and while it stops."""
    read = ("server.status",)
    if facts.value("log.stopped"):
        return _State("stopping", (*read, "log.stopped"), "its running requests to end")
    stage = facts.value("log.stage")
    if stage in ("compiling", "warming_up"):
        return _State("warming_up", (*read, "log.stage"), _STAGES[stage])
    return _State("warming_up", read, _STAGES["warming_up"])


def _unhealthy(facts: Facts) -> _State | None:
    """Judge one whose scheduler did not answer /health, by whether it works on something."""
    read = ("server.status",)
    if facts.value("log.stage") == "compiling":
        return _State("warming_up", (*read, "log.stage"), _STAGES["compiling"])
    if facts.value("window.worked_tokens"):
        return _State("busy", (*read, "window.worked_tokens"))
    if facts.value("log.paused") in _GOES_ON:
        return _State("paused", (*read, "log.paused"), _GOES_ON[facts.value("log.paused")])
    # A log that goes on tells of kernels that are compiled; without a log that is not told from a hang.
    if not _stands_still(facts) or not facts.value("window.log_silent") or not facts.known("log.paused"):
        return None
    inputs = (
        *read,
        "server.health",
        "window.worked_tokens",
        "window.seconds",
        "window.log_silent",
        "log.paused",
    )
    return _State("hung", inputs, "its scheduler, which neither answers nor works on anything")


def _stands_still(facts: Facts) -> bool:
    """Whether nothing was worked on for a while, and /health got nothing from the scheduler.

    Another code than 503 is an error of the HTTP server itself.
    """
    if facts.value("server.status") != "unhealthy" or facts.value("server.health") not in (503, None):
        return False
    still = facts.value("window.worked_tokens") == 0
    return still and bool(facts.value("window.seconds", 0.0) >= _HANG_SECONDS)


def _unanswered(facts: Facts) -> _State | None:
    """Judge one whose /health took too long to say anything, by whether it worked meanwhile."""
    return _State("busy", ("window.worked_tokens",)) if facts.value("window.worked_tokens") else None


def _silent(facts: Facts) -> _State | None:
    """Judge one that does not answer: its log says whether it starts or is gone."""
    told = _logged(facts)
    refused = facts.value("server.listens") is False
    alive = facts.value("server.process") is True
    if told is not None and not (alive and told.name in _OVER):
        return told._replace(inputs=("server.status", *told.inputs))
    if refused and facts.value("log.ready") and not alive:
        return _State("dead", ("server.status", "server.listens", "log.ready"))
    if refused and alive and not facts.value("log.ready"):
        inputs = ("server.status", "server.listens", "server.process")
        return _State("starting", inputs, "its HTTP server, which is started after the model is loaded")
    return None


def _logged(facts: Facts) -> _State | None:
    """Judge one of which there is a log alone, as it stood at the log's end."""
    if facts.value("log.died"):
        return _State("dead", ("log.died",))
    if facts.value("log.stopped"):
        return _State("stopped", ("log.stopped",))
    if not facts.value("log.has_start") or facts.value("log.ready") or facts.value("log.decode_batches"):
        return None
    stage = facts.value("log.stage")
    inputs = ("log.has_start", "log.ready", *(("log.stage",) if stage else ()))
    name = "warming_up" if facts.value("log.listening") else "starting"
    if stage is None:
        return _State(name, inputs, "the first steps of its start")
    if name == "warming_up" and stage != "compiling":
        stage = "warming_up"
    return _State(name, inputs, _STAGES.get(stage))
