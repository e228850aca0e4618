"""What SGLang 0.5.7 to 0.5.23 makes of the flags that switch features, by destination.

Read in the handlers of srt/server_args.py (up to 0.5.18), srt/arg_groups/overrides.py (from 0.5.15 on),
speculative_hook.py and pd_disaggregation_hook.py (from 0.5.13 on), and the other hooks of srt/arg_groups/
(from 0.5.19 on), release by release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packaging.version import Version

from sgdoctor.upstream.asked_view import Open, View

# Architectures of plain text generation that no release gives a special treatment of caches, memory or dtype.
ORDINARY = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Glm4MoeForCausalLM",
        "GptOssForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)

# _FLASHINFER_ALLREDUCE_FUSION_ARCHS (inline up to 0.5.14): the release that first has each.
_FUSION_SINCE = {
    "DeepseekV3ForCausalLM": "0.5.7",
    "Glm4MoeForCausalLM": "0.5.7",
    "GptOssForCausalLM": "0.5.7",
    "Qwen3MoeForCausalLM": "0.5.7",
    "Glm4MoeLiteForCausalLM": "0.5.8",
    "KimiK25ForConditionalGeneration": "0.5.9",
    "Qwen3_5ForConditionalGeneration": "0.5.10",
    "Qwen3_5MoeForConditionalGeneration": "0.5.10",
    "DeepseekV32ForCausalLM": "0.5.11",
    "GlmMoeDsaForCausalLM": "0.5.11",
    "Qwen3NextForCausalLM": "0.5.11",
    "InternS2PreviewForConditionalGeneration": "0.5.12",
    "MistralLarge3ForCausalLM": "0.5.13",
    "NemotronHForCausalLM": "0.5.14",
    "NemotronHPuzzleForCausalLM": "0.5.14",
    "Qwen3VLMoeForConditionalGeneration": "0.5.14",
    "DeepseekV4ForCausalLM": "0.5.18",
    "NemotronH_Omni_Reasoning_V3": "0.5.20",
    "Qwen4ExpForConditionalGeneration": "0.5.20",
}
# Models for which --fp8-gemm-backend or --fp4-gemm-backend auto becomes another (model_overrides/).
_OWN_GEMM = ("DeepseekV4", "HYV4", "Longcat", "MuseGlimmer", "MuseSpark")
_FUSION_MIMO = ("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM")  # CuTeDSL, from 0.5.23 on


def enable_flashinfer_allreduce_fusion(view: View) -> bool:
    """Up to 0.5.13 as asked, or switched on by itself for some models; 0.5.14+ fold it into the backend flag.

    0.5.7 to 0.5.9 switch it on without a word, even at TP 1. --enforce-disable-flashinfer-allreduce-fusion
    (0.5.10+) and deterministic inference (0.5.12+) switch it off.
    """
    if view.since("0.5.14"):
        return False
    if _fusion_forced_off(view):
        return False
    if view.asked("enable_flashinfer_allreduce_fusion"):
        return True
    return _fusion_by_itself(view)


def flashinfer_allreduce_fusion_backend(view: View) -> str | None:
    """From 0.5.14 on: as asked, auto with the deprecated flag, or chosen by itself for some models."""
    if _fusion_forced_off(view):
        return None
    written = view.asked("flashinfer_allreduce_fusion_backend")
    if written is not None:
        return str(written)
    if view.asked("enable_flashinfer_allreduce_fusion"):
        return "auto"
    if view.since("0.5.23") and view.use("model.architecture") in _FUSION_MIMO:
        raise Open("a MiMo-V2 may choose cutedsl")
    return "auto" if _fusion_by_itself(view) else None


def _fusion_forced_off(view: View) -> bool:
    return view.is_set("enforce_disable_flashinfer_allreduce_fusion") or (
        view.since("0.5.12") and bool(view.effective("enable_deterministic_inference"))
    )


def _fusion_by_itself(view: View) -> bool:
    """Whether the model's architecture, the GPU and the layout make SGLang switch the fusion on."""
    view.nvidia()
    since = _FUSION_SINCE.get(view.use("model.architecture"))
    if since is None or not view.since(since):
        return False
    capability = view.use("gpu.compute_capability")
    major = Version(str(capability)).major if capability is not None else 0
    if major not in ((9, 10) if view.since("0.5.8") else (9, 10, 11, 12)):
        return False
    if view.since("0.5.10") and int(view.plain("tp_size")) == 1:
        return False
    if view.asked("enable_dp_attention") or view.effective("enable_dp_attention"):
        return False
    if view.effective("moe_a2a_backend") != "none":
        return False
    view.unset("nnodes", "attn_cp_size", "attn_dp_size")
    if not view.since("0.5.13") and "H20" in str(view.use("gpu.name")).replace("H200", ""):
        return False
    if view.since("0.5.21"):
        view.unset("disable_custom_all_reduce")
        if view.facts.value("model.architecture") == "DeepseekV4ForCausalLM":
            raise Open("a DeepSeek-V4.1 may prefer its own all-reduce")
    return True


def enable_deterministic_inference(view: View) -> bool:
    """As asked; --rl-on-policy-target switches it on (_handle_deterministic_inference)."""
    return bool(view.asked("enable_deterministic_inference")) or view.is_set("rl_on_policy_target")


def enable_mixed_chunk(view: View) -> bool:
    """Nothing switches it on; speculative decoding, diffusion LLMs and dual chunk attention switch it off."""
    if not view.asked("enable_mixed_chunk"):
        return False
    algorithm = view.asked("speculative_algorithm")
    if algorithm is not None:
        always = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
        if not view.since("0.5.19") and str(algorithm).upper() in always:
            return False
        raise Open("speculative decoding may switch it off")
    view.unset("dllm_algorithm")
    _no_dual_chunk(view)
    return True


def disable_overlap_schedule(view: View) -> bool:
    """On with pipeline parallelism; speculative decoding, diffusion LLMs and hybrid models decide it."""
    if view.asked("speculative_algorithm") is not None:
        raise Open("speculative decoding decides it")
    view.unset("dllm_algorithm")
    if view.effective("pp_size") > 1:
        return True
    if view.asked("disable_overlap_schedule") and view.since("0.5.14"):
        return True
    view.nvidia()
    if view.use("model.is_hybrid"):
        raise Open("a hybrid model's state cache decides it")
    return bool(view.asked("disable_overlap_schedule"))


def disable_radix_cache(view: View) -> bool:
    """Many models and modes switch the radix cache off; only an ordinary model without them is certain."""
    if view.effective("disaggregation_mode") == "decode":
        raise Open("a decode server decides it")
    if view.asked("disable_radix_cache"):
        return True
    view.unset("dllm_algorithm", "enable_mis", "is_embedding")
    if enable_deterministic_inference(view):
        raise Open("deterministic inference may switch it off")
    if view.use("model.is_hybrid"):
        raise Open("a hybrid model's state cache may switch it off")
    _ordinary(view)
    _no_dual_chunk(view)
    return False


def disable_custom_all_reduce(view: View) -> bool:
    """As asked; deterministic inference over several GPUs sets it (_handle_deterministic_inference)."""
    if view.asked("disable_custom_all_reduce"):
        return True
    view.nvidia()
    return bool(view.effective("enable_deterministic_inference")) and int(view.plain("tp_size")) > 1


def disable_cuda_graph(view: View) -> bool:
    """As asked; up to 0.5.13 some backends, dumps and prefill servers switch CUDA graphs off."""
    if view.asked("disable_cuda_graph"):
        return True
    view.nvidia()
    if view.asked("attention_backend") in ("torch_native", "flex_attention") and not view.since("0.5.14"):
        return True
    view.unset("dllm_algorithm", "enable_mis", "enable_double_sparsity", "dwdp_size", "deepep_mode")
    view.unset("debug_tensor_dump_output_folder", "msprobe_dump_config")
    if view.effective("disaggregation_mode") == "prefill" and not view.since("0.5.16"):
        raise Open("a prefill server may do without CUDA graphs")
    if view.asked("load_format") == "expert_pack":
        return True
    _ordinary(view)
    return False


def disable_piecewise_cuda_graph(view: View) -> bool:
    """0.5.10 to 0.5.13: off when asked; what else switches it off silently ``piecewise.derive`` says."""
    if not view.release.has("enforce_piecewise_cuda_graph") or view.asked("enforce_piecewise_cuda_graph"):
        raise Open("other flags decide it")
    if view.asked("disable_piecewise_cuda_graph"):
        return True
    raise Open("SGLang may switch it off by itself")


def debug_cuda_graph(view: View) -> bool:
    """As asked on NVIDIA; off elsewhere (0.5.11+, _handle_environment_variables)."""
    if not view.asked("debug_cuda_graph"):
        return False
    view.nvidia()
    return True


def fp8_gemm_runner_backend(view: View) -> str:
    """As asked; auto may be settled for some models on Blackwell from 0.5.16 on."""
    return _gemm_backend(view, "fp8_gemm_runner_backend")


def fp4_gemm_runner_backend(view: View) -> str:
    """As asked; auto may be settled for some models on Blackwell from 0.5.18 on."""
    return _gemm_backend(view, "fp4_gemm_runner_backend")


def _gemm_backend(view: View, dest: str) -> str:
    backend = str(view.plain(dest))
    if backend == "auto" and dest in view.release.rewritten:
        architecture = str(view.use("model.architecture"))
        if architecture.startswith(_OWN_GEMM):
            raise Open("the model may choose the GEMM backend")
    return backend


def enable_torch_compile(view: View) -> bool:
    """As asked."""
    return bool(view.plain("enable_torch_compile"))


def enable_hierarchical_cache(view: View) -> bool:
    """As asked, but for diffusion LLMs (from 0.5.10 on)."""
    if view.asked("enable_hierarchical_cache"):
        view.unset("dllm_algorithm")
        return True
    return False


def enable_lora(view: View) -> bool | None:
    """As asked; --lora-paths alone switches it on (check_lora_server_args)."""
    view.unset("dllm_algorithm")
    written = view.asked("enable_lora")
    if written is None and view.asked("lora_paths"):
        return True
    return None if written is None else bool(written)


def lora_paths(view: View) -> list[Any] | None:
    """As asked; with --enable-lora alone an empty list (check_lora_server_args)."""
    written = view.asked("lora_paths")
    if written is None:
        return [] if view.asked("enable_lora") else None
    return list(written)


def _ordinary(view: View) -> None:
    if view.use("model.architecture") not in ORDINARY:
        raise Open("the model may change it at start")


def _no_dual_chunk(view: View) -> None:
    """Raise Open where a Qwen model may bring dual chunk attention (up to 0.5.19, no backend chosen)."""
    if view.since("0.5.20"):
        return
    backend = view.asked("attention_backend")
    if backend == "dual_chunk_flash_attn":
        raise Open("dual chunk attention switches it off")
    if backend is None and str(view.use("model.architecture")).startswith("Qwen"):
        raise Open("the model may bring dual chunk attention")


REWRITES: dict[str, Callable[[View], Any]] = {
    "enable_flashinfer_allreduce_fusion": enable_flashinfer_allreduce_fusion,
    "flashinfer_allreduce_fusion_backend": flashinfer_allreduce_fusion_backend,
    "enable_deterministic_inference": enable_deterministic_inference,
    "enable_mixed_chunk": enable_mixed_chunk,
    "disable_overlap_schedule": disable_overlap_schedule,
    "disable_radix_cache": disable_radix_cache,
    "disable_custom_all_reduce": disable_custom_all_reduce,
    "disable_cuda_graph": disable_cuda_graph,
    "disable_piecewise_cuda_graph": disable_piecewise_cuda_graph,
    "fp8_gemm_runner_backend": fp8_gemm_runner_backend,
    "fp4_gemm_runner_backend": fp4_gemm_runner_backend,
    "debug_cuda_graph": debug_cuda_graph,
    "enable_torch_compile": enable_torch_compile,
    "enable_hierarchical_cache": enable_hierarchical_cache,
    "enable_lora": enable_lora,
    "lora_paths": lora_paths,
}
