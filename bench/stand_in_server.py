"""Stands in for an SGLang server and for the tuner where there is no GPU: for rehearsals and tests.

    python3 bench/stand_in_server.py serve --capture FOLDER --configs DIR --port N [SGLang's flags]
    python3 bench/stand_in_server.py tune --configs DIR

``serve`` prints the log of a captured server up to its being ready and answers what that server answered;
where DIR has configuration files it says that it uses them, as SGLang 0.5.12 does. ``tune`` writes such
files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ANSWERS = {
    "/server_info": "server_info.json",
    "/v1/models": "v1_models.json",
    "/model_info": "model_info.json",
    "/metrics": "metrics.txt",
    "/get_load": "get_load.json",
}
READY = "The server is fired up and ready to roll!"
CAPTURED_PORT = "31000"
# As SGLang 0.5.12 says that it found no file, up to the file's place (fused_moe_triton_config.py).
_MISSING = re.compile(
    r"Using (?:default MoE kernel config|MoE kernel config with down_moe=False)\. .* not found at "
    r"\S*?(E=[^\r\n]*?\.json), you can create them with \S+"
)
SECONDS_A_TOKEN = 0.0001


def log_of(capture: Path, configs: Path, port: int) -> str:
    """Return what the server prints until it is ready."""
    text = (capture / "server.log").read_bytes().decode()
    text = text[: text.index(READY)] + READY + "\n"

    def found(match: re.Match[str]) -> str:
        path = configs / match[1]
        return f"Using MoE kernel config from {path}." if path.is_file() else match[0]

    return _MISSING.sub(found, text).replace(CAPTURED_PORT, str(port))


def handler(capture: Path, port: int) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests as the captured server did."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Say nothing, as with SGLang's --log-level-http warning."""

        def answer(self, content: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            if self.path == "/health":
                self.answer(b"")
            elif self.path in ANSWERS:
                text = (capture / ANSWERS[self.path]).read_text()
                self.answer(text.replace(CAPTURED_PORT, str(port)).encode())
            else:
                self.answer(b'{"detail":"Not Found"}', 404)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/generate":
                self.answer(b'{"detail":"Not Found"}', 404)
                return
            tokens = asked["sampling_params"]["max_new_tokens"]
            time.sleep(tokens * SECONDS_A_TOKEN)
            counts = {"prompt_tokens": len(asked["input_ids"]), "completion_tokens": tokens}
            self.answer(json.dumps({"text": "", "meta_info": counts | {"cached_tokens": 0}}).encode())

    return Handler


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as the load has."""

    request_queue_size = 512
    daemon_threads = True


def serve(arguments: argparse.Namespace) -> None:
    """Print the log, then answer until killed."""
    server = Server(("127.0.0.1", arguments.port), handler(arguments.capture, arguments.port))
    lines = log_of(arguments.capture, arguments.configs, arguments.port).splitlines(keepends=True)
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()
        time.sleep(0.5 / len(lines))
    server.serve_forever()


def tune(arguments: argparse.Namespace) -> None:
    """Write an up and a down file, as the repair does."""
    entry = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
    arguments.configs.mkdir(parents=True, exist_ok=True)
    for end in ("", "_down"):
        path = arguments.configs / f"E=256,N=256,device_name=NVIDIA_H200{end}.json"
        path.write_text(json.dumps({"1": entry | {"num_warps": 4, "num_stages": 4}}))
        print(f"installed {path}")


def main() -> None:
    """Do what the first argument says; SGLang's own flags are accepted and ignored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("do", choices=("serve", "tune"))
    parser.add_argument("--capture", type=Path)
    parser.add_argument("--configs", type=Path, required=True)
    parser.add_argument("--port", type=int)
    arguments, _ = parser.parse_known_args()
    {"serve": serve, "tune": tune}[arguments.do](arguments)


if __name__ == "__main__":
    main()
