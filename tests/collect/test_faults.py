"""What servers and logs do wrong: none of it holds sgdoctor up, fills its memory or takes the key away."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from sgdoctor.collect import http_get, log, server
from sgdoctor.errors import Undecided
from sgdoctor.facts import Facts
from tests.collect import servers
from tests.collect.servers import Behaviour, Handler, reply, running, sglang

KEY = "k3y-planted"
RECORD = b"[2026-11-30 05:50:01] Decode batch, #running-req: 3, #token: 9, token usage: 0.24, #queue-req: 0\n"


def ask(url: str, seconds: float = 2.0) -> tuple[Facts, server.Reading]:
    facts = Facts()
    return facts, server.read_server(facts, url, KEY, seconds)


def raw(*parts: bytes) -> Behaviour:
    """Answer with these bytes and nothing else."""

    def behave(handler: Handler) -> None:
        for part in parts:
            handler.wfile.write(part)

    return behave


def bomb(handler: Handler) -> None:
    """Send a gigabyte of blanks, packed into a megabyte, though nobody said they could be unpacked."""
    packed = gzip.compress(b" " * 2**26, 1) * 16
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", str(len(packed)))
    handler.end_headers()
    handler.wfile.write(packed)


def hundred_megabytes(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(100 * 2**20))
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" " * 2**20)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (hundred_megabytes, "more than 16 MiB"),
        (bomb, "more than 16 MiB"),
        (raw(OK, b'Content-Length: 9\r\n\r\n{"version": "0.5.12"}'), "an answer that is no JSON"),
        (raw(OK, b"Content-Length: 999999999999999999\r\n\r\n{}"), "the answer was cut off"),
        (raw(OK, b"Content-Length: -5\r\n\r\n{}"), "neither version nor internal_states"),
        (raw(OK, b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n"), "no HTTP answer"),
        (raw(OK, b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n{}"), "the answer was cut off"),
        (raw(OK, b"X-Much: y\r\n" * 10_000, b"\r\n"), "no HTTP answer"),
        (raw(OK, b"X-Long: ", b"y" * 2**20, b"\r\n\r\n"), "no HTTP answer"),
        (raw(b"\x00" * 4096), "no HTTP answer"),
        (reply(200, b"[" * 200_000), "an answer that is no JSON"),
        (reply(200, b'{"version": "\xff\xfe"}'), "an answer that is no JSON"),
        (reply(200, b'{"version": 12, "internal_states": [[[1]]]}'), "does not say which SGLang release"),
    ],
)
def test_an_answer_that_lies_is_said_and_the_others_are_kept(behaviour: Behaviour, said: str) -> None:
    with running({**sglang(), "/server_info": behaviour}) as there:
        facts, reading = ask(there.url)
    told = facts.get("sglang.version")
    notes = [*reading.problems, *facts.notes, getattr(told, "reason", "")]
    assert any(said in note for note in notes), notes
    assert facts.value("model.name") == "dense"
    assert facts.value("metrics.running_requests") == 3


@pytest.mark.parametrize("path", ["/v1/models", "/server_info", "/model_info", "/metrics", "/health"])
@pytest.mark.parametrize("behaviour", [servers.hang, servers.drip, servers.drip_headers])
def test_no_endpoint_that_never_ends_gets_more_than_its_time(path: str, behaviour: Behaviour) -> None:
    with running({**sglang(), path: behaviour}) as there:
        _, reading = ask(there.url, 0.3)
    assert any(f"{path}: no answer within 0.3 s" in problem for problem in reading.problems)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_follows_no_redirect_of_any_endpoint(status: int) -> None:
    with running(sglang()) as elsewhere:
        to = elsewhere.url.replace("127.0.0.1", "localhost")
        away = {path: reply(status, Location=f"{to}{path}") for path in sglang() if path != "/v1/models"}
        with running({**sglang(), **away}) as there:
            _, reading = ask(there.url)
        assert all(headers["Authorization"] == f"Bearer {KEY}" for _, headers in there.asked)
    assert elsewhere.asked == []
    assert sum("a redirect to" in problem for problem in reading.problems) >= 2
    assert KEY not in repr(reading)


def test_a_redirect_that_repeats_a_secret_does_not_show_it() -> None:
    to = reply(302, Location="http://user:hunter2-planted@elsewhere.invalid/")
    with running({}, otherwise=to) as there, pytest.raises(Undecided) as raised:
        ask(there.url)
    assert "planted" not in str(raised.value)


# --- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate that signs itself for 127.0.0.1, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "both.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    made.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return made


def over_tls(there: servers.Server, certificate: Path) -> str:
    """Make a running server speak TLS, and return its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    there.socket = context.wrap_socket(there.socket, server_side=True, do_handshake_on_connect=False)
    return there.url.replace("http://", "https://")


def test_a_certificate_that_nobody_vouches_for_gets_no_key(certificate: Path) -> None:
    with running(sglang()) as there:
        _, reading = ask(over_tls(there, certificate))
    assert there.asked == []
    assert (reading.status, reading.usable) == ("unreachable", False)
    assert "its certificate is not trusted" in reading.problems[0]


def test_an_authority_of_ones_own_is_taken(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with running(sglang()) as there:
        facts, reading = ask(over_tls(there, certificate))
    assert reading.status == "ready"
    assert facts.value("sglang.version") == "0.5.12"


def test_a_certificate_for_another_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with running(sglang()) as there:
        _, reading = ask(over_tls(there, certificate).replace("127.0.0.1", "localhost"))
    assert there.asked == []
    assert "TLS" in reading.problems[0]


def test_https_to_a_server_that_speaks_none() -> None:
    with running(sglang()) as there:
        _, reading = ask(there.url.replace("http://", "https://"))
    assert "TLS: no secure connection could be made" in reading.problems[0]


def test_http_to_a_server_that_speaks_tls(certificate: Path) -> None:
    with running(sglang()) as there:
        over_tls(there, certificate)
        _, reading = ask(there.url)
    assert (reading.status, reading.usable) == (None, False)
    assert any("closed without an answer" in problem for problem in reading.problems)


# --- logs --------------------------------------------------------------------------------------------------


class Vanishing(io.FileIO):
    """A log of which everything behind what was read first is cut away meanwhile."""

    def __init__(self, path: Path, left: int) -> None:
        super().__init__(path)
        self._path = path
        self._left = left

    def read(self, size: int = -1) -> bytes:
        data = super().read(size) or b""
        if self._path.stat().st_size > self._left:
            os.truncate(self._path, self._left)
        return data


def test_a_log_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(RECORD * 200_000)
    facts = Facts()
    log.read_logs(
        facts, [log.LogSource("server.log", lambda: Vanishing(file, 0))], {"RUN901": "Decode batch"}
    )
    assert 0 < facts.matches["RUN901"].count < 200_000
    assert facts.value("log.running_requests") == 3


def test_a_log_that_is_rotated_away_while_it_is_read(tmp_path: Path) -> None:
    """What was opened is read to its end, wherever its name has gone."""
    file = tmp_path / "server.log"
    file.write_bytes(RECORD * 5000)

    def opened() -> io.BufferedReader:
        stream = file.open("rb")
        file.rename(tmp_path / "server.log.1")
        file.write_bytes(b"another program's log\n")
        return stream

    facts = Facts()
    log.read_logs(facts, [log.LogSource("server.log", opened)], {"RUN901": "Decode batch"})
    assert facts.matches["RUN901"].count == 5000


def test_the_limit_of_an_answer_is_far_below_what_is_sent() -> None:
    assert http_get.MAX_BYTES == 16 * 2**20
