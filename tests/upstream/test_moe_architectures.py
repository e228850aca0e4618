"""The config file's name for public MoE models: from config.json, flags and GPU to what SGLang looks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sgdoctor.gather import gather
from sgdoctor.sources import Sources
from sgdoctor.upstream import catalogue

DATA = yaml.safe_load((Path(__file__).parent / "moe_architectures.yaml").read_text())
MODELS = DATA["models"]
RELEASE = "0.5.12"
GPUS = {
    "A100": ("NVIDIA A100-SXM4-80GB", "8.0"),
    "A800": ("NVIDIA A800-SXM4-80GB", "8.0"),
    "B200": ("NVIDIA B200", "10.0"),
    "H100": ("NVIDIA H100 80GB HBM3", "9.0"),
    "H20": ("NVIDIA H20", "9.0"),
    "H20-3e": ("NVIDIA H20-3e", "9.0"),
    "H200": ("NVIDIA H200", "9.0"),
    "L40S": ("NVIDIA L40S", "8.9"),
}
CASES = [
    pytest.param(
        model, *case, *(() if len(case) > 4 else (RELEASE,)), id=" ".join([model["model"], *case[:2]])
    )
    for model in MODELS
    for case in model["cases"]
]


@pytest.mark.parametrize(("model", "flags", "gpu", "file", "triton", "release"), CASES)
def test_the_name_that_sglang_looks_for(tmp_path, model, flags, gpu, file, triton, release):
    name, capability = GPUS[gpu]
    pins = catalogue.resolve(release)
    for path, content in {
        "config.json": model["config"],
        "environment.json": {
            "packages": {"sglang": release, "torch": pins.torch_pin, "triton": pins.triton_pin},
            "gpus": [{"name": name, "compute_capability": capability, "memory_mib": 81920}],
        },
    }.items():
        (tmp_path / path).write_text(json.dumps(content))
    (tmp_path / "launch.sh").write_text(f"python -m sglang.launch_server --model-path /m {flags}\n")
    sources = Sources(
        launch=str(tmp_path / "launch.sh"),
        model=str(tmp_path / "config.json"),
        environment=str(tmp_path / "environment.json"),
    )
    facts = gather(sources, {})[0].facts
    assert facts.value("moe.up.expected_file") == file, facts.get("moe.up.expected_file")
    if file is not None:
        assert facts.value("moe.down.expected_file") == file.replace(".json", "_down.json")
    if triton is not None:
        assert file in pins.moe_listing[f"triton_{triton.replace('.', '_')}"]


def test_many_models_and_most_names_are_among_the_files_that_sglang_ships():
    architectures = {model["config"]["architectures"][0] for model in MODELS}
    assert len(architectures) >= 25
    shipped = [case for model in MODELS for case in model["cases"] if case[3] is not None]
    assert len(shipped) >= 50
    assert len({model["model"] for model in MODELS for case in model["cases"] if case[3]}) >= 25


@pytest.mark.parametrize("source", sorted({model["source"] for model in MODELS if model["source"]}))
def test_the_line_that_gives_the_reason_is_there(sglang_wheel, source):
    path, line = source.split(":")
    lines = (sglang_wheel(RELEASE) / "sglang" / path).read_text().splitlines()
    call = lines[int(line) - 2 : int(line) + 16]
    assert call[1].strip().startswith("num_experts=")
    assert any(one.strip().startswith("intermediate_size=") for one in call)
