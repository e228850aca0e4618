"""Several servers, asked at the same time: a report of each, and in what they differ from one another."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sgdoctor import gather
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known
from sgdoctor.report.model import DeploymentReport, Drift
from sgdoctor.sources import Sources

WORKERS = 64
# Those that are watched are watched at the same time.
MOST_WATCHED = 256

# What is of one server cannot be meant for several.
_OF_ONE = ("--log", "--launch", "--", "--server-info", "--metrics", "--snapshot", "--sample")

_COMPARED = (
    "sglang.version",
    "torch.version",
    "triton.version",
    "host.driver",
    "gpu.name",
    "gpu.count",
    "kv.max_running_requests",
    "moe.up.source",
    "moe.down.source",
)
_FAMILIES = ("arg.", "env.", "package.")
# What each server has of its own.
_OWN = frozenset(
    f"arg.{name}"
    for name in (
        "host", "port", "api_key", "admin_api_key", "random_seed", "base_gpu_id", "numa_node", "node_rank",
        "dist_init_addr", "crash_dump_folder", "export_metrics_to_file_dir", "forward_pass_metrics_ipc_name",
        "forward_pass_metrics_worker_id", "ssl_keyfile", "ssl_certfile", "log_requests_target",
        "download_dir",
    )
)  # fmt: skip
_OWN_ENDS = ("_port", "_ip", "_addr")
_LONGEST = 80

Judge = Callable[[gather.Gathered, Sequence[CompiledRule]], DeploymentReport]


class _Server(msgspec.Struct):
    """What is kept of a server once it has been judged: its facts are not."""

    url: str
    report: DeploymentReport
    group: tuple[str, str]
    values: dict[str, str]
    model: str | None
    version: str | None


def wanted(sources: Sources) -> None:
    """Raise UsageError where what was named cannot be of several servers, before any is asked."""
    from sgdoctor import watching
    from sgdoctor.collect import http_get

    taken = next((option for option in sources.named() if option in _OF_ONE), None)
    if taken is not None:
        raise UsageError(
            f"{taken} is of one server, and --url names {len(sources.urls)}: check that one alone"
        )
    for url in sources.urls:
        http_get.target(url)
    if sources.watch is not None:
        watching.wanted(sources)
        if len(sources.urls) > MOST_WATCHED:
            raise UsageError(f"--watch takes up to {MOST_WATCHED} servers, not {len(sources.urls)}")


def check(
    sources: Sources,
    rules: Sequence[CompiledRule],
    patterns: Mapping[str, str],
    judge: Judge,
    say: gather.Progress,
) -> tuple[list[DeploymentReport], list[Drift]]:
    """Ask every server of ``sources.urls``; return a report of each, in their order, and what differs.

    ``judge`` holds what was gathered of one against rules; those that read fleet.* are left for when all have
    answered. Of each server only its report and the values that are compared are kept. Raises UsageError.
    """
    urls = list(dict.fromkeys(sources.urls))
    wanted(sources)
    alone = [rule for rule in rules if not _reads_fleet(rule)]
    together = [rule for rule in rules if _reads_fleet(rule)]

    def one(url: str) -> _Server:
        single = msgspec.structs.replace(sources, url=url, urls=())
        (gathered,) = gather.gather(single, patterns, lambda _what: None)
        return _kept(url, gathered, judge(gathered, alone))

    say(f"asking {len(urls)} servers")
    servers: dict[str, _Server] = {}
    for server in _at_once(urls, one, len(urls) if sources.watch else WORKERS):
        servers[server.url] = server
        say(f"asking {len(urls)} servers: {len(servers)} have answered")
    ordered = [servers[url] for url in urls]
    groups: dict[tuple[str, str], list[_Server]] = {}
    for server in ordered:
        groups.setdefault(server.group, []).append(server)
    drift = [each for group in groups.values() for each in _drift(group)]
    usual = {key: _usual(group) for key, group in groups.items()}
    sizes = {key: len(group) for key, group in groups.items()}
    compared = [
        _compared(each, sizes[each.group], _differs(each, usual[each.group]), together, judge)
        for each in ordered
    ]
    return compared, drift


def _reads_fleet(rule: CompiledRule) -> bool:
    return any(name.startswith("fleet.") for name in rule.names)


def _at_once(urls: Sequence[str], work: Callable[[str], _Server], workers: int) -> Iterator[_Server]:
    """Yield what ``work`` returns, as it comes; raises what one of them raises.

    The threads are daemons: whoever interrupts waits for no server.
    """
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[_Server | BaseException] = queue.SimpleQueue()
    for url in urls:
        left.put(url)

    def run() -> None:
        while True:
            try:
                url = left.get_nowait()
            except queue.Empty:
                return
            try:
                done.put(work(url))
            except BaseException as error:  # noqa: BLE001 (handed over to the caller)
                done.put(error)

    for _ in range(min(workers, len(urls))):
        threading.Thread(target=run, name="sgdoctor-fleet", daemon=True).start()
    for _ in urls:
        result = done.get()
        if isinstance(result, BaseException):
            raise result
        yield result


def _kept(url: str, gathered: gather.Gathered, report: DeploymentReport) -> _Server:
    facts = gathered.facts
    named = facts.value("server.url") or url
    model = facts.value("model.name")
    path = facts.value("model.path") or model or named  # one that says nothing is compared with none
    return _Server(
        url,
        msgspec.structs.replace(report, name=str(named)),
        (str(path), str(facts.value("arg.disaggregation_mode", ""))),
        dict(_values(facts)),
        None if model is None else str(model),
        facts.value("sglang.version"),
    )


def _values(facts: Facts) -> Iterator[tuple[str, str]]:
    """Iterate over what is compared, as short texts."""
    for name, fact in facts.items():
        if not isinstance(fact, Known) or name in _OWN or name.endswith(_OWN_ENDS):
            continue
        if name in _COMPARED or name.startswith(_FAMILIES):
            text = _text(fact.value)
            yield name, text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _drift(group: Sequence[_Server]) -> list[Drift]:
    """Return what the servers of one model and role differ in, the most frequent value first."""
    found = []
    for name in sorted({name for each in group for name in each.values}, key=_order):
        said: dict[str, list[str]] = {}
        for each in group:
            if name in each.values:
                said.setdefault(each.values[name], []).append(each.report.name)
        if len(said) > 1:
            ordered = sorted(said.items(), key=lambda item: -len(item[1]))
            found.append(Drift(name, group[0].model, dict(ordered)))
    return found


def _order(name: str) -> tuple[int, str]:
    return (_COMPARED.index(name), "") if name in _COMPARED else (len(_COMPARED), name)


def _compared(
    server: _Server,
    size: int,
    differs: list[dict[str, str]],
    rules: Sequence[CompiledRule],
    judge: Judge,
) -> DeploymentReport:
    """Return the report of a server with what the rules about fleets come to."""
    facts = Facts()
    place = server.report.name
    for name, value in (
        ("model.name", server.model), ("sglang.version", server.version), ("server.url", place),
    ):  # fmt: skip
        if value is not None:
            facts.set(name, value, source="http", place=place)
    if server.version is not None:
        facts.set("fleet.servers", size, source="http", place=place)
        facts.set("fleet.differs", differs, source="http", place=place)
    else:
        for name in ("fleet.servers", "fleet.differs"):
            facts.set_unknown(name, f"{place} did not say what it is")
    added = judge(gather.Gathered(facts), rules)
    own = server.report
    lists = ("findings", "unknown", "broken", "passed", "not_applicable", "suppressed")
    return msgspec.structs.replace(
        own, **{name: [*getattr(own, name), *getattr(added, name)] for name in lists}
    )


def _usual(group: Sequence[_Server]) -> dict[str, str]:
    """Return the most frequent value of everything that is compared (of equals, the first one's)."""
    counted: dict[str, Counter[str]] = {}
    for each in group:
        for name, value in each.values.items():
            counted.setdefault(name, Counter())[value] += 1
    return {name: values.most_common(1)[0][0] for name, values in counted.items()}


def _differs(server: _Server, usual: Mapping[str, str]) -> list[dict[str, str]]:
    """Return where a server holds another value than is usual."""
    return [
        {"fact": name, "value": server.values[name], "others": usual[name]}
        for name in sorted(server.values, key=_order)
        if server.values[name] != usual[name]
    ]
