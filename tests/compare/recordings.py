"""Recordings for the tests: real answers of servers, changed where a test says so, and snapshots of facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sgdoctor import snapshot
from sgdoctor.facts import Facts

TESTS = Path(__file__).parents[1]
SCENARIO = TESTS / "scenarios" / "rtx-pro-6000"
CAPTURES = TESTS / "captures"


def answer(folder: Path, name: str, **changes: Any) -> Path:
    """Write a real server's answer (0.5.12, H200, a dense model) with some values replaced."""
    said = json.loads((CAPTURES / "kv-pool-full" / "server_info.json").read_text())
    for state in said["internal_states"]:
        state.update({key: value for key, value in changes.items() if key in state})
    said.update(changes)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(said))
    return file


def recorded(folder: Path, name: str, source: str = "server_info", **values: Any) -> Path:
    """Write a snapshot of facts, their names with a double underscore for the dot."""
    facts = Facts()
    for key, value in values.items():
        facts.set(key.replace("__", "."), value, source=source, place=name)
    file = folder / f"{name}.json"
    snapshot.save(facts, file)
    return file
