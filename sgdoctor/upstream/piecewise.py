"""What makes SGLang 0.5.10 to 0.5.13 switch piecewise CUDA graphs off by itself.

``ServerArgs._handle_piecewise_cuda_graph`` (srt/server_args.py, 0.5.10 to 0.5.13.post1) sets
``disable_piecewise_cuda_graph`` under the conditions below and prints nothing; the log then says that
--disable-piecewise-cuda-graph is set, although nobody set it.
"""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version

from sgdoctor.facts import Facts

FACT = "graph.piecewise_off_by"
FIRST, END = Version("0.5.10"), Version("0.5.14")

# piecewise_cuda_graph_disabled_model_archs in srt/configs/model_config.py
_ARCHITECTURES = ("Qwen3NextForCausalLM", "BailingMoeV2_5ForCausalLM", "LLaDAModelLM")
_SPARSE_ATTENTION = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")  # 0.5.10 to 0.5.12
_DEEPSEEK_V4 = ("DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN")  # from 0.5.12 on

# mm_disabled_models in srt/configs/model_config.py: served as text models unless --enable-multimodal
_TEXT_ONLY = (
    "Gemma3ForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Step3VLForConditionalGeneration",
)

_GGUF = "a GGUF checkpoint"

# Destination, the value that leaves the graphs on, and how a report names the cause.
_FLAGS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("enable_dp_attention", (False,), "--enable-dp-attention"),
    ("enable_torch_compile", (False,), "--enable-torch-compile"),
    ("pp_size", (1,), "pipeline parallelism"),
    ("moe_a2a_backend", ("none", None), "--moe-a2a-backend"),
    ("enable_lora", (False, None), "LoRA"),
    ("enable_hierarchical_cache", (False,), "--enable-hierarchical-cache"),
    ("enable_deterministic_inference", (False,), "--enable-deterministic-inference"),
    ("disaggregation_mode", ("null",), "prefill/decode disaggregation"),
    ("lora_paths", (None,), "LoRA"),
    ("dllm_algorithm", (None,), "--dllm-algorithm"),
    ("cpu_offload_gb", (0,), "--cpu-offload-gb"),
    ("enable_symm_mem", (False,), "--enable-symm-mem"),
    ("enable_eplb", (False,), "--enable-eplb"),
    ("expert_distribution_recorder_mode", (None,), "--expert-distribution-recorder-mode"),
    ("attn_cp_size", (1,), "context parallelism"),
    ("debug_cuda_graph", (False,), "--debug-cuda-graph"),
)


def derive(facts: Facts) -> None:
    """Set ``graph.piecewise_off_by``, or say why it is not known."""
    missing = facts.missing("sglang.version")
    if missing:
        facts.set_unknown(FACT, "the SGLang version is not known", missing)
        return
    release = Version(facts.value("sglang.version"))
    if not FIRST <= release < END:
        facts.set_unknown(FACT, f"does not apply to SGLang {release}")
        return
    for name, value in (("gpu.vendor", "other"), ("arg.disaggregation_mode", "decode")):
        if facts.value(name) == value:  # no CUDA graphs, or no prefill, to lose any for
            facts.derive(FACT, [], ["sglang.version", name])
            return
    reasons: list[str] = []
    inputs = ["sglang.version"]
    unknown: list[str] = []
    for name, finder in _finders(release):
        fact = name if name.startswith(("model.", "gpu.", "asked.")) else f"arg.{name}"
        if not facts.known(fact):
            unknown.append(fact)
            continue
        reason = finder(facts.value(fact))
        if reason:
            inputs.append(fact)
            if reason not in reasons:
                reasons.append(reason)
    if reasons:
        facts.derive(FACT, reasons, inputs)
    elif unknown:
        facts.set_unknown(FACT, "not every flag that matters is known", unknown)
    else:
        facts.derive(FACT, [], inputs)


def _finders(release: Version) -> list[tuple[str, Callable[[object], str | None]]]:
    flags = list(_FLAGS)
    if release < Version("0.5.11"):
        flags = [flag for flag in flags if flag[0] != "debug_cuda_graph"]
        flags.append(("speculative_algorithm", (None,), "speculative decoding"))
    finders: list[tuple[str, Callable[[object], str | None]]] = [
        (name, _flag_finder(harmless, words)) for name, harmless, words in flags
    ]
    finders.append(("model_path", _gguf))
    finders += [(name, _named_gguf) for name in ("asked.load_format", "asked.quantization")]
    finders.append(("model.architecture", _architecture_finder(release)))
    finders.append(("gpu.vendor", lambda vendor: None if vendor == "nvidia" else f"a GPU of {vendor}"))
    return finders


def _gguf(path: object) -> str | None:
    return _GGUF if isinstance(path, str) and path.endswith(".gguf") else None


def _named_gguf(value: object) -> str | None:
    """Look at a flag as it was written: SGLang asks before it works the load format out by the files."""
    return _GGUF if value == "gguf" else None


def _flag_finder(harmless: tuple[object, ...], words: str) -> Callable[[object], str | None]:
    return lambda value: None if value in harmless else words


def _architecture_finder(release: Version) -> Callable[[object], str | None]:
    off = [*_ARCHITECTURES]
    if release < Version("0.5.13"):
        off += _SPARSE_ATTENTION
    if release >= Version("0.5.12"):
        off += _DEEPSEEK_V4

    def find(architecture: object) -> str | None:
        if architecture in off:
            return f"the architecture {architecture}"
        if is_multimodal(str(architecture)):
            return f"the multimodal architecture {architecture}"
        return None

    return find


def is_multimodal(architecture: str) -> bool:
    """Whether 0.5.10 to 0.5.13 serve this architecture as multimodal without being told so.

    The architectures of ``multimodal_model_archs`` that all four have (srt/configs/model_config.py).
    """
    return architecture in _MULTIMODAL and architecture not in _TEXT_ONLY


_MULTIMODAL = frozenset(
    """
    CLIPModel DeepseekVL2ForCausalLM Ernie4_5_VLMoeForConditionalGeneration Gemma3ForConditionalGeneration
    Gemma3nForConditionalGeneration Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    GlmOcrForConditionalGeneration GlmAsrForConditionalGeneration Grok1VForCausalLM Grok1AForCausalLM
    LlavaLlamaForCausalLM Llama4ForConditionalGeneration LlavaMistralForCausalLM LlavaQwenForCausalLM
    LlavaForConditionalGeneration LlavaVidForCausalLM Lfm2VlForConditionalGeneration
    LightOnOCRForConditionalGeneration MiniCPMO MiniCPMV Mistral3ForConditionalGeneration
    MultiModalityCausalLM MllamaForConditionalGeneration NemotronH_Nano_VL_V2 PixtralForConditionalGeneration
    Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForConditionalGeneration Qwen3OmniMoeForConditionalGeneration KimiVLForConditionalGeneration
    InternVLChatModel InternS1ForConditionalGeneration InternS1ProForConditionalGeneration Phi4MMForCausalLM
    WhisperForConditionalGeneration Step3VLForConditionalGeneration POINTSV15ChatModel DotsVLMForCausalLM
    DotsOCRForCausalLM Sarashina2VisionForCausalLM NVILAForConditionalGeneration
    NVILALiteForConditionalGeneration DeepseekOCRForCausalLM JetVLMForConditionalGeneration
    PaddleOCRVLForConditionalGeneration MiDashengLMModel StepVLForConditionalGeneration
    KimiK25ForConditionalGeneration
    """.split()
)
