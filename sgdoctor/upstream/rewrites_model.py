"""What SGLang 0.5.7 to 0.5.23 makes of the flags about the model, memory and attention, by destination.

Read in the handlers of srt/server_args.py (up to 0.5.18), srt/arg_groups/overrides.py (from 0.5.15 on) and,
from 0.5.19 on, in serving_hook.py, model_path_hook.py, memory_hook.py, attention_hook.py, model_hook.py and
model_overrides/ of srt/arg_groups/, release by release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packaging.version import Version

from sgdoctor.upstream.asked_view import Open, View
from sgdoctor.upstream.rewrites_features import ORDINARY

# Backends that --attention-backend keeps, checks of the hardware aside; the others have aliases or fallbacks.
_KEPT_BACKENDS = frozenset(
    [
        "triton",
        "flashinfer",
        "fa3",
        "fa4",
        "trtllm_mha",
        "trtllm_mla",
        "flashmla",
        "torch_native",
        "flex_attention",
    ]
)
# Model families that replace a chosen backend, or the halves of it.
_OWN_ATTENTION = ("DeepseekV4", "Hrm", "IQuest", "KimiK3", "MiniCPM", "MossVL", "Qwen3VL")


def model_path(view: View) -> str:
    """As asked, but for ModelScope downloads and GGUF files on the Hub (0.5.18+)."""
    if view.environment("SGLANG_USE_MODELSCOPE"):
        raise Open("ModelScope replaces it with the downloaded folder")
    path = str(view.plain("model_path"))
    if view.since("0.5.18") and (path.lower().endswith(".gguf") or ":" in path):
        raise Open("a GGUF reference is replaced with the downloaded file")
    return path


def served_model_name(view: View) -> str | None:
    """As asked, else the model path (_handle_missing_default_values)."""
    written = view.asked("served_model_name")
    return str(written) if written is not None else str(view.plain("model_path"))


def trust_remote_code(view: View) -> bool:
    """As asked in all releases (the MLX runner has an attribute of the same name)."""
    return bool(view.plain("trust_remote_code"))


def tokenizer_worker_num(view: View) -> int:
    """As asked; up to 0.5.15 one with --skip-tokenizer-init (_handle_tokenizer_batching)."""
    if not view.since("0.5.16") and view.is_set("skip_tokenizer_init"):
        return 1
    return int(view.plain("tokenizer_worker_num"))


def context_length(view: View) -> int | None:
    """As asked; only the draft model's worker gets another (speculative/, up to 0.5.16)."""
    written = view.plain("context_length")
    return None if written is None else int(written)


def load_format(view: View) -> str:
    """Return a format that is named, for a local folder or a Hub name; auto looks at the files."""
    written = str(view.plain("load_format"))
    path = str(view.plain("model_path"))
    if written in ("auto", "gguf", "remote", "remote_instance") or "://" in path:
        raise Open("SGLang chooses the load format by the model's files")
    return written


def schedule_conservativeness(view: View) -> float:
    """As asked, times 0.3 with DP attention (_handle_data_parallelism)."""
    asked = float(view.plain("schedule_conservativeness"))
    return asked * 0.3 if view.effective("enable_dp_attention") else asked


def max_running_requests(view: View) -> int | None:
    """As asked; unset it becomes 48 with speculative decoding and 256 for DeepSeek-V4 (0.5.12+).

    What the KV cache then allows is another number: kv.max_running_requests.
    """
    written = view.asked("max_running_requests")
    if written is not None:
        if view.since("0.5.20") and str(view.use("model.architecture")).startswith("Deepseek"):
            raise Open("the index cache of sparse attention may lower it")
        return int(written)
    if view.asked("speculative_algorithm") is not None:
        raise Open("speculative decoding sets it")
    if view.since("0.5.12") and str(view.use("model.architecture")).startswith("DeepseekV4"):
        return 256
    return None


def mem_fraction_static(view: View) -> float:
    """As asked, but for aiter on AMD and KV cache sharding (0.5.22+); unset it is computed from the GPU."""
    written = view.asked("mem_fraction_static")
    if written is None:
        raise Open("SGLang computes it from the GPU's memory")
    view.unset("enable_kv_cache_sharding")
    if view.asked("attention_backend") in (None, "aiter"):
        view.nvidia()
    return float(written)


def chunked_prefill_size(view: View) -> int:
    """As asked, but divided by DP attention and switched off by some models; unset it follows the GPU."""
    written = view.asked("chunked_prefill_size")
    if written is None:
        raise Open("SGLang chooses it by the GPU's memory")
    view.unset("enable_mis")
    if view.effective("enable_dp_attention"):
        raise Open("DP attention divides it")
    if view.use("model.architecture") not in ORDINARY:
        raise Open("the model may switch chunked prefill off")
    return int(written)


def attention_backend(view: View) -> str:
    """As asked, unless prefill and decode name another or the model brings its own."""
    written = view.asked("attention_backend")
    if written is None:
        raise Open("SGLang chooses the attention backend by GPU and model")
    _own_halves(view)
    view.nvidia()
    if written not in _KEPT_BACKENDS:
        raise Open("SGLang may replace this attention backend")
    if written == "fa3" and view.asked("kv_cache_dtype") == "fp8_e5m2":
        return "triton"
    return str(written)


def decode_attention_backend(view: View) -> str | None:
    """Unset it stays so, but for hierarchical caches, NVFP4 KV caches and some models."""
    return _half(view, "decode_attention_backend")


def prefill_attention_backend(view: View) -> str | None:
    """As decode_attention_backend."""
    return _half(view, "prefill_attention_backend")


def _half(view: View, dest: str) -> str | None:
    if view.asked(dest) is not None:
        raise Open("SGLang may replace this attention backend")
    _own_halves(view)
    view.nvidia()
    view.unset("enable_hierarchical_cache", "disaggregation_decode_enable_offload_kvcache")
    if view.asked("attention_backend") in ("cutedsl_mla", "tokenspeed_mla"):
        raise Open("the MLA backend chooses another for prefill")
    if view.asked("kv_cache_dtype") == "nvfp4":
        raise Open("an NVFP4 KV cache chooses the backends")
    return None


def _own_halves(view: View) -> None:
    view.unset(
        "prefill_attention_backend", "decode_attention_backend", "dllm_algorithm", "enable_double_sparsity"
    )
    if str(view.use("model.architecture")).startswith(_OWN_ATTENTION):
        raise Open("the model brings its own attention backend")


def kv_cache_dtype(view: View) -> str:
    """As asked for ordinary models; auto may become the checkpoint's type or that of sparse attention."""
    written = view.asked("kv_cache_dtype")
    if written is None or written == "auto":
        raise Open("SGLang may choose the KV cache's type by the checkpoint")
    architecture = view.use("model.architecture")
    sparse = written == "bf16" and architecture.startswith("Deepseek")  # spelled out for sparse attention
    if architecture not in ORDINARY or sparse or view.asked("attention_backend") == "tokenspeed_mla":
        raise Open("the model may choose the KV cache's type")
    return str(written)


def dtype(view: View) -> str:
    """As asked for ordinary models on compute capability 8.0 and newer; older GPUs get float16."""
    architecture = view.use("model.architecture")
    if architecture not in ORDINARY or architecture == "GptOssForCausalLM":
        raise Open("the model may choose its dtype")
    view.nvidia()
    capability = view.use("gpu.compute_capability")
    if capability is None or Version(str(capability)) < Version("8.0"):
        raise Open("this GPU may get float16")
    return str(view.plain("dtype"))


def speculative_algorithm(view: View) -> str | None:
    """Unset it stays so; a name may be an alias (NEXTN) or depend on the draft model."""
    written = view.asked("speculative_algorithm")
    if written is None:
        return None
    if not view.since("0.5.12"):
        return "EAGLE" if written == "NEXTN" else str(written)
    raise Open("the draft model decides which speculative decoding it is")


REWRITES: dict[str, Callable[[View], Any]] = {
    "model_path": model_path,
    "served_model_name": served_model_name,
    "trust_remote_code": trust_remote_code,
    "tokenizer_worker_num": tokenizer_worker_num,
    "context_length": context_length,
    "load_format": load_format,
    "schedule_conservativeness": schedule_conservativeness,
    "max_running_requests": max_running_requests,
    "mem_fraction_static": mem_fraction_static,
    "chunked_prefill_size": chunked_prefill_size,
    "attention_backend": attention_backend,
    "decode_attention_backend": decode_attention_backend,
    "prefill_attention_backend": prefill_attention_backend,
    "kv_cache_dtype": kv_cache_dtype,
    "dtype": dtype,
    "speculative_algorithm": speculative_algorithm,
}
