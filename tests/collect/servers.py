"""Servers on loopback that answer as a test tells them to."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "captures"

Behaviour = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET by the behaviour of its path, and remembers what was asked."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "uvicorn"
    sys_version = ""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        behaviour = self.server.routes.get(self.path, self.server.otherwise)
        with contextlib.suppress(ConnectionError):
            behaviour(self)
        self.close_connection = True

    def do_POST(self) -> None:
        raise AssertionError("a doctor asks with GET only")

    def log_message(self, *args) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, routes: dict[str, Behaviour], otherwise: Behaviour, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self.routes = routes
        self.otherwise = otherwise
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextlib.contextmanager
def running(
    routes: dict[str, Behaviour],
    otherwise: Behaviour | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[Server]:
    """Serve ``routes`` until the block ends; what hangs is let go then."""
    server = Server(routes, otherwise or reply(404, b'{"detail":"Not Found"}'), host, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def reply(
    status: int, body: bytes = b"", content_type: str = "application/json", **headers: str
) -> Behaviour:
    def behave(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def captured(folder: str, name: str, content_type: str = "application/json") -> Behaviour:
    return reply(200, (CAPTURES / folder / name).read_bytes(), content_type)


def hang(handler: Handler) -> None:
    """Take the request and say nothing."""
    handler.server.over.wait(60)


def drip(handler: Handler) -> None:
    """Send a body byte by byte, each in good time, and never all of it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not handler.server.over.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def drip_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.over.wait(0.05):
        handler.wfile.write(b"x")
        handler.wfile.flush()


def cut_off(handler: Handler) -> None:
    """Announce more than is sent, as a proxy does whose server died."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"version": "0.5.12"')


def close(handler: Handler) -> None:
    """Close the connection without a word."""


def garbage(handler: Handler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


def endless(handler: Handler) -> None:
    """Send an answer without end."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    block = b" " * 2**20
    while not handler.server.over.is_set():
        handler.wfile.write(block)


def slowly(seconds: float, behaviour: Behaviour) -> Behaviour:
    def behave(handler: Handler) -> None:
        handler.server.over.wait(seconds)
        behaviour(handler)

    return behave


def sglang(folder: str = "kv-pool-full") -> dict[str, Behaviour]:
    """Return the routes of a server of the captures, as it answered when it was ready."""
    return {
        "/v1/models": captured(folder, "v1_models.json"),
        "/server_info": captured(folder, "server_info_loaded.json"),
        "/model_info": captured(folder, "model_info.json"),
        "/metrics": captured(folder, "metrics.txt", "text/plain; version=0.0.4; charset=utf-8"),
        "/health": reply(200),
    }


def with_key(key: str, routes: dict[str, Behaviour]) -> dict[str, Behaviour]:
    """Guard ``routes`` as SGLang's auth middleware does: /health and /metrics stay open."""

    def guarded(behaviour: Behaviour) -> Behaviour:
        def behave(handler: Handler) -> None:
            right = handler.headers.get("Authorization") == f"Bearer {key}"
            (behaviour if right else reply(401, b'{"error":"Unauthorized"}'))(handler)

        return behave

    return {path: b if path in ("/health", "/metrics") else guarded(b) for path, b in routes.items()}
