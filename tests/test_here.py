"""This machine: servers that run on it, in real child processes; an installation; nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgdoctor import examine, gather
from sgdoctor.errors import Undecided
from sgdoctor.sources import Sources
from tests.collect import layouts
from tests.collect.test_processes import started

# Says what a server says and answers on its port with what was captured from one.
LAUNCH_SERVER = """
import http.server, pathlib, sys, threading, time
answers = pathlib.Path(CAPTURES)
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        names = {"/v1/models": "v1_models.json", "/server_info": "server_info_loaded.json",
                 "/model_info": "model_info.json", "/metrics": "metrics.txt"}
        known = self.path in names or self.path == "/health"
        body = (answers / names[self.path]).read_bytes() if self.path in names else b""
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stderr.write((answers / "server.log").read_text())
print("up up", file=sys.stderr, flush=True)
time.sleep(60)
"""
CAPTURE = Path(__file__).parent / "captures" / "moe-no-config"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a virtual environment with SGLang 0.5.12 in it."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next(venv.glob("lib/python3*/site-packages"))
    package = layouts.sglang(site, "0.5.12")
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(LAUNCH_SERVER.replace("CAPTURES", repr(str(CAPTURE))))
    layouts.triton(site, "3.6.0")
    return site


def test_a_running_server_is_found_asked_and_read(site: Path, tmp_path: Path) -> None:
    python = site.parents[2] / "bin" / "python"
    port = 31000  # the captured answers are those of a server on this port
    command = [str(python), "-u", "-m", "sglang.launch_server", "--model-path", "/models/moe-e256-n256"]
    command += ["--port", str(port), "--load-format", "dummy"]
    with started(command, tmp_path / "server.log"):
        report = examine.check(Sources())
    [deployment] = [each for each in report.deployments if each.summary.url == f"http://127.0.0.1:{port}"]
    assert deployment.summary.sglang == "0.5.12"
    assert "CFG101" in {finding.code for finding in deployment.findings}
    sources = {looked.source for looked in deployment.looked_at}
    assert {"http", "log", "packages"} <= sources


def test_an_installation_alone(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{site.parents[2] / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    found = gather.gather(Sources(), {})
    [installation] = [each for each in found if each.command is None]
    assert installation.facts.value("sglang.version") == "0.5.12"
    assert installation.facts.value("triton.version") == "3.6.0"


def test_nothing_here_is_undecided_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    with pytest.raises(Undecided, match="--sample moe-no-config"):
        gather.gather(Sources(), {})
