"""How SGLang builds the experts of a model architecture from its config.json.

Taken from the constructor calls of FusedMoE in srt/models/*.py of every release from 0.5.7 to 0.5.23: the
config fields did not change in any of them. An architecture that is not here may have experts; how they are
laid out is then not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Fusion = Literal["none", "deepseek", "glm4", "glm4v", "glm4_lite", "qwen3_next"]


class Experts(msgspec.Struct, frozen=True):
    """The config fields an architecture's experts are built from, and what SGLang adds to their number.

    ``width``: several fields are tried in turn. ``redundant``: --ep-num-redundant-experts adds to the routed
    experts. ``fusion``: which rule decides whether the shared experts run as routed ones.
    """

    count: str
    per_token: str
    width: str | tuple[str, ...]
    redundant: bool = True
    fusion: Fusion = "none"

    @property
    def widths(self) -> tuple[str, ...]:
        """The fields that may give the width, the first that is there first."""
        return (self.width,) if isinstance(self.width, str) else self.width


_QWEN = Experts("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_DEEPSEEK = Experts("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", fusion="deepseek")
_LOCAL = Experts("num_local_experts", "num_experts_per_tok", "intermediate_size", redundant=False)
_OWN_WIDTH = ("moe_intermediate_size", "intermediate_size")
_GROK = Experts("num_local_experts", "num_experts_per_tok", _OWN_WIDTH, redundant=False)
_GEMMA4 = Experts("num_experts", "top_k_experts", "moe_intermediate_size")
_GLM4 = Experts(
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", redundant=False, fusion="glm4"
)

ARCHITECTURES: dict[str, Experts] = {
    "Qwen2MoeForCausalLM": _QWEN,
    "Qwen3MoeForCausalLM": _QWEN,
    "Qwen3VLMoeForConditionalGeneration": _QWEN,
    "Qwen3OmniMoeForConditionalGeneration": _QWEN,
    "Qwen3NextForCausalLM": msgspec.structs.replace(_QWEN, fusion="qwen3_next"),
    # Fuses its shared expert on AMD only (support_shared_expert_fusion without enable_cuda_...).
    "Qwen3_5MoeForConditionalGeneration": _QWEN,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": _DEEPSEEK,
    "KimiK25ForConditionalGeneration": _DEEPSEEK,
    "Glm4MoeForCausalLM": _GLM4,
    "Glm4vMoeForConditionalGeneration": msgspec.structs.replace(_GLM4, fusion="glm4v"),
    "Glm4MoeLiteForCausalLM": msgspec.structs.replace(_DEEPSEEK, fusion="glm4_lite"),
    "MixtralForCausalLM": _LOCAL,
    "PhiMoEForCausalLM": _LOCAL,
    "GraniteMoeForCausalLM": _LOCAL,
    "Llama4ForConditionalGeneration": _LOCAL,
    "Llama4ForCausalLM": _LOCAL,
    "GptOssForCausalLM": msgspec.structs.replace(_LOCAL, redundant=True),
    "MiniMaxM2ForCausalLM": msgspec.structs.replace(_LOCAL, redundant=True),
    "OlmoeForCausalLM": Experts("num_experts", "num_experts_per_tok", "intermediate_size", redundant=False),
    "Ernie4_5_MoeForCausalLM": Experts("moe_num_experts", "moe_k", "moe_intermediate_size", redundant=False),
    "MiMoV2FlashForCausalLM": Experts("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
    "Step3p5ForCausalLM": Experts("moe_num_experts", "moe_top_k", "moe_intermediate_size"),
    "BailingMoEForCausalLM": msgspec.structs.replace(_QWEN, redundant=False),
    "BailingMoeForCausalLM": msgspec.structs.replace(_QWEN, redundant=False),
    "BailingMoeV2_5ForCausalLM": msgspec.structs.replace(_QWEN, redundant=False),
    "BailingMoeV2ForCausalLM": msgspec.structs.replace(_QWEN, redundant=False),
    "Lfm2MoeForCausalLM": msgspec.structs.replace(_QWEN, redundant=False),
    "ExaoneMoEForCausalLM": _QWEN,
    "SDARMoeForCausalLM": _QWEN,
    "HunYuanMoEV1ForCausalLM": Experts("num_experts", "moe_topk", _OWN_WIDTH, redundant=False),
    "HYV3ForCausalLM": msgspec.structs.replace(_QWEN, redundant=False),
    "Grok1ForCausalLM": _GROK,
    "Grok1ModelForCausalLM": _GROK,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "KimiLinearForCausalLM": Experts(
        "num_experts", "num_experts_per_token", "moe_intermediate_size", redundant=False
    ),
    "NemotronHForCausalLM": Experts("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
    "Step3VLForConditionalGeneration": Experts(
        "moe_num_experts", "moe_top_k", "moe_intermediate_size", redundant=False
    ),
}

# Architectures of the table that also exist without experts.
_ALSO_DENSE = (
    "Deepseek",
    "Glm",
    "Kimi",
    "Granite",
    "Bailing",
    "Ernie",
    "Lfm2",
    "Llama4",
    "Gemma4",
    "Nemotron",
)

# Those that have routed experts whatever their configuration says.
ALWAYS_MOE = frozenset(name for name in ARCHITECTURES if not name.startswith(_ALSO_DENSE))

# Dense architectures whose configurations are known to carry fields of experts that SGLang does not read.
DENSE = frozenset(
    {
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Phi3ForCausalLM",
        "Glm4ForCausalLM",
    }
)

# Names under which configurations give a number of routed experts.
COUNT_FIELDS = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_routed_experts",
)

# Model types whose layers keep a state beside or instead of a KV cache (hybrid_arch.py of 0.5.23,
# model_runner.py before: the configuration classes of mambaish_config).
_HYBRID_TYPES = frozenset(
    {
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "intern_s2_preview",
        "jet_nemotron",
        "jet_vlm",
        "falcon_h1",
        "nemotron_h",
        "nemotron_h_puzzle",
        "NemotronH_Nano_VL_V2",
        "kimi_linear",
        "lfm2",
        "lfm2_moe",
        "lfm2_vl",
        "zaya",
        "mamba",
        "mamba2",
        "falcon_mamba",
        "bailing_hybrid",
    }
)
_STATE_LAYERS = frozenset({"mamba", "linear_attention", "conv"})


def is_hybrid(config: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    """Whether some layers keep a state, by the model type or by the list of layer types."""
    types = [part.get("model_type") for part in (config, text)]
    if any(isinstance(each, str) and each in _HYBRID_TYPES for each in types):
        return True
    layers = text.get("layer_types")
    return isinstance(layers, list) and any(
        layer in _STATE_LAYERS for layer in layers if isinstance(layer, str)
    )


def is_moe(architecture: str, text: Mapping[str, Any]) -> bool | None:
    """Whether SGLang builds routed experts for this model; None when that is not known."""
    known = ARCHITECTURES.get(architecture)
    if architecture.startswith("Gemma4") and known is not None:
        return bool(text.get("enable_moe_block"))  # models/gemma4_causal.py, 0.5.11 to 0.5.23
    if architecture == "NemotronHForCausalLM":
        return _nemotron_has_experts(text)
    if known is not None:
        count = text.get(known.count)
        if architecture in ALWAYS_MOE:
            return True
        return None if count is None else isinstance(count, int) and count > 0
    if architecture in DENSE or not any(text.get(field) for field in COUNT_FIELDS):
        return False
    return True if "moe" in architecture.lower() else None


def _nemotron_has_experts(text: Mapping[str, Any]) -> bool | None:
    """Whether some layer is an E of configs/nemotron_h.py (0.5.7 to 0.5.23), or is called moe (newer)."""
    pattern, types = text.get("hybrid_override_pattern"), text.get("layers_block_type")
    if isinstance(pattern, str):
        return "E" in pattern
    return "moe" in types if isinstance(types, list) else None
