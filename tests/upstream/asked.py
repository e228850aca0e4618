"""What is known of a launch command alone, and of what is taken for known beside it."""

from __future__ import annotations

from typing import Any

from sgdoctor.collect import launch
from sgdoctor.collect.launch_asked import interpret
from sgdoctor.facts import Facts
from sgdoctor.upstream.arguments import effective


def facts_of(flags: str, version: str | None = "0.5.12", **more: Any) -> Facts:
    facts = Facts()
    if version is not None:
        facts.set("sglang.version", version, source="assume", place="--assume")
    for name, value in more.items():
        facts.set(name, value, source="assume", place="--assume")
    (command,) = launch.parse_script(
        f"python3 -m sglang.launch_server --model-path /m/q {flags}", "launch.sh"
    )
    launch.collect(facts, command)
    interpret(facts, command)
    effective(facts)
    return facts
