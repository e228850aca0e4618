"""A release's own code, answering questions in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Oracle:
    """A child that answers one line of JSON with one line of JSON."""

    def __init__(self, script: str, source: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script)), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "ready\n"

    def put(self, question: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(question) + "\n")
        self.child.stdin.flush()

    def get(self) -> Any:
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())

    def ask(self, question: Any) -> Any:
        self.put(question)
        return self.get()

    def close(self) -> None:
        with self.child:
            assert self.child.stdin is not None
            self.child.stdin.close()


def start(script: str, sources: Mapping[str, Path]) -> dict[str, Oracle]:
    """Start a child a release, side by side."""
    oracles = {release: Oracle(script, source) for release, source in sources.items()}
    for oracle in oracles.values():
        oracle.wait_until_ready()
    return oracles


def ask_all(oracles: Mapping[str, Oracle], question: Any) -> dict[str, Any]:
    """Ask all the same; they think at the same time."""
    for oracle in oracles.values():
        oracle.put(question)
    return {release: oracle.get() for release, oracle in oracles.items()}
