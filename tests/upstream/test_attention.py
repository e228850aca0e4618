"""Attention backends and page sizes that were asked for: what each release refuses, and what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from sgdoctor.facts import Facts, Unknown
from sgdoctor.upstream import attention
from sgdoctor.upstream.attention import Backends


def backends(main: str | None = None, prefill: str | None = None, decode: str | None = None) -> Backends:
    return Backends(main, prefill, decode)


@pytest.mark.parametrize(
    ("release", "major", "asked", "kv", "starts"),
    [
        ("0.5.12", 9, backends("fa3"), None, True),
        ("0.5.12", 10, backends("fa3"), None, False),
        ("0.5.23", 12, backends(decode="fa3"), None, False),
        ("0.5.12", 12, backends("fa3"), "fp8_e5m2", True),  # it becomes triton
        ("0.5.12", 12, backends("fa3", prefill="flashinfer", decode="triton"), None, True),  # nobody uses it
        ("0.5.12", 9, backends("trtllm_mla"), None, False),
        ("0.5.12", 12, backends("trtllm_mla"), None, True),  # the check lets it through
        ("0.5.13", 12, backends("cutedsl_mla"), None, False),
        ("0.5.22", 12, backends("tokenspeed_mla"), None, True),
        ("0.5.23", 12, backends("tokenspeed_mla"), None, False),
        ("0.5.9", 9, backends(decode="trtllm_mha"), None, False),
        ("0.5.10", 9, backends(decode="trtllm_mha"), None, True),
        ("0.5.10", 9, backends("trtllm_mha"), None, False),  # prefill too
        ("0.5.18", 12, backends("trtllm_mha"), None, False),
        ("0.5.19", 12, backends("trtllm_mha"), None, True),
        ("0.5.19", 12, backends("trtllm_mha"), "fp8_e4m3", False),
        ("0.5.19", 12, backends("trtllm_mha", prefill="flashinfer"), "fp8_e4m3", True),
        ("0.5.19", 8, backends("trtllm_mha"), None, False),
        ("0.5.19", 10, backends("trtllm_mha"), "fp8_e4m3", True),
    ],
)
def test_refusal(release: str, major: int, asked: Backends, kv: str | None, *, starts: bool) -> None:
    reason = attention.refusal(Version(release), major, asked, kv)
    assert (reason is None) is starts, reason


@pytest.mark.parametrize(
    ("release", "size", "asked", "becomes"),
    [
        ("0.5.12", 16, backends("flashmla"), 64),
        ("0.5.12", 64, backends("flashmla"), None),
        ("0.5.12", 1, backends("cutlass_mla"), 128),
        ("0.5.12", 1, backends("trtllm_mla"), 64),
        ("0.5.12", 32, backends("trtllm_mla"), None),
        ("0.5.12", 1, backends(prefill="trtllm_mla"), None),  # only the decode side is looked at
        ("0.5.16", 128, backends("trtllm_mha"), 64),
        ("0.5.17", 128, backends("trtllm_mha"), None),
        ("0.5.17", 16, backends("hpc_ops"), 64),
        ("0.5.13", 16, backends(decode="cutedsl_mla"), 64),
        ("0.5.12", 128, backends("fa3"), None),
        ("0.5.12", 128, backends(), None),
    ],
)
def test_page_size(release: str, size: int, asked: Backends, becomes: int | None) -> None:
    assert attention.page_size(Version(release), size, asked) == becomes


ASKED: dict[str, Any] = {
    "sglang.version": "0.5.12",
    "gpu.vendor": "nvidia",
    "gpu.compute_capability": "12.0",
    "asked.attention_backend": "fa3",
    "asked.prefill_attention_backend": None,
    "asked.decode_attention_backend": None,
    "asked.kv_cache_dtype": None,
    "asked.page_size": None,
}


def derived(*without: str, **changed: Any) -> Facts:
    facts = Facts()
    values = ASKED | {name.replace("__", "."): value for name, value in changed.items()}
    for name, value in values.items():
        if name not in without:
            facts.set(name, value, source="launch", place="run.sh:1")
    attention.derive(facts)
    return facts


def test_the_facts() -> None:
    facts = derived()
    assert facts.value(attention.REFUSED) == "fa3 runs on compute capability 8.x and 9.0 only"
    assert facts.known(attention.PAGE_SIZE)
    assert facts.value(attention.PAGE_SIZE) is None
    assert derived(asked__attention_backend="flashmla", asked__page_size=16).value(attention.PAGE_SIZE) == 64


def test_nothing_asked_for_needs_no_gpu() -> None:
    facts = derived("gpu.vendor", "gpu.compute_capability", asked__attention_backend=None)
    assert facts.known(attention.REFUSED)
    assert facts.value(attention.REFUSED) is None


def test_what_is_missing_or_was_not_looked_at() -> None:
    unknown = derived("gpu.compute_capability").get(attention.REFUSED)
    assert isinstance(unknown, Unknown)
    assert "gpu.compute_capability" in unknown.missing
    assert not derived("sglang.version", asked__page_size=16).known(attention.PAGE_SIZE)
    assert not derived(gpu__vendor="amd", gpu__compute_capability=None).known(attention.REFUSED)
    sparse = derived(model__architecture="DeepseekV32ForCausalLM", asked__page_size=16)
    assert not sparse.known(attention.REFUSED)
    assert not sparse.known(attention.PAGE_SIZE)
