"""One GET that always comes back: with an answer, or with the reason why there is none."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from sgdoctor import __version__, redact
from sgdoctor.collect import patience
from sgdoctor.errors import UsageError

if TYPE_CHECKING:
    import requests

MAX_BYTES = 16 * 2**20
CONNECT_SECONDS = 2.0

# refused: nothing listens. unresolved, unroutable, tls: never got through. timeout: took the connection, said
# nothing in time. broken: not HTTP, or cut off. large: more than MAX_BYTES. redirect: points elsewhere.
# answered: any other status.
Kind = Literal[
    "answered", "refused", "unresolved", "unroutable", "tls", "timeout", "broken", "large", "redirect"
]
NOT_REACHED: tuple[Kind, ...] = ("refused", "unresolved", "unroutable", "tls")


# Behind the base URL: what clients are given, and what people try in a browser.
_ENDPOINT = re.compile(
    r"/(v1(/models|/completions|/chat/completions)?|(get_)?(server|model)_info|metrics|health(_generate)?|generate)$"
)


# A name, or an address of IPv6 with the interface it is on; no label of a name is empty or too long.
_HOST = re.compile(r"(?=.{1,253}$)[\w-]{1,63}(\.[\w-]{1,63})*\.?|(?=.*:)[0-9a-f:.]+(%.+)?", re.IGNORECASE)
_BARE_IPV6 = re.compile(r"(//|@)[0-9a-f]*:[0-9a-f:]*:", re.IGNORECASE)


class Answer(msgspec.Struct, frozen=True):
    """What came back for one path. ``said`` is a phrase for people: "HTTP 401", "connection refused"."""

    path: str
    kind: Kind
    said: str
    status: int | None = None
    body: bytes = b""
    server: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it is a whole answer with status 200."""
        return self.kind == "answered" and self.status == 200


class Target(msgspec.Struct, frozen=True):
    """A server that was named: its base URL without secrets, and what to authenticate with."""

    url: str
    api_key: str | None = None
    user: tuple[str, str] | None = None


def target(given: str, api_key: str | None = None) -> Target:
    """Read a URL as an operator writes it: ``localhost:30000``, ``http://host/v1``, that of an endpoint.

    Raises UsageError when it is none, without repeating a password in it.
    """
    text = given.strip()
    if "://" not in text:
        text = f"http://{text}"
    shown = redact.text(given)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        said = "an address of IPv6 goes in brackets" if _BARE_IPV6.search(text) else error
        raise UsageError(f"--url {shown}: {said}") from None
    if parts.scheme not in ("http", "https") or not host or host.isdigit() or not _HOST.fullmatch(host):
        raise UsageError(f"--url {shown}: not like http://HOST:PORT")
    if port == 0:
        raise UsageError(f"--url {shown}: no server has port 0")
    path = _ENDPOINT.sub("", parts.path.rstrip("/")).rstrip("/")
    host, zone, interface = host.partition("%")  # of a link-local address, as ip shows it
    host += f"%25{interface.removeprefix('25')}" if zone else ""
    name = f"[{host}]" if ":" in host else host
    base = urlunsplit((parts.scheme, f"{name}:{port}" if port else name, path, "", ""))
    user = (parts.username or "", parts.password or "") if parts.username or parts.password else None
    return Target(base, api_key or None, user)


def get(where: Target, path: str, seconds: float) -> Answer:
    """GET ``path`` of the server, all in all within ``seconds``. Never raises.

    Redirects are not followed and proxies of the environment not used: the key goes to the URL that was named
    and to no other. Certificates are verified (REQUESTS_CA_BUNDLE or SSL_CERT_FILE name other authorities).
    """
    started = time.monotonic()
    try:
        answer = patience.within(seconds, lambda: _get(where, path, seconds))
    except TimeoutError:
        answer = Answer(path, "timeout", f"no answer within {seconds:.3g} s")
    except Exception as error:  # noqa: BLE001 (whatever a broken server makes a client do)
        answer = Answer(path, "broken", redact.text(f"{type(error).__name__}: {error}"))
    return msgspec.structs.replace(answer, seconds=time.monotonic() - started)


def _get(where: Target, path: str, seconds: float) -> Answer:
    import requests

    headers = {
        "User-Agent": f"sgdoctor/{__version__}",
        "Accept": "application/json, text/plain",
        "Accept-Encoding": "identity",
    }
    if where.api_key is not None:
        headers["Authorization"] = f"Bearer {where.api_key}"
    with requests.Session() as session:
        session.trust_env = False  # no proxies, no .netrc
        authorities = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
        try:
            with session.get(
                where.url + path,
                headers=headers,
                auth=where.user if where.api_key is None else None,
                timeout=(min(CONNECT_SECONDS, seconds), seconds),
                allow_redirects=False,
                stream=True,
                verify=authorities or True,
            ) as response:
                return _read(path, response)
        except requests.exceptions.RequestException as error:
            return _failed(path, error, seconds)


def _read(path: str, response: requests.Response) -> Answer:
    status = response.status_code
    answer = Answer(
        path,
        "answered",
        f"HTTP {status}",
        status,
        server=redact.text(response.headers.get("server", "").strip())[:80],
    )
    if 300 <= status < 400:
        to = redact.text(response.headers.get("location", "nowhere"))[:200]
        said = f"HTTP {status}, a redirect to {to}, not followed"
        return msgspec.structs.replace(answer, kind="redirect", said=said)
    body = bytearray()
    for chunk in response.iter_content(65536):
        body += chunk
        if len(body) > MAX_BYTES:
            said = f"more than {MAX_BYTES // 2**20} MiB"
            return msgspec.structs.replace(answer, kind="large", said=said)
    return msgspec.structs.replace(answer, body=bytes(body))


def _failed(path: str, error: Exception, seconds: float) -> Answer:
    """Sort what requests raised into a kind, by what urllib3 wrote underneath it."""
    text = str(error)
    kinds: tuple[tuple[str, Kind, str], ...] = (
        ("CERTIFICATE_VERIFY_FAILED", "tls", "TLS: its certificate is not trusted"),
        ("SSLError", "tls", "TLS: no secure connection could be made"),
        ("Connection refused", "refused", "connection refused"),
        ("Failed to resolve", "unresolved", "the host name is not known"),
        ("No route to host", "unroutable", "no route to the host"),
        ("Network is unreachable", "unroutable", "no route to the host"),
        ("ConnectTimeoutError", "unroutable", f"no connection within {min(CONNECT_SECONDS, seconds):.3g} s"),
        ("Read timed out", "timeout", f"no answer within {seconds:.3g} s"),
        ("IncompleteRead", "broken", "the answer was cut off"),
        ("RemoteDisconnected", "broken", "the connection was closed without an answer"),
        ("Connection reset", "broken", "the connection was reset"),
    )
    for words, kind, said in kinds:
        if words in text:
            return Answer(path, kind, said)
    return Answer(path, "broken", f"no HTTP answer ({type(error).__name__})")
