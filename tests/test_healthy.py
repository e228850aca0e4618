"""Deployments with nothing wrong: what is reported about them, beyond what is listed here, is a false alarm.

Each folder has a launch script or a manifest, the model's config.json (the fields that decide, from the
model's page) and what another machine would have: the packages that the release pins, GPUs and driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdoctor import examine
from sgdoctor.report.model import DeploymentReport
from sgdoctor.sources import Sources

HERE = Path(__file__).parent / "healthy"

# What is worth knowing about some of them. CFG102: the kernel config in use was tuned for an older Triton;
# CFG103: the down projection has none of its own; ARG111: prefill runs without piecewise CUDA graphs;
# MEM201: speculative decoding runs 48 requests at once unless told otherwise; ARG220: a decode server keeps
# no prefixes.
WORTH_KNOWING = {
    "deepseek-h200-dp-attention": ["CFG102"],
    "deepseek-h200-mtp": ["CFG102", "MEM201"],
    "dense-h100-hicache": ["ARG111"],
    "kimi-h200-two-nodes": ["CFG102", "CFG103"],
    "llama4-h100": ["CFG102", "CFG103"],
    "mixtral-a100": ["CFG102", "CFG103"],
    "qwen25-vl-h100": ["ARG111"],
    "qwen3-moe-fp8-h200-kubernetes": ["CFG102", "CFG103"],
    "qwen3-moe-h100-tp2": ["CFG102", "CFG103"],
    "qwen3-next-b200-decode": ["ARG220"],
    "qwen3-next-h100-mtp": ["CFG102", "CFG103", "MEM201"],
}

# Rules that a launch script, a model and an environment must be enough for, whatever the answer.
DECIDED = {"ARG101", "ARG102", "ARG103", "ARG104", "ARG110", "ARG114", "ARG115", "SEC101"}

# And what the files of some leave open: the value of a key that a Secret holds; on several nodes SGLang may
# switch the fusion on or off itself.
OPEN = {"kimi-h200-two-nodes": {"ARG103"}, "qwen3-moe-fp8-h200-kubernetes": {"SEC101"}}


def report_of(folder: Path) -> DeploymentReport:
    [deployment] = examine.check(
        Sources(
            launch=str(next(folder.glob("*.sh"), folder / "deployment.yaml")),
            model=str(folder / "config.json"),
            environment=str(folder / "environment.json"),
        )
    ).deployments
    return deployment


@pytest.mark.parametrize("folder", sorted(HERE.iterdir()), ids=lambda folder: folder.name)
def test_no_alarm(folder: Path) -> None:
    report = report_of(folder)
    told = {finding.code: f"{finding.severity}: {finding.message}" for finding in report.findings}
    assert sorted(told) == WORTH_KNOWING.get(folder.name, []), told
    assert {finding.severity for finding in report.findings} <= {"info"}
    assert report.broken == []


@pytest.mark.parametrize("folder", sorted(HERE.iterdir()), ids=lambda folder: folder.name)
def test_that_nothing_is_said_is_not_for_want_of_looking(folder: Path) -> None:
    report = report_of(folder)
    assert report.understood, report.looked_at
    assert report.notes == []
    assert report.summary.sglang is not None
    undecided = DECIDED & {rule.code for rule in report.unknown}
    assert undecided == OPEN.get(folder.name, set())
