"""Several servers asked at once: a report of each, what they differ in, and one that hangs among them."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sgdoctor import check, examine
from sgdoctor.errors import UsageError
from sgdoctor.report import drift, layout
from sgdoctor.report.model import DeploymentReport, Report
from sgdoctor.sources import Sources
from tests.collect import servers
from tests.collect.servers import CAPTURES, Behaviour, reply, running, sglang

INFO: dict[str, Any] = json.loads((CAPTURES / "kv-pool-full" / "server_info_loaded.json").read_text())


def routes(*, states: dict[str, Any] | None = None, **changed: Any) -> dict[str, Behaviour]:
    """Return the routes of the captured server with other values in its /server_info."""
    said = {**INFO, **changed}
    said["internal_states"] = [{**INFO["internal_states"][0], **(states or changed)}]
    return {**sglang(), "/server_info": reply(200, json.dumps(said).encode())}


@contextlib.contextmanager
def fleet(*each: dict[str, Behaviour]) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(running(routes)).url for routes in each]


def by_name(report: Report) -> dict[str, DeploymentReport]:
    return {each.name: each for each in report.deployments}


def codes(deployment: DeploymentReport) -> list[str]:
    return [finding.code for finding in deployment.findings]


def text(report: Report, *, verbose: bool = False) -> str:
    lines = drift.lay_out(report, width=80, encoding="utf-8", verbose=verbose)
    return layout.plain(lines) if lines else ""


def test_thirty_servers_each_get_their_report_and_the_odd_one_is_found() -> None:
    odd = routes(max_running_requests=16, chunked_prefill_size=2048)
    with fleet(*(routes() for _ in range(29)), odd) as urls:
        report = check(urls=tuple(urls))
    assert sorted(by_name(report)) == sorted(urls)
    assert all(each.summary.sglang == "0.5.12" for each in report.deployments)
    assert [name for name, each in by_name(report).items() if "RUN501" in codes(each)] == [urls[-1]]
    assert [each.fact for each in report.drift] == ["arg.chunked_prefill_size", "arg.max_running_requests"]
    limits = report.drift[1].values
    assert list(limits) == ["64", "16"]
    assert limits["16"] == [urls[-1]]
    assert len(limits["64"]) == 29
    assert "64: 29 of 30 servers" in text(report)


def test_servers_that_are_alike_differ_in_nothing() -> None:
    own = [routes(port=30000 + number, random_seed=number, host=f"10.0.0.{number}") for number in range(3)]
    with fleet(*own) as urls:
        report = check(urls=tuple(urls))
    assert report.drift == []
    assert text(report) == ""
    assert all("RUN501" in each.passed for each in report.deployments)


def test_what_is_undecided_alike_is_kept_once() -> None:
    """It is most of a report, and the memory of two hundred servers shall be about that of one."""
    with fleet(routes(), routes(version="0.5.11")) as urls:
        one, other = by_name(check(urls=tuple(urls))).values()
    shared = {id(rule) for rule in one.unknown} & {id(rule) for rule in other.unknown}
    assert len(shared) > len(one.unknown) * 0.8


def test_of_two_equally_frequent_values_the_first_servers_counts() -> None:
    slow = routes(max_running_requests=16)
    slow["/health"] = servers.slowly(0.5, reply(200))
    with fleet(slow, routes()) as urls:  # the second one answers first
        report = check(urls=tuple(urls))
    assert [list(each.values.items()) for each in report.drift] == [[("16", [urls[0]]), ("64", [urls[1]])]]
    assert [name for name, each in by_name(report).items() if "RUN501" in codes(each)] == [urls[1]]


def test_another_release_is_named_first() -> None:
    with fleet(routes(), routes(), routes(version="0.5.11", max_prefill_tokens=99)) as urls:
        report = check(urls=tuple(urls))
    assert report.drift[0].fact == "sglang.version"
    finding = next(each for each in by_name(report)[urls[2]].findings if each.code == "RUN501")
    assert "sglang.version 0.5.11 (the others: 0.5.12)" in finding.message


def test_only_servers_of_one_model_and_one_role_are_compared() -> None:
    prefill = routes(disaggregation_mode="prefill", max_running_requests=8)
    decode = routes(disaggregation_mode="decode", max_running_requests=256)
    other = routes(model_path="/models/other", max_running_requests=1)
    other["/model_info"] = reply(404)
    with fleet(prefill, decode, other) as urls:
        report = check(urls=tuple(urls))
    assert report.drift == []
    assert all("RUN501" in each.not_applicable for each in report.deployments)


def test_one_server_is_no_fleet() -> None:
    with running(routes()) as there:
        report = check(url=there.url)
    assert "RUN501" in report.deployments[0].not_applicable
    assert report.drift == []


def test_a_server_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdoctor.gather.SERVER_SECONDS", 2.0)
    hanging = dict.fromkeys(sglang(), servers.hang)
    with socket.socket() as unused, fleet(routes(), hanging, routes()) as urls:
        unused.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{unused.getsockname()[1]}"
        report = check(urls=(*urls, gone))
    names = by_name(report)
    assert names[urls[0]].summary.status == names[urls[2]].summary.status == "busy"
    assert names[urls[1]].summary.status == names[gone].summary.status == "unreachable"
    assert {rule.code for rule in names[gone].unknown} >= {"RUN501"}
    assert "RUN501" in names[urls[0]].passed


def test_what_is_no_sglang_server_is_said_of_it_alone() -> None:
    with fleet(routes(), {"/v1/models": reply(200, b"<html>nginx</html>", "text/html")}) as urls:
        report = check(urls=tuple(urls))
    (looked,) = by_name(report)[urls[1]].looked_at
    assert "not an SGLang server" in looked.said


def test_all_servers_get_the_key() -> None:
    with fleet(*(servers.with_key("k3y", routes()) for _ in range(2))) as urls:
        report = check(urls=tuple(urls), api_key="k3y")
    assert [each.summary.sglang for each in report.deployments] == ["0.5.12", "0.5.12"]


def test_several_servers_are_watched_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdoctor.collect.window.PERIOD", 0.05)
    monkeypatch.setattr("sgdoctor.watching.LEAST", 0.0)
    with fleet(routes(), routes()) as urls:
        report = check(urls=tuple(urls), watch=0.3)
    for each in report.deployments:
        assert any("3.0 requests running, 0.0 waiting" in note for note in each.notes)


def test_watching_several_shows_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdoctor.collect.window.PERIOD", 0.05)
    monkeypatch.setattr("sgdoctor.watching.LEAST", 0.0)
    shown: list[str] = []
    with fleet(routes(), routes()) as urls:
        examine.check(Sources(urls=tuple(urls), watch=0.3), progress=shown.append)
    bars = [what for what in shown if "%" in what]
    assert all(bar.startswith("watching 2 servers [") for bar in bars)
    assert bars[-1] == f"watching 2 servers [{'=' * 20}] 100%"


def test_a_url_that_is_named_twice_is_asked_once() -> None:
    with running(routes()) as there:
        report = check(
            urls=(there.url, f"{there.url}/", there.url.removeprefix("http://"), f"{there.url}/v1")
        )
    assert len(report.deployments) == 1
    assert there.paths.count("/server_info") == 1


def test_the_table_of_many_differences_is_cut() -> None:
    names = [name for name, value in INFO.items() if isinstance(value, bool)][:15]
    changed = {name: not INFO[name] for name in names}
    with fleet(routes(), routes(**changed)) as urls:
        report = check(urls=tuple(urls))
    assert len(report.drift) == 15
    assert text(report).endswith("3 more with -v\n")
    assert "more with -v" not in text(report, verbose=True)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"logs": ("server.log",)}, "--log is of one server, and --url names 2"),
        ({"launch": "run.sh"}, "--launch is of one server"),
        ({"command": ("python3", "-m", "sglang.launch_server")}, "-- is of one server"),
        ({"snapshot": "s.json"}, "--snapshot is of one server"),
        ({"watch": 0.1}, "--watch 0.1: takes 5 to 3600 seconds"),
    ],
)
def test_what_is_of_one_server_is_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(urls=("http://127.0.0.1:9", "http://127.0.0.1:10"), **other)


def test_a_url_that_is_none_is_refused_before_any_is_asked() -> None:
    with running(routes()) as there:
        with pytest.raises(UsageError, match="--url"):
            check(urls=(there.url, "ftp://nothing"))
        assert there.paths == []


def test_a_target_and_a_snapshot_are_of_one_server() -> None:
    urls = ("http://127.0.0.1:9", "http://127.0.0.1:10")
    with pytest.raises(UsageError, match="--target is about one deployment"):
        examine.check(Sources(urls=urls), target="sglang=0.5.20")
    with pytest.raises(UsageError, match="this takes one server"):
        examine.snapshot(Sources(urls=urls))
