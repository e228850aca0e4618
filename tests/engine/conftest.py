"""Rule files to write into a folder of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sgdoctor.engine import rule_file, rules
from sgdoctor.facts import Facts

# A rule with a condition, as rule authors write it.
CONDITION = """\
code: CFG901
name: moe-config-missing
title: No tuned fused-MoE config for this GPU
severity: warning
impact: performance
confidence: high
case: M02
releases: ">=0.5.9,<0.5.13"
applies: model.is_moe
when: moe.runner == "triton" and moe.up.source == "default"
message: "{model.name|The model} looks for {moe.up.expected_file} on {gpu.count|some} GPUs."
why: The built-in config is made for no GPU in particular.
recommend:
  - run: sgdoctor fix --tune-moe
fix: tune-moe
verified: "0.5.9, 0.5.12: srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py"
sources: [srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py@0.5.12]
tests:
  - name: no file
    facts: &moe
      {sglang.version: 0.5.12, model.is_moe: true, moe.runner: triton, moe.up.source: default}
    expect: fail
  - name: a file
    facts: {<<: *moe, moe.up.source: exact}
    expect: pass
  - name: runner unknown
    facts: {sglang.version: 0.5.12, model.is_moe: true}
    expect: unknown
  - name: dense
    facts: {<<: *moe, model.is_moe: false}
    expect: not_applicable
  - name: the log of 0.5.12
    input: {log: "", assume: {}}
    expect: fail
"""

# A rule with a log pattern.
PATTERN = """\
code: RUN901
name: queue-full
title: The queue is full
severity: error
impact: stability
confidence: medium
case: [R01, R02]
match: 'queue (?P<queue>\\w+) is full \\((?P<size>\\d+)\\)'
message: "The queue {queue} holds {size}."
why: Requests wait.
verified: "0.5.12"
sources: [https://docs.sglang.ai]
tests:
  - {name: full, match: {queue: waiting, size: "7"}, expect: fail}
  - {name: "a whole log without it", facts: {log.records: 9, log.has_start: true}, expect: pass}
  - {name: no log, facts: {}, expect: unknown}
  - {name: from a log, input: {log: "queue waiting is full (7)"}, expect: fail}
"""


@pytest.fixture
def pack_folder(tmp_path: Path) -> Path:
    """Return a folder of two sound rules: CFG901 with a condition, RUN901 with a pattern."""
    for code, name, text in (
        ("CFG901", "moe-config-missing", CONDITION),
        ("RUN901", "queue-full", PATTERN),
    ):
        folder = tmp_path / "pack" / code[:-3].lower()
        folder.mkdir(parents=True)
        (folder / f"{code}-{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "pack"


@pytest.fixture
def rule(tmp_path: Path, pack_folder: Path) -> Callable[..., rules.CompiledRule]:
    """Return a function that makes a rule of CFG901 with other values; None takes a key away."""

    def make(**changed: str | None) -> rules.CompiledRule:
        sample = PATTERN if "match" in changed else CONDITION
        head = sample[: sample.index("tests:")]
        for key, value in changed.items():
            lines = [line for line in head.splitlines() if not line.startswith(f"{key}:")]
            head = "\n".join([*lines, *([f"{key}: {value}"] if value is not None else []), ""])
        path = tmp_path / "one.yaml"
        path.write_text(f"{head}tests: []\n", encoding="utf-8")
        return rules.compile_rule(rule_file.read(path), Facts().vocabulary)

    return make


@pytest.fixture
def deployment() -> Callable[..., Facts]:
    """Return a function that makes the facts of a deployment: `deployment({"gpu.count": 4})`."""

    def make(values: dict[str, object] | None = None) -> Facts:
        facts = Facts()
        for name, value in (values or {}).items():
            facts.set(name, value, source="assume", place="test")
        return facts

    return make
