"""What SGLang 0.5.7 to 0.5.23 makes of the flags about parallelism, by destination.

Read in ``ServerArgs.__post_init__`` and its handlers (srt/server_args.py, up to 0.5.18 with
srt/arg_groups/overrides.py from 0.5.15 on) and in srt/arg_groups/parallel_hook.py, moe_hook.py, dllm_hook.py,
deepseek_v4_hook.py and model_overrides/ (from 0.5.19 on).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sgdoctor.upstream.asked_view import Open, View

# Prefill context parallelism of DeepSeek models sets attention DP, EP and the all-to-all backend.
CONTEXT_PARALLEL = (
    "enable_nsa_prefill_context_parallel",  # up to 0.5.12
    "enable_dsa_prefill_context_parallel",  # 0.5.13 to 0.5.19
    "enable_prefill_context_parallel",  # 0.5.13 to 0.5.19
    "enable_prefill_cp",  # from 0.5.14 on
)


def tp_size(view: View) -> int:
    """As asked in all releases; only workers of an encoder server run with 1 (encode_server.py)."""
    return int(view.plain("tp_size"))


def pp_size(view: View) -> int:
    """As asked, but 1 with a diffusion LLM from 0.5.15 on (_handle_dllm_inference)."""
    if view.since("0.5.15") and view.is_set("dllm_algorithm"):
        return 1
    return int(view.plain("pp_size"))


def dp_size(view: View) -> int:
    """As asked; from 0.5.22 on DP attention moves it to attn_dp_size (handle_deprecated_dp_attention)."""
    _no_elastic_join(view)
    view.unset("dwdp_size")
    if not view.since("0.5.22"):
        return int(view.plain("dp_size"))
    view.unset(*CONTEXT_PARALLEL)
    if view.asked("enable_dp_attention") and view.plain("attn_dp_size") == 1:
        return 1
    return int(view.plain("dp_size"))


def attn_dp_size(view: View) -> int:
    """From 0.5.22 on: as asked, or --dp-size with the deprecated --enable-dp-attention (parallel_hook.py)."""
    view.unset("dwdp_size", *CONTEXT_PARALLEL)
    own = int(view.plain("attn_dp_size"))
    if own == 1 and view.asked("enable_dp_attention"):
        return int(view.plain("dp_size"))
    return own


def enable_dp_attention(view: View) -> bool:
    """As asked, but dropped at dp_size 1 up to 0.5.21 (_handle_data_parallelism, _data_parallelism_defaults).

    From 0.5.22 on /server_info shows whether attn_dp_size exceeds 1 (ServerArgs.resolved_dict). In 0.5.7
    DeepSeek models with sparse attention switch it on by themselves.
    """
    if view.since("0.5.22"):
        return attn_dp_size(view) > 1
    if dp_size(view) == 1:
        if view.release.has("ep_join_mode"):
            view.unset("ep_join_mode")
        return False
    if view.asked("enable_dp_attention"):
        return True
    view.unset(*CONTEXT_PARALLEL)
    if not view.since("0.5.8") and str(view.use("model.architecture")).startswith("Deepseek"):
        raise Open("sparse attention may switch it on")
    return False


def moe_a2a_backend(view: View) -> str:
    """As asked, with the exceptions of _handle_a2a_moe and _a2a_backend_overrides.

    Waterfill needs DeepEP (--enable-deepep-waterfill in 0.5.12 to 0.5.15, --enable-waterfill after);
    SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE forces megamoe in 0.5.12 to 0.5.17, --moe-runner-backend megamoe from
    0.5.18 on; ascend_tp becomes none (0.5.16+). From 0.5.23 on a MiniMax-M3 in NVFP4 chooses megamoe.
    """
    view.unset("dwdp_size", *CONTEXT_PARALLEL)
    backend = str(view.plain("moe_a2a_backend"))
    if view.is_set("enable_deepep_waterfill"):
        backend = "deepep"
    if view.is_set("enable_waterfill") and backend not in ("deepep", "megamoe"):
        backend = "deepep"
    if (
        view.since("0.5.12")
        and not view.since("0.5.18")
        and view.environment("SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE")
    ):
        return "megamoe"
    if view.since("0.5.18") and view.asked("moe_runner_backend") == "megamoe":
        return "megamoe"
    if backend == "none" and view.since("0.5.23") and "MiniMaxM3" in str(view.use("model.architecture")):
        raise Open("MiniMax-M3 may choose megamoe")
    return "none" if backend == "ascend_tp" else backend


def ep_size(view: View) -> int:
    """As asked, but an all-to-all backend spans the tensor parallel group (_handle_a2a_moe, _a2a_ep_size)."""
    _no_elastic_join(view)
    if view.effective("moe_a2a_backend") not in ("none", None):
        return tp_size(view)
    return int(view.plain("ep_size"))


def moe_dp_size(view: View) -> int:
    """As asked, but 1 with DWDP (0.5.17+, _handle_dwdp)."""
    if view.is_set("dwdp_size"):
        return 1
    return int(view.plain("moe_dp_size"))


def attn_cp_size(view: View) -> int:
    """As asked, but computed with prefill context parallelism (0.5.10+)."""
    view.unset(*CONTEXT_PARALLEL)
    return int(view.plain("attn_cp_size"))


def expert_distribution_recorder_mode(view: View) -> str | None:
    """As asked; unset it becomes stat with EPLB (_handle_eplb_and_dispatch) or metrics about the experts."""
    written = view.asked("expert_distribution_recorder_mode")
    if written is not None:
        return str(written)
    view.unset("enable_expert_distribution_metrics", "expert_balancedness_report_mode")
    return "stat" if view.is_set("enable_eplb") else None


def disaggregation_mode(view: View) -> str:
    """As asked, but off with a diffusion LLM from 0.5.9 on (_handle_dllm_inference)."""
    if view.since("0.5.9") and view.is_set("dllm_algorithm"):
        return "null"
    return str(view.plain("disaggregation_mode"))


def _no_elastic_join(view: View) -> None:
    """Raise Open for a rank that joins a running elastic EP group and takes its sizes (0.5.16+)."""
    for dest in ("ep_join_mode", "elastic_ep_join_mode", "elastic_ep_rejoin"):
        view.unset(dest)


REWRITES: dict[str, Callable[[View], Any]] = {
    "tp_size": tp_size,
    "pp_size": pp_size,
    "dp_size": dp_size,
    "attn_dp_size": attn_dp_size,
    "enable_dp_attention": enable_dp_attention,
    "moe_a2a_backend": moe_a2a_backend,
    "ep_size": ep_size,
    "moe_dp_size": moe_dp_size,
    "attn_cp_size": attn_cp_size,
    "expert_distribution_recorder_mode": expert_distribution_recorder_mode,
    "disaggregation_mode": disaggregation_mode,
}
