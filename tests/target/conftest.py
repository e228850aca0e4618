"""A deployment on its way to another release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgdoctor import gather
from sgdoctor.engine import rules
from sgdoctor.report.model import Change
from sgdoctor.sources import Sources
from sgdoctor.target import compare
from sgdoctor.target.walk import Walk

MODELS = Path(__file__).parents[1] / "captures" / "models"
H200 = {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771}

Move = Callable[..., Walk]


@pytest.fixture
def move(tmp_path: Path) -> Move:
    """Return what makes a walk of a launch command in an environment, by default one H200 with nothing else.

    ``start`` is what --from-version says; ``model`` one of those in tests/captures/models.
    """

    def walk(
        end: str,
        command: str = "",
        *,
        start: str | None = None,
        model: str | None = None,
        gpus: list[dict[str, Any]] | None = None,
        assume: tuple[str, ...] = (),
        python: str | None = None,
        **environment: Any,
    ) -> Walk:
        file = tmp_path / "environment.json"
        file.write_text(json.dumps({"gpus": gpus or [H200], **environment}))
        config = tmp_path / "config.json"
        config.write_bytes((MODELS / (model or "dense") / "config.json").read_bytes())
        sources = Sources(
            command=tuple(f"python3 -m sglang.launch_server --model-path {tmp_path} {command}".split()),
            model=str(config),
            environment=None if python else str(file),
            python=python,
            gpu="H200" if python else None,
            assume=assume,
        )
        pack = rules.load()
        [gathered] = gather.gather(sources, pack.patterns())
        return Walk(gathered, pack.rules, sources, f"sglang={end}", start)

    return walk


def told(walk: Walk, *kinds: str, minor: bool = False) -> list[Change]:
    """Return the changes of these kinds, those for completeness too when asked for."""
    found = compare.changes(walk)
    return [change for change in found if change.kind in kinds and (minor or not change.minor)]
