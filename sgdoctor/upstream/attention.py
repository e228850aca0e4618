"""What SGLang makes of the attention backends and the page size that were asked for.

Up to 0.5.14 ``_handle_attention_backend_compatibility`` (srt/server_args.py), from 0.5.15 on the passes of
srt/arg_groups/overrides.py with the rest of that handler (from 0.5.19 on in attention_hook.py), and
``create_flashattention_v3_backend`` in srt/layers/attention/attention_registry.py.
"""

from __future__ import annotations

import msgspec
from packaging.version import Version

from sgdoctor.facts import Facts

REFUSED = "attention.refused"
PAGE_SIZE = "attention.page_size"

_HOPPER, _BLACKWELL, _BLACKWELL_12 = 9, 10, 12
# Their attention is sparse: the release sets the backend itself, whatever was asked for.
_SPARSE = ("DeepseekV32", "DeepseekV4", "GlmMoeDsa", "Glm5")


class Backends(msgspec.Struct, frozen=True):
    """--attention-backend, --prefill-attention-backend and --decode-attention-backend as written."""

    main: str | None
    prefill: str | None
    decode: str | None

    @property
    def phases(self) -> tuple[str | None, str | None]:
        """What prefill and decode run on; None where the release chooses."""
        return self.prefill or self.main, self.decode or self.main

    def anywhere(self, name: str) -> bool:
        """Whether one of the three flags names it."""
        return name in (self.main, self.prefill, self.decode)

    def main_or_decode(self, name: str) -> bool:
        """Whether it is named where the checks of the MLA backends look."""
        return name in (self.main, self.decode)


def refusal(release: Version, major: int, backends: Backends, kv_dtype: str | None) -> str | None:
    """Return why the server stops with these backends on compute capability ``major``.x; None if it does not.

    Read in 0.5.7, 0.5.9, 0.5.10, 0.5.13, 0.5.14, 0.5.18, 0.5.19, 0.5.22, 0.5.23. tokenspeed_mla is there from
    0.5.12 on, cutedsl_mla from 0.5.13 on.
    """
    to_triton = backends.main == "fa3" and kv_dtype == "fp8_e5m2"
    if "fa3" in backends.phases and major >= _BLACKWELL and not to_triton:
        return "fa3 runs on compute capability 8.x and 9.0 only"
    for name in ("trtllm_mla", "tokenspeed_mla"):
        if backends.main_or_decode(name) and major < _BLACKWELL:
            return f"{name} needs compute capability 10.0 or newer"
    for name in _only_10(release):
        if backends.anywhere(name) and major != _BLACKWELL:
            return f"{name} runs on compute capability 10.x only"
    return _trtllm_mha(release, major, backends, kv_dtype)


def _only_10(release: Version) -> tuple[str, ...]:
    """From 0.5.23 on tokenspeed_mla is another name of cutedsl_mla (choices.py)."""
    return ("cutedsl_mla", "tokenspeed_mla") if release >= Version("0.5.23") else ("cutedsl_mla",)


def _trtllm_mha(release: Version, major: int, backends: Backends, kv_dtype: str | None) -> str | None:
    name = "trtllm_mha"
    prefill, decode = backends.phases
    if release < Version("0.5.10"):
        if backends.anywhere(name) and major != _BLACKWELL:
            return "trtllm_mha runs on compute capability 10.x only"
        return None
    wide = (_HOPPER, _BLACKWELL, _BLACKWELL_12)
    if name in (prefill, decode) and major not in wide:
        return "trtllm_mha runs on compute capability 9.0, 10.x and 12.x only"
    if prefill != name:
        return None
    if release < Version("0.5.19"):
        return None if major == _BLACKWELL else "trtllm_mha does prefill on compute capability 10.x only"
    if major == _BLACKWELL_12 and kv_dtype == "fp8_e4m3":
        return "trtllm_mha does no prefill with an fp8_e4m3 KV cache on compute capability 12.x"
    return None


def page_size(release: Version, asked: int, backends: Backends) -> int | None:
    """Return the page size that the backends asked for set instead of ``asked``; None if they leave it.

    Read in 0.5.7, 0.5.10, 0.5.13, 0.5.15 and 0.5.23; trtllm_mha takes 128 from 0.5.17 on. fa4 is left out: it
    depends on the model's attention.
    """
    size = asked
    if backends.main_or_decode("flashmla"):
        size = 64
    if backends.main_or_decode("cutlass_mla"):
        size = 128
    if backends.main_or_decode("trtllm_mla") or backends.main_or_decode("tokenspeed_mla"):
        size = size if size in (32, 64) else 64
    if backends.anywhere("cutedsl_mla"):
        size = size if size in (32, 64) else 64
    if backends.anywhere("trtllm_mha"):
        allowed = (16, 32, 64) if release < Version("0.5.17") else (16, 32, 64, 128)
        size = size if size in allowed else 64
    if backends.anywhere("hpc_ops"):
        size = 64
    return None if size == asked else size


def derive(facts: Facts) -> None:
    """Set ``attention.refused`` and ``attention.page_size``, or say what is missing for them."""
    flags = ["asked.attention_backend", "asked.prefill_attention_backend", "asked.decode_attention_backend"]
    architecture = facts.value("model.architecture")
    sparse = isinstance(architecture, str) and architecture.startswith(_SPARSE)
    _derive_refusal(facts, flags, sparse=sparse)
    _derive_page_size(facts, flags, sparse=sparse)


def _derive_refusal(facts: Facts, flags: list[str], *, sparse: bool) -> None:
    backends = Backends(*(facts.value(flag) for flag in flags))
    if all(facts.known(flag) for flag in flags) and not any(facts.value(flag) for flag in flags):
        facts.derive(REFUSED, None, flags)
        return
    inputs = [*flags, "sglang.version", "gpu.vendor", "gpu.compute_capability", "asked.kv_cache_dtype"]
    missing = facts.missing(*inputs)
    if missing:
        facts.set_unknown(REFUSED, "not everything that decides it is known", missing)
        return
    capability = facts.value("gpu.compute_capability")
    if facts.value("gpu.vendor") != "nvidia" or capability is None:
        facts.set_unknown(REFUSED, "only NVIDIA GPUs were looked at")
        return
    if sparse:
        facts.set_unknown(REFUSED, "the model may choose its own attention backend")
        return
    release, major = Version(facts.value("sglang.version")), Version(capability).major
    facts.derive(REFUSED, refusal(release, major, backends, facts.value("asked.kv_cache_dtype")), inputs)


def _derive_page_size(facts: Facts, flags: list[str], *, sparse: bool) -> None:
    if facts.known("asked.page_size") and facts.value("asked.page_size") is None:
        facts.derive(PAGE_SIZE, None, ["asked.page_size"])
        return
    inputs = ["asked.page_size", "sglang.version", *flags]
    missing = facts.missing(*inputs)
    if missing:
        facts.set_unknown(PAGE_SIZE, "not everything that decides it is known", missing)
        return
    if sparse:
        facts.set_unknown(PAGE_SIZE, "the model may choose its own attention backend")
        return
    backends = Backends(*(facts.value(flag) for flag in flags))
    release = Version(facts.value("sglang.version"))
    facts.derive(PAGE_SIZE, page_size(release, facts.value("asked.page_size"), backends), inputs)
