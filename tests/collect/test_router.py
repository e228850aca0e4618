"""Routers in front of SGLang servers: what sglang_router answers, by release, is not taken for a server's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sgdoctor import check
from sgdoctor.collect.server import read_server
from sgdoctor.errors import Undecided
from sgdoctor.facts import Facts
from sgdoctor.report.model import exit_code
from tests.collect.servers import Behaviour, captured, reply, running, sglang

A, B = "http://10.0.0.1:30000", "http://10.0.0.2:30000"
CARD = {"id": "/models/dense", "object": "model", "owned_by": "local"}


def said(value: Any) -> Behaviour:
    return reply(200, json.dumps(value).encode())


def workers(*urls: str) -> Behaviour:
    return said({"workers": [{"url": url, "is_healthy": True} for url in urls], "total": len(urls)})


def router(**routes: Behaviour) -> dict[str, Behaviour]:
    """Return what every one of them answers, and these in addition."""
    health = {"/health": reply(200, b"OK", "text/plain")}
    return health | {f"/{path}": behaviour for path, behaviour in routes.items()}


INFO = said({"router_manager": True, "routers_count": 1, "workers_count": 2})
NEWEST = router(
    get_server_info=INFO, workers=workers(A, B), **{"v1/models": said({"object": "list", "data": [CARD]})}
)
# What its servers say is handed on: it looks like one of them.
OLDEST = router(
    get_server_info=captured("kv-pool-full", "server_info_loaded.json"),
    list_workers=said({"urls": [A, B]}),
    **{"v1/models": captured("kv-pool-full", "v1_models.json")},
)
MIXED = router(get_server_info=INFO, workers=workers(A, B), list_workers=said({"urls": [A, B]}))
MINI_LB = router(
    get_server_info=said({"internal_states": [{"model_path": "/m"}], "prefill": [{}], "decode": [{}]}),
    model_info=captured("kv-pool-full", "model_info.json"),
    **{"v1/models": captured("kv-pool-full", "v1_models.json")},
)
EMPTY = router(get_server_info=INFO, workers=workers(), **{"v1/models": reply(503, b"No models available")})


@pytest.mark.parametrize(
    ("routes", "named"),
    [
        (NEWEST, f": --url {A} --url {B}"),  # 0.2.4 to 0.3.2, with prefill and decode servers, too
        (OLDEST, f": --url {A} --url {B}"),  # 0.1.9
        (MIXED, f": --url {A} --url {B}"),  # 0.2.0
        (MINI_LB, ""),
        (EMPTY, ""),
    ],
)
def test_a_router_is_no_server_and_its_servers_are_named(routes: dict[str, Behaviour], named: str) -> None:
    with running(routes) as there, pytest.raises(Undecided) as error:
        read_server(Facts(), there.url)
    router = f"{there.url}: a router in front of SGLang servers, not one itself: name its servers"
    assert str(error.value) == router + named


def test_a_check_of_a_router_comes_to_nothing_and_says_what_to_check_instead() -> None:
    with running(OLDEST) as there:
        report = check(url=there.url)
    (deployment,) = report.deployments
    assert exit_code(report) == 3
    assert deployment.findings == []
    assert deployment.passed == []
    assert any(f"--url {A}" in note for note in deployment.notes)


def test_of_many_servers_a_few_are_named_and_their_ranks_once() -> None:
    ranks = [f"http://10.0.0.{number}:30000@{rank}" for number in range(1, 8) for rank in range(8)]
    with running(NEWEST | {"/workers": workers(*ranks)}) as there, pytest.raises(Undecided) as error:
        read_server(Facts(), there.url)
    assert str(error.value).count("--url") == 4
    assert str(error.value).endswith("http://10.0.0.4:30000 and 3 more")


def test_a_server_without_server_info_is_no_router() -> None:
    """SGLang before /server_info: nobody behind it is known."""
    routes = sglang()
    routes["/get_server_info"] = routes.pop("/server_info")
    with running(routes) as there:
        reading = read_server(Facts(), there.url)
    assert reading.usable


def test_a_server_is_not_asked_whom_it_routes_to() -> None:
    with running(sglang()) as there:
        read_server(Facts(), there.url)
    assert not {"/workers", "/list_workers"} & set(there.paths)


@pytest.mark.parametrize("answer", [said([]), said({"workers": 3}), said({"workers": [3, {"url": 4}]})])
def test_what_a_router_would_not_say(answer: Behaviour) -> None:
    with (
        running(NEWEST | {"/workers": answer}) as there,
        pytest.raises(Undecided, match=r"name its servers$"),
    ):
        read_server(Facts(), there.url)
