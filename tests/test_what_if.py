"""Assumptions replace what was read, and what was observed without them no longer counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgdoctor import examine, what_if
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Match
from sgdoctor.sources import Sources

HERE = Path(__file__).parent
CAPTURE = HERE / "captures" / "moe-no-config"


def read() -> Facts:
    facts = Facts()
    h200 = {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771}
    facts.set("gpus", [h200], source="environment", place="environment.json")
    facts.set("gpu.name", "NVIDIA H200", source="environment", place="environment.json")
    facts.set("package.triton", "3.6.0", source="environment", place="environment.json")
    facts.set("asked.tp_size", 4, source="launch", place="run.sh:3")
    facts.set("moe.up.source", "default", source="log", place="server.log:7")
    facts.set("arg.attention_backend", "fa3", source="server_info", place="server_info.json")
    facts.matches["X"] = Match(1, "server.log:1", "x")
    return facts


def test_nothing_assumed_changes_nothing() -> None:
    facts = read()
    assert what_if.apply(facts, gpu=None, assumptions=()) is facts


def test_another_gpu_is_a_consistent_one() -> None:
    facts = what_if.apply(read(), gpu="H100:2", assumptions=())
    assert facts.value("gpu.name") == "NVIDIA H100 80GB HBM3"
    assert facts.value("gpu.count") == 2
    assert len(facts.value("gpus")) == 2
    assert facts.value("asked.tp_size") == 4


def test_what_was_observed_on_the_other_gpu_is_left_out_and_that_is_said() -> None:
    facts = what_if.apply(read(), gpu="H100", assumptions=())
    assert not facts.known("moe.up.source")
    assert not facts.known("arg.attention_backend")
    assert facts.matches == {}
    assert any("left out" in note for note in facts.notes)


def test_an_assumption_that_only_fills_a_gap_leaves_observations_alone() -> None:
    facts = what_if.apply(read(), gpu=None, assumptions=("host.driver=580.1",))
    assert facts.value("moe.up.source") == "default"
    assert facts.matches


def test_a_package_and_the_version_it_gives_go_together() -> None:
    facts = what_if.apply(read(), gpu=None, assumptions=("triton.version=3.5.1",))
    assert facts.value("triton.version") == "3.5.1"
    assert not facts.known("package.triton")


@pytest.mark.parametrize(
    ("text", "value"),
    [("arg.tp_size=8", 8), ("arg.enable_dp_attention=true", True), ("moe.up.triton=null", None),
     ("model.name=a=b", "a=b"), ('launch.unrecognized=["--x"]', ["--x"])],
)  # fmt: skip
def test_values_are_of_the_vocabularys_type(text: str, value: Any) -> None:
    assert what_if.apply(Facts(), gpu=None, assumptions=(text,)).value(text.partition("=")[0]) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arg.tp_size", "write NAME=VALUE"),
        ("arg.tp_sise=8", "no such fact"),
        ("arg.tp_size=four", "of type int"),
        ("model.name=null", "cannot be null"),
    ],
)
def test_an_assumption_that_is_none(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        what_if.apply(Facts(), gpu=None, assumptions=(text,))


def test_the_report_on_another_gpu_names_that_gpus_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAPTURE)
    sources = Sources(
        logs=("server.log",),
        launch="command.txt",
        model="../models/moe-e256-n256",
        environment="../environment.json",
        gpu="L40S",
    )
    [deployment] = examine.check(sources).deployments
    [finding] = [each for each in deployment.findings if each.code == "CFG101"]
    assert "device_name=NVIDIA_L40S.json" in finding.message
    assert "H200" not in finding.message
