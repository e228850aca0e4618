"""Launch commands that public guides recommend: what is said of them is right, and nothing else is said.

They were run through sgdoctor with some two thousand others; each warning and error among these was looked
up in the wheel of the release.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sgdoctor import examine
from sgdoctor.sources import Sources

HERE = Path(__file__).parent
MODELS = yaml.safe_load((HERE / "recommended" / "models.yaml").read_text())
COMMANDS = yaml.safe_load((HERE / "recommended" / "commands.yaml").read_text())


def model_file(name: str | None, tmp_path: Path) -> str | None:
    """Return the config.json of a model of models.yaml, or of a folder of tests/healthy."""
    if name is None:
        return None
    if name not in MODELS:
        return str(HERE / "healthy" / name / "config.json")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MODELS[name]))
    return str(file)


def name_of(case: dict[str, Any]) -> str:
    words = case["command"].split()
    model = next(after for word, after in itertools.pairwise(words) if word.startswith("--model"))
    return "-".join([model.rpartition("/")[2], str(case["release"]), case.get("gpu", "none")])


@pytest.mark.parametrize("case", COMMANDS, ids=name_of)
def test_recommended(case: dict[str, Any], tmp_path: Path) -> None:
    assumed = [f"sglang.version={case['release']}"]
    if "triton" in case:
        assumed.append(f"triton.version={case['triton']}")
    launch = tmp_path / "launch.sh"
    launch.write_text(case["command"] + "\n")
    sources = Sources(
        launch=str(launch),
        model=model_file(case.get("model"), tmp_path),
        gpu=case.get("gpu"),
        assume=tuple(assumed),
    )
    [deployment] = examine.check(sources).deployments
    told = {each.code: each.message for each in deployment.findings if each.severity != "info"}
    assert sorted(told) == sorted(case.get("expect", {})), told
    assert deployment.broken == []
