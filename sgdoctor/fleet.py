"""Several servers, asked at the same time: a report of each, and in what they differ from one another."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from sgdoctor import gather
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known
from sgdoctor.report.model import DeploymentReport, Drift, UndecidedRule
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

# By code, reason and what is missing.
_Undecided = dict[tuple[str, ...], UndecidedRule]

Judge = Callable[[gather.Gathered, Sequence[CompiledRule]], DeploymentReport]


_Group = tuple[str, str]
# Of what is compared: which value is held by which URLs.
_Said = dict[str, dict[str, list[str]]]


Result = TypeVar("Result")


class _Server(msgspec.Struct):
    """What is kept of a server once it has been judged: its facts are not."""

    url: str
    report: DeploymentReport
    group: _Group
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
    answered. Of each server only its report is kept, and each value that is compared once. Raises UsageError.
    """
    from sgdoctor.collect import http_get

    wanted(sources)
    urls = list({http_get.target(url).url: url for url in sources.urls}.values())  # each server once
    undecided: _Undecided = {}
    judging = threading.Lock()  # it only computes: threads that take turns are done sooner
    alone = [rule for rule in rules if not _reads_fleet(rule)]
    together = [rule for rule in rules if _reads_fleet(rule)]

    def one(url: str) -> tuple[_Server, dict[str, str]]:
        single = msgspec.structs.replace(sources, url=url, urls=())
        (gathered,) = gather.gather(single, patterns, watched)
        with judging:
            kept = _kept(url, gathered, _shared(judge(gathered, alone), undecided))
            return kept, dict(_values(gathered.facts))

    def watched(what: str) -> None:
        """Show the progress of watching, which is the same at all of them."""
        before, bar, over = what.rpartition("[")
        if bar and before.startswith("watching"):
            say(f"watching {len(urls)} servers {bar}{over}")

    say(f"asking {len(urls)} servers")
    servers: dict[str, _Server] = {}
    said: dict[_Group, _Said] = {}
    for server, values in _at_once(urls, one, len(urls) if sources.watch else WORKERS):
        servers[server.url] = server
        column = said.setdefault(server.group, {})
        for name, text in values.items():
            column.setdefault(name, {}).setdefault(text, []).append(server.url)
        say(f"asking {len(urls)} servers: {len(servers)} have answered")
    ordered = [servers[url] for url in urls]
    differing = {group: _differing(column, urls) for group, column in said.items()}
    sizes = Counter(each.group for each in ordered)
    compared = [
        _compared(each, sizes[each.group], _differs(each, differing[each.group]), together, judge)
        for each in ordered
    ]
    return compared, _drift(ordered, differing)


def _reads_fleet(rule: CompiledRule) -> bool:
    return any(name.startswith("fleet.") for name in rule.names)


def _at_once(urls: Sequence[str], work: Callable[[str], Result], workers: int) -> Iterator[Result]:
    """Yield what ``work`` returns, as it comes; raises what one of them raises.

    The threads are daemons: whoever interrupts waits for no server.
    """
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
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


def _shared(report: DeploymentReport, undecided: _Undecided) -> DeploymentReport:
    """Return the report with one object for what is undecided alike at several servers: it is most of it."""
    rules = [undecided.setdefault((each.code, each.reason, *each.missing), each) for each in report.unknown]
    return msgspec.structs.replace(report, unknown=rules)


def _kept(url: str, gathered: gather.Gathered, report: DeploymentReport) -> _Server:
    facts = gathered.facts
    named = facts.value("server.url") or url
    model = facts.value("model.name")
    path = facts.value("model.path") or model or named  # one that says nothing is compared with none
    return _Server(
        url,
        msgspec.structs.replace(report, name=str(named)),
        (str(path), str(facts.value("arg.disaggregation_mode", ""))),
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


def _differing(said: _Said, urls: Sequence[str]) -> _Said:
    """Return what servers of one model and role differ in, the most frequent value first.

    Of equals the first server's comes first, in the order of ``urls``.
    """
    place = {url: number for number, url in enumerate(urls)}
    found: _Said = {}
    for name in sorted((name for name, held in said.items() if len(held) > 1), key=_order):
        held = {text: sorted(by, key=place.__getitem__) for text, by in said[name].items()}
        found[name] = dict(sorted(held.items(), key=lambda item: (-len(item[1]), place[item[1][0]])))
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


def _drift(servers: Sequence[_Server], differing: Mapping[_Group, _Said]) -> list[Drift]:
    """Return what the servers of each group differ in, the first server's group first."""
    names = {each.url: each.report.name for each in servers}
    models = {each.group: each.model for each in reversed(servers)}
    return [
        Drift(name, models[group], {text: [names[url] for url in by] for text, by in held.items()})
        for group in dict.fromkeys(each.group for each in servers)
        for name, held in differing[group].items()
    ]


def _differs(server: _Server, differing: _Said) -> list[dict[str, str]]:
    """Return where a server holds another value than is usual."""
    found = []
    for name, held in differing.items():
        usual = next(iter(held))
        own = next((text for text, by in held.items() if server.url in by), usual)
        if own != usual:
            found.append({"fact": name, "value": own, "others": usual})
    return found
