"""Flags that a running server holds other values of than it was started with."""

from __future__ import annotations

from typing import Any

import pytest

from sgdoctor.facts import Facts, Unknown
from sgdoctor.upstream import changed


def compared(asked: dict[str, Any], effective: dict[str, Any], source: str = "server_info") -> Facts:
    facts = Facts()
    facts.set("sglang.version", "0.5.16", source="packages", place="here")
    for dest, value in asked.items():
        facts.set(f"asked.{dest}", value, source="launch", place="run.sh:1")
    for dest, value in effective.items():
        facts.set(f"arg.{dest}", value, source=source, place="/server_info")
    changed.derive(facts)
    return facts


def test_a_page_size_that_the_backend_changed() -> None:
    facts = compared({"page_size": 16, "attention_backend": "flashmla"}, {"page_size": 64})
    assert facts.value(changed.FACT) == [{"flag": "--page-size", "asked": "16", "in_effect": "64"}]


def test_the_flag_is_named_as_the_command_line_spells_it() -> None:
    facts = compared({"fp8_gemm_runner_backend": "triton"}, {"fp8_gemm_runner_backend": "cutlass"})
    assert facts.value(changed.FACT)[0]["flag"] == "--fp8-gemm-backend"


@pytest.mark.parametrize(
    ("dest", "asked", "effective"),
    [
        ("page_size", None, 64),  # left to SGLang
        ("moe_runner_backend", "auto", "flashinfer_trtllm"),  # as well
        ("kv_cache_dtype", "bf16", "bfloat16"),
        ("attention_backend", "nsa", "dsa"),
        ("mem_fraction_static", 0.85, 0.8500000001),
        ("disable_radix_cache", True, True),
    ],
)
def test_what_is_no_change(dest: str, asked: Any, effective: Any) -> None:
    facts = compared({dest: asked}, {dest: effective})
    assert facts.known(changed.FACT)
    assert facts.value(changed.FACT) == []


def test_a_prediction_is_not_compared() -> None:
    facts = Facts()
    facts.set("asked.page_size", 16, source="launch", place="run.sh:1")
    facts.derive("arg.page_size", 64, ["asked.page_size"])
    changed.derive(facts)
    assert isinstance(facts.get(changed.FACT), Unknown)


def test_nothing_to_compare() -> None:
    facts = compared({"page_size": 16}, {})
    assert not facts.known(changed.FACT)
    assert compared({"page_size": 16}, {"page_size": 64}, source="log").known(changed.FACT)
