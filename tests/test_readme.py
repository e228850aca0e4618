"""The README's commands are run as they stand, and must print what stands below them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collect import servers

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(
    r"<!-- in (?P<folder>[\w./-]+)(?:, served on (?P<port>\d+))? -->\n"
    r"```console\n\$ (?P<command>.+)\n(?P<output>(?:.*\n)*?)```\n"
)
BLOCKS = list(BLOCK.finditer(README.read_text(encoding="utf-8")))


def test_there_are_five_ways_and_what_changed() -> None:
    assert len(BLOCKS) == 6


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a captured server's answers; gives its URL."""
    name = folder.name
    routes = {
        "/v1/models": servers.captured(name, "v1_models.json"),
        "/server_info": servers.captured(name, "server_info_loaded.json"),
        "/model_info": servers.captured(name, "model_info.json"),
        "/metrics": servers.captured(name, "metrics.txt", "text/plain"),
        "/health": servers.reply(200),
    }
    with servers.running(routes) as server:
        yield server.url


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_command(number: int, request: pytest.FixtureRequest) -> None:
    block = BLOCKS[number]
    folder = ROOT / block["folder"]
    with contextlib.ExitStack() as stack:
        command = block["command"]
        url = ""
        if block["port"]:
            url = stack.enter_context(served(folder))
            command = command.replace(f"http://127.0.0.1:{block['port']}", url)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    output = ended.stdout.replace(url, f"http://127.0.0.1:{block['port']}") if url else ended.stdout
    assert "Traceback" not in ended.stderr
    if request.config.getoption("--update-goldens"):
        text = README.read_text(encoding="utf-8")
        start = text.index(f"$ {block['command']}\n") + len(f"$ {block['command']}\n")
        end = text.index("```\n", start)
        README.write_text(text[:start] + output + text[end:], encoding="utf-8")
        return
    assert output == block["output"]
