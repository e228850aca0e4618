"""Flags that the running server holds other values of than it was started with.

Only what the server itself said counts (/server_info or the banner), never a prediction. A flag for which
SGLang has two spellings of one value, or keeps the answer in another field, is none of them.
"""

from __future__ import annotations

import math
from typing import Any

from sgdoctor.facts import Facts, Known
from sgdoctor.upstream import catalogue

FACT = "launch.changed"

_DESTS = (
    "attention_backend",
    "chunked_prefill_size",
    "decode_attention_backend",
    "deepep_mode",
    "disable_custom_all_reduce",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "disable_shared_experts_fusion",
    "enable_hierarchical_cache",
    "enable_mixed_chunk",
    "ep_size",
    "fp4_gemm_runner_backend",
    "fp8_gemm_runner_backend",
    "hicache_io_backend",
    "kv_cache_dtype",
    "mamba_radix_cache_strategy",
    "mamba_scheduler_strategy",
    "max_running_requests",
    "max_total_tokens",
    "mem_fraction_static",
    "moe_a2a_backend",
    "moe_runner_backend",
    "page_size",
    "prefill_attention_backend",
    "sampling_backend",
    "schedule_conservativeness",
    "schedule_policy",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
)
# One value under two names (choices of --kv-cache-dtype and --attention-backend).
_SAME = {"bf16": "bfloat16", "nsa": "dsa", "compressed": "dsv4"}
_SAID = ("server_info", "http", "log")


def derive(facts: Facts) -> None:
    """Set ``launch.changed``, or say that there is nothing to compare."""
    release = catalogue.resolve(facts.value("sglang.version", "")) if facts.known("sglang.version") else None
    found: list[dict[str, str]] = []
    inputs: list[str] = []
    compared = False
    for dest in _DESTS:
        asked, effective = facts.get(f"asked.{dest}"), facts.get(f"arg.{dest}")
        if not isinstance(asked, Known) or not isinstance(effective, Known) or not _said(effective):
            continue
        compared = True
        if asked.value is None or _same(asked.value, effective.value):
            continue
        inputs += [f"asked.{dest}", f"arg.{dest}"]
        found.append({"flag": _option(dest, release), "asked": _text(asked), "in_effect": _text(effective)})
    if compared:
        facts.derive(FACT, found, inputs)
    else:
        facts.set_unknown(FACT, "needs a launch command and what the server says of itself")


def _said(fact: Known) -> bool:
    return any(each.source in _SAID for each in fact.provenance)


def _same(asked: Any, effective: Any) -> bool:
    if asked == "auto":
        return True
    if isinstance(asked, float) and isinstance(effective, (int, float)):
        return math.isclose(asked, effective, rel_tol=1e-6)
    if isinstance(asked, str):
        return bool(_SAME.get(asked, asked) == _SAME.get(effective, effective))
    return bool(asked == effective)


def _text(fact: Known) -> str:
    return "not set" if fact.value is None else str(fact.value)


def _option(dest: str, release: Any) -> str:
    if release is not None:
        for flag in release.flags:
            if flag.dest == dest and flag.options:
                return str(flag.options[0])
    return "--" + dest.replace("_", "-")
