"""Running servers, asked over HTTP: real ones on loopback that answer, refuse, hang and lie."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sgdoctor.collect import http_get, server
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts, Unknown
from tests.collect import servers
from tests.collect.servers import captured, reply, running, sglang

VLLM_MODELS = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","max_model_len":4096}]}'


def ask(url: str, **options) -> tuple[Facts, server.Reading]:
    facts = Facts()
    return facts, server.read_server(facts, url, **options)


def test_a_ready_server_is_read_in_full() -> None:
    with running(sglang()) as there:
        facts, reading = ask(there.url)
    assert reading == server.Reading(there.url, "ready", usable=True)
    assert facts.value("sglang.version") == "0.5.12"
    assert facts.value("server.status") == "ready"
    assert facts.value("server.health") == 200
    assert facts.value("server.api_open") is True
    assert facts.value("arg.tp_size") == 1
    assert facts.value("kv.tokens") == 8192
    assert facts.value("kv.max_running_requests") == 64
    assert facts.value("kv.context_length") == 40960
    assert facts.value("metrics.retracted_requests") == 16
    assert facts.value("model.name") == "dense"
    assert facts.value("model.architecture") == "Qwen3ForCausalLM"
    assert facts.notes == []
    assert facts.conflicts == []


def test_health_is_asked_last_for_it_makes_an_idle_server_generate() -> None:
    with running(sglang()) as there:
        ask(there.url)
    assert there.paths == ["/v1/models", "/server_info", "/model_info", "/metrics", "/health"]


def test_an_old_name_of_server_info_is_tried_when_the_new_one_is_not_there() -> None:
    routes = sglang()
    routes["/get_server_info"] = routes.pop("/server_info")
    with running(routes) as there:
        facts, _ = ask(there.url)
    assert facts.value("sglang.version") == "0.5.12"
    assert facts.get("sglang.version").provenance[0].place == f"{there.url}/get_server_info"


def test_without_a_key_a_guarded_server_is_unauthorized_not_silent() -> None:
    with running(servers.with_key("k3y", sglang())) as there:
        facts, reading = ask(there.url)
    assert reading.status == "unauthorized"
    assert facts.value("server.health") == 200
    assert facts.value("server.api_open") is False
    assert facts.value("kv.tokens") == 8192  # the metrics stay open
    assert facts.get("arg.tp_size").reason == f"{there.url}/server_info: needs the API key (HTTP 401)"


def test_the_answers_of_a_server_that_refused() -> None:
    """As captured: its refusals, and the metrics of a server that is ready."""
    refusal = reply(401, (servers.CAPTURES / "api-key-set" / "server_info.json").read_bytes())
    routes = dict.fromkeys(("/v1/models", "/server_info", "/model_info"), refusal)
    routes["/metrics"] = captured("api-key-set", "metrics.txt", "text/plain")
    routes["/health"] = reply(200)
    with running(routes) as there:
        facts, reading = ask(there.url)
    assert (reading.status, reading.usable) == ("unauthorized", True)
    assert facts.value("metrics.running_requests") == 0


def test_the_key_opens_the_server_and_stays_out_of_all_facts() -> None:
    with running(servers.with_key("k3y-planted", sglang())) as there:
        facts, reading = ask(there.url, api_key="k3y-planted")
    assert reading.status == "ready"
    assert isinstance(facts.get("server.api_open"), Unknown)  # it may or may not be open without the key
    assert "k3y-planted" not in repr(list(facts.items())) + repr(facts.notes) + repr(reading)


def test_a_wrong_key_is_told_from_none() -> None:
    with running(servers.with_key("k3y", sglang())) as there:
        facts, reading = ask(there.url, api_key="other")
    assert reading.status == "unauthorized"
    assert "does not accept the API key" in facts.get("arg.tp_size").reason


def test_the_key_does_not_follow_a_redirect() -> None:
    with running(sglang()) as elsewhere:
        to = reply(307, Location=f"{elsewhere.url}/v1/models")
        with running({}, otherwise=to) as there, pytest.raises(Undecided, match="a redirect to"):
            ask(there.url, api_key="k3y")
    assert elsewhere.asked == []


def test_whoever_redirects_is_not_said_to_be_something_else() -> None:
    """As a proxy does that has moved to https, or that wants a login first."""
    to = reply(301, Location="https://llm.example/v1/models")
    with running({}, otherwise=to) as there, pytest.raises(Undecided) as error:
        ask(there.url)
    assert str(error.value) == (
        f"{there.url}/v1/models (uvicorn): HTTP 301, a redirect to https://llm.example/v1/models, not "
        "followed: name the server's own URL"
    )


def test_no_proxy_and_no_netrc_gets_between(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password planted\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with running(sglang()) as there:
        _, reading = ask(there.url)
    assert reading.status == "ready"
    assert all("Authorization" not in headers for _, headers in there.asked)


def test_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        facts, reading = ask(url)
    assert (reading.status, reading.usable) == ("unreachable", False)
    assert reading.problems == (f"{url}/v1/models: connection refused",)
    assert facts.value("server.status") == "unreachable"
    assert facts.value("server.listens") is False
    assert facts.known("server.health")
    assert facts.value("server.health") is None
    assert facts.get("arg.tp_size").reason == f"{url}/v1/models: connection refused"
    assert facts.notes == list(reading.problems)


def test_a_host_name_that_nobody_knows() -> None:
    _, reading = ask("http://no-such-host.invalid:30000")
    assert reading.status == "unreachable"
    assert "the host name is not known" in reading.problems[0] or "no answer within" in reading.problems[0]


def test_a_server_that_takes_the_connection_and_says_nothing() -> None:
    with running({}, otherwise=servers.hang) as there:
        facts, reading = ask(there.url, timeout=0.3)
    assert (reading.status, reading.usable) == ("unreachable", False)
    assert "/v1/models: no answer within 0.3 s" in reading.problems[0]
    assert facts.value("server.listens") is True
    assert there.paths == ["/v1/models", "/health"]  # what else would it say
    assert facts.get("sglang.version").reason.endswith("/v1/models did not answer")


@pytest.mark.parametrize("behaviour", [servers.drip, servers.drip_headers])
def test_a_server_that_answers_byte_by_byte_has_no_more_time(behaviour: servers.Behaviour) -> None:
    with running({**sglang(), "/server_info": behaviour}) as there:
        facts, reading = ask(there.url, timeout=1.0)
    assert reading.usable
    assert any("/server_info: no answer within 1 s" in problem for problem in reading.problems)
    assert facts.value("model.name") == "dense"
    assert isinstance(facts.get("arg.tp_size"), Unknown)


def test_server_info_may_hang_while_the_scheduler_is_busy() -> None:
    with running({**sglang(), "/server_info": servers.hang}) as there:
        facts, reading = ask(there.url, timeout=0.5)
    assert (reading.status, reading.usable) == ("ready", True)
    assert "no answer within 0.5 s" in facts.get("kv.max_running_requests").reason
    assert facts.value("kv.context_length") == 40960
    assert facts.value("metrics.token_usage") == 0.24


def test_503_at_once_is_a_server_that_starts() -> None:
    with running({**sglang(), "/health": reply(503)}) as there:
        facts, reading = ask(there.url)
    assert reading.status == "starting"
    assert facts.value("server.health") == 503


def test_503_after_a_while_is_a_server_whose_scheduler_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STARTING_SECONDS", 0.2)
    with running({**sglang(), "/health": servers.slowly(0.3, reply(503))}) as there:
        _, reading = ask(there.url)
    assert reading.status == "unhealthy"


def test_health_that_does_not_answer_leaves_the_status_unknown() -> None:
    with running({**sglang(), "/health": servers.hang}) as there:
        facts, reading = ask(there.url, timeout=0.3)
    assert reading.status is None
    assert isinstance(facts.get("server.status"), Unknown)
    assert facts.known("server.health")
    assert facts.value("sglang.version") == "0.5.12"
    assert "waits up to 20 s" in reading.problems[-1]


def test_500_is_an_unhealthy_server() -> None:
    with running({}, otherwise=reply(500, b"Internal Server Error", "text/plain")) as there:
        facts, reading = ask(there.url)
    assert (reading.status, reading.usable) == ("unhealthy", False)
    assert f"{there.url}/server_info: HTTP 500" in reading.problems
    assert facts.value("server.health") == 500


def test_a_further_node_says_that_it_is_healthy_whatever_its_scheduler_does() -> None:
    """It has /health, /health_generate and, with --enable-metrics, /metrics of its own."""
    routes = {path: sglang()[path] for path in ("/health", "/metrics")}
    with running(routes) as there:
        facts, reading = ask(there.url)
    assert reading.status is None
    assert facts.get("server.status").reason.endswith("as of a further node, whose /health is always 200")
    assert facts.value("metrics.running_requests") == 3


def test_a_server_behind_a_path_of_a_proxy() -> None:
    routes = {f"/models/dense{path}": behaviour for path, behaviour in sglang().items()}
    with running(routes) as there:
        facts, reading = ask(f"{there.url}/models/dense/")
    assert reading.status == "ready"
    assert facts.value("server.url") == f"{there.url}/models/dense"


def test_a_server_at_an_address_of_ipv6() -> None:
    with running(sglang(), host="::1") as there:
        facts, reading = ask(there.url)
    assert there.url.startswith("http://[::1]:")
    assert (reading.status, facts.value("sglang.version")) == ("ready", "0.5.12")


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_answers_without_a_length_end_with_the_connection(version: str) -> None:
    def unmeasured(body: bytes) -> servers.Behaviour:
        def behave(handler: servers.Handler) -> None:
            handler.protocol_version = version
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(body)

        return behave

    bodies = {"/v1/models": "v1_models.json", "/server_info": "server_info.json", "/metrics": "metrics.txt"}
    routes = {
        path: unmeasured((servers.CAPTURES / "kv-pool-full" / name).read_bytes())
        for path, name in bodies.items()
    }
    with running({**sglang(), **routes}) as there:
        facts, reading = ask(there.url)
    assert (reading.status, reading.problems) == ("ready", ())
    assert facts.value("sglang.version") == "0.5.12"
    assert facts.known("metrics.running_requests")


def test_502_is_a_proxy_without_a_server_behind_it() -> None:
    page = b"<html><h1>502 Bad Gateway</h1></html>"
    with running({}, otherwise=reply(502, page, "text/html")) as there:
        facts, reading = ask(there.url)
    assert (reading.status, reading.usable) == ("unreachable", False)
    assert facts.value("server.listens") is True


@pytest.mark.parametrize(
    ("routes", "otherwise", "message"),
    [
        ({}, reply(200, b"<html>Welcome to nginx!</html>", "text/html"), "an answer that is not SGLang's"),
        ({}, reply(404, b"<html>404</html>", "text/html"), "/v1/models gave HTTP 404"),
        ({}, reply(200, b'{"hello": "world"}'), "an answer that is not SGLang's"),
        ({}, reply(200, b'{"object": "list", "data": "none"}'), "an answer that is not SGLang's"),
        ({"/v1/models": reply(200, VLLM_MODELS)}, None, "its models are owned by vllm"),
        (
            {"/metrics": reply(200, b"# HELP\nvllm:num_requests_running 1.0\n")},
            None,
            "the metrics are vLLM's",
        ),
        ({"/health": reply(200)}, None, "a node of a deployment other than its first one"),
        (
            {"/model_info": reply(200, b'{"model_path": "flux", "model_type": "diffusion"}')},
            None,
            "a diffusion model",
        ),
    ],
)
def test_another_server_is_named(routes: dict, otherwise, message: str) -> None:
    with running(routes, otherwise) as there, pytest.raises(Undecided) as raised:
        ask(there.url)
    assert str(raised.value).startswith(there.url)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (reply(200, b"<html>"), "an answer that is no JSON"),
        (reply(200, b""), "an answer that is no JSON"),
        (reply(200, b"[1, 2]"), "a JSON list"),
        (reply(200, b'{"object": "list", "data": []}'), "it is a listing"),
        (reply(200, b'{"hello": "world"}'), "it has neither version nor internal_states"),
        (reply(500, b"boom"), "HTTP 500"),
        (reply(404), "HTTP 404"),
        (servers.cut_off, "the answer was cut off"),
        (servers.close, "the connection was closed without an answer"),
        (servers.garbage, "no HTTP answer"),
    ],
)
def test_server_info_that_cannot_be_used_is_said_and_the_rest_is_kept(
    behaviour: servers.Behaviour, said: str
) -> None:
    with running({**sglang(), "/server_info": behaviour}) as there:
        facts, reading = ask(there.url)
    assert said in facts.get("arg.tp_size").reason
    assert any(said in problem for problem in reading.problems)
    assert reading.usable
    assert facts.value("model.name") == "dense"


def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "MAX_BYTES", 2**21)
    with running({**sglang(), "/server_info": servers.endless}) as there:
        facts, _ = ask(there.url)
    assert "more than 2 MiB" in facts.get("arg.tp_size").reason


def test_metrics_that_are_not_switched_on_are_no_problem() -> None:
    routes = sglang()
    del routes["/metrics"]
    with running(routes) as there:
        facts, reading = ask(there.url)
    assert reading.problems == ()
    assert not facts.known("metrics.token_usage")


def test_the_command_of_a_newer_server_is_handed_on_without_its_secrets() -> None:
    said = (
        b'{"version": "0.5.20", "model_path": "/m", "tp_size": 2, "api_key": "planted",'
        b'"launch_command": "--model-path /m --tp 2 --api-key planted", "internal_states": []}'
    )
    with running({**sglang(), "/server_info": reply(200, said)}) as there:
        facts, reading = ask(there.url)
    assert reading.command == ["--model-path", "/m", "--tp", "2", "--api-key", "<redacted>"]
    assert facts.value("arg.api_key") == "<redacted>"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("localhost:30000", "http://localhost:30000"),
        ("http://host/", "http://host"),
        ("https://host:8443/v1", "https://host:8443"),
        ("http://host/prefix/v1/", "http://host/prefix"),
        ("http://[::1]:30000", "http://[::1]:30000"),
        ("[::1]:30000", "http://[::1]:30000"),
        ("http://[fe80::1%eth0]:30000", "http://[fe80::1%25eth0]:30000"),
        ("http://[fe80::1%25eth0]:30000", "http://[fe80::1%25eth0]:30000"),
        ("http://my_host-1.svc.cluster.local.:80", "http://my_host-1.svc.cluster.local.:80"),
        ("https://host/sglang/", "https://host/sglang"),
        # An endpoint that was tried in a browser, or that a client was given.
        ("http://host:30000/health", "http://host:30000"),
        ("http://host/sglang/v1/chat/completions", "http://host/sglang"),
        ("http://host/v1/models/", "http://host"),
        ("http://host/get_server_info", "http://host"),
        ("http://user:secret@host:1/?x=1#y", "http://host:1"),
    ],
)
def test_a_url_is_taken_as_operators_write_it(given: str, url: str) -> None:
    assert http_get.target(given).url == url


@pytest.mark.parametrize(
    "given",
    [
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:0",
        "",
        "http://[::1",
        "30000",
        ":30000",
        "http://ho st:1",
        "http://..:1",
        f"http://{'a' * 300}:1",
        "unix:///tmp/server.sock",
    ],
)
def test_what_is_no_url_is_a_usage_error(given: str) -> None:
    with pytest.raises(UsageError, match="--url"):
        http_get.target(given)


def test_a_password_in_the_url_is_used_and_not_kept() -> None:
    with running(sglang()) as there:
        url = there.url.replace("http://", "http://me:planted@")
        facts, reading = ask(url)
    assert reading.url == there.url
    assert there.asked[0][1]["Authorization"].startswith("Basic ")
    assert "planted" not in repr(list(facts.items()))


def test_an_address_of_ipv6_without_brackets_is_told_so() -> None:
    for given in ("::1:30000", "http://fe80::1", "http://user:pw@::1"):
        with pytest.raises(UsageError, match="an address of IPv6 goes in brackets"):
            http_get.target(given)
    with pytest.raises(UsageError, match="Port could not be cast"):
        http_get.target("http://user:pw@host:port")
