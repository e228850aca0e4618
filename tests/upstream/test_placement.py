"""How many GPUs the flags ask for on one node."""

from __future__ import annotations

from typing import Any

import pytest

from sgdoctor.facts import Facts, Unknown
from sgdoctor.upstream import placement

DEFAULTS = {
    "arg.tp_size": 1,
    "arg.pp_size": 1,
    "arg.nnodes": 1,
    "arg.base_gpu_id": 0,
    "arg.gpu_id_step": 1,
    "arg.use_ray": False,
    "arg.dp_size": 1,
    "arg.enable_dp_attention": False,
}


def placed(**known: Any) -> Facts:
    facts = Facts()
    for name, value in (DEFAULTS | {f"arg.{name}": value for name, value in known.items()}).items():
        facts.set(name, value, source="launch", place="run.sh:1")
    placement.derive(facts)
    return facts


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, 1),
        ({"tp_size": 8}, 8),
        ({"tp_size": 16, "nnodes": 2}, 8),
        ({"tp_size": 2, "pp_size": 4}, 8),
        ({"tp_size": 8, "pp_size": 2, "nnodes": 2}, 8),  # a stage a node
        ({"tp_size": 8, "pp_size": 2, "nnodes": 4}, 4),  # half a stage a node
        ({"tp_size": 4, "pp_size": 4, "nnodes": 2}, 8),  # two stages a node
        ({"tp_size": 2, "dp_size": 4}, 8),
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        ({"tp_size": 4, "base_gpu_id": 4}, 8),
        ({"tp_size": 4, "gpu_id_step": 2}, 7),  # 0, 2, 4 and 6
    ],
)
def test_one_more_than_the_last_gpu(flags: dict[str, Any], wanted: int) -> None:
    assert placed(**flags).value("gpu.wanted") == wanted


def test_what_cannot_be_told() -> None:
    assert placed(use_ray=True).get("gpu.wanted") == Unknown("Ray places the ranks", ("arg.use_ray",))
    assert placed(nnodes=0).get("gpu.wanted").reason.startswith("a size below 1")  # type: ignore[union-attr]
    amd = Facts()
    amd.set("gpu.vendor", "amd", source="gpus", place="rocm-smi")
    placement.derive(amd)
    assert amd.get("gpu.wanted") == Unknown("only NVIDIA's GPUs are counted", ("gpu.vendor",))
    nothing = Facts()
    placement.derive(nothing)
    assert "arg.nnodes" in nothing.get("gpu.wanted").missing  # type: ignore[union-attr]


def test_a_server_that_has_started_found_its_gpus() -> None:
    facts = Facts()
    facts.set("kv.tokens", 1000, source="log", place="server.log:9")
    placement.derive(facts)
    assert facts.get("gpu.wanted") == Unknown("the server has started on the GPUs that there are")
