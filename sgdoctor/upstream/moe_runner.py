"""Which runner serves the routed experts; "triton" is said only where SGLang's source leaves nothing else.

Read in the quantization methods' ``create_moe_runner`` and ``apply`` (srt/layers/quantization/), in what
rewrites --moe-runner-backend (server_args.py up to 0.5.15, arg_groups/overrides.py and model_overrides/
after) and in moe_runner/runner.py, at every release from 0.5.7 to 0.5.23.
"""

from __future__ import annotations

import msgspec
from packaging.version import Version

from sgdoctor.upstream.architectures import ARCHITECTURES
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.moe_shapes import Model

# Quantizations whose method takes the Triton kernel on NVIDIA unless another backend is asked for.
_TRITON_WEIGHTS = frozenset({None, "fp8_tensor", "fp8_channel", "fp8_block"})
# Those whose method knows no other runner, whatever is asked for.
_TRITON_ONLY = frozenset({"int8_channel", "int8_block", "int8_weight", "int4_weight"})

_BLACKWELL_BF16 = {
    "Qwen3MoeForCausalLM": Version("0.5.8"),
    "Qwen3VLMoeForConditionalGeneration": Version("0.5.8"),
    "Qwen3NextForCausalLM": Version("0.5.8"),
    "Qwen3_5MoeForConditionalGeneration": Version("0.5.9"),
}

# No rule of the model's own touches the backend of its unquantized experts (0.5.7 to 0.5.23).
_NO_RULE = frozenset(
    """
    MixtralForCausalLM PhiMoEForCausalLM OlmoeForCausalLM GraniteMoeForCausalLM Lfm2MoeForCausalLM
    BailingMoEForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM Ernie4_5_MoeForCausalLM
    HunYuanMoEV1ForCausalLM HYV3ForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM SDARMoeForCausalLM
    Gemma4ForCausalLM Gemma4ForConditionalGeneration
    """.split()
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the runner: the flags in effect and the GPU.

    ``settled``: ``backend`` is what the running server holds, no longer open to be rewritten by the model's
    rules.
    """

    release: Version
    vendor: str
    capability: Version | None
    backend: str = "auto"
    settled: bool = False
    a2a: str = "none"
    width: int | None = None  # of one expert on one GPU
    hidden: int | None = None
    group: int | None = None
    deep_gemm_off: bool = False  # SGLANG_ENABLE_JIT_DEEPGEMM is known to be false


def runner(model: Model, request: Request) -> str:
    """Return the runner's name as --moe-runner-backend spells it.

    Raises Open, with the reason, where the source does not settle it.
    """
    if not request.vendor:
        raise Open("which GPU serves the experts is not known", ("gpu.compute_capability",))
    if request.vendor != "nvidia" or request.capability is None:
        raise Open("which runner serves the experts was verified on NVIDIA GPUs only")
    if model.architecture not in ARCHITECTURES:
        raise Open(f"which runner SGLang takes for {model.architecture} is not known to sgdoctor")
    if model.weights == "mixed":
        raise Open("the experts of some layers are quantized and those of others are not")
    capability = request.capability
    if request.a2a != "none":
        return _with_dispatcher(model, request, capability)
    backend = _asked(model, request, capability)
    if model.weights in ("int4_marlin", "int8_marlin", "int4_awq"):
        return _packed(model, request, backend, capability)
    if model.weights in _TRITON_ONLY:
        return "triton"
    if model.weights in _TRITON_WEIGHTS:
        return _plain(model, request, backend)
    raise Open(f"which runner serves {model.weights} experts depends on more than was verified")


def _asked(model: Model, request: Request, capability: Version) -> str:
    """Return the backend once the model's own rules have rewritten it."""
    if model.architecture == "NemotronHForCausalLM" and not request.settled:
        return _nemotron(model, request, capability)
    if request.backend != "auto" or request.settled:
        return request.backend
    if model.architecture == "GptOssForCausalLM":
        raise Open("for GPT-OSS the runner depends on installed packages, the driver and the GPU")
    if capability.major != 10:
        if model.architecture == "MiMoV2FlashForCausalLM" and model.weights is not None:
            raise Open("for MiMo-V2 the runner depends on the experts' layout in the checkpoint")
        return "auto"
    return _blackwell(model, request)


def _nemotron(model: Model, request: Request, capability: Version) -> str:
    """Decide as server_args.py up to 0.5.11, nemotron_h_hook.py to 0.5.14 and the overrides of 0.5.15 on.

    ModelOpt's FP8 goes to FlashInfer in all of them, unquantized experts from 0.5.13 on.
    """
    modelopt = model.quantization == "modelopt_fp8"
    if request.backend != "auto" and not (modelopt and request.release < Version("0.5.11")):
        return request.backend
    if capability.major == 10 or model.quantization not in (None, "modelopt_fp8"):
        raise Open("for Nemotron-H SGLang chooses the runner by quantization and GPU")
    return "flashinfer_cutlass" if modelopt or request.release >= Version("0.5.13") else "auto"


def _blackwell(model: Model, request: Request) -> str:
    """Return what 10.x takes when nothing is asked for: FlashInfer's kernels for known models."""
    since = _BLACKWELL_BF16.get(model.architecture)
    fp8 = model.quantization == "fp8"
    if since is not None and (fp8 or (model.weights is None and request.release >= since)):
        return "flashinfer_trtllm"
    if model.architecture == "DeepseekV3ForCausalLM" and fp8:
        return "flashinfer_trtllm"
    if model.weights is None and model.architecture in _NO_RULE:
        return "auto"
    raise Open("on compute capability 10.x SGLang chooses the runner by model and quantization")


def _plain(model: Model, request: Request, backend: str) -> str:
    """Return what the methods of unquantized and FP8 experts make of the backend."""
    if model.quantization == "w8a8_fp8":
        return "triton"
    if backend in ("auto", "triton"):
        return "triton"
    release = request.release
    fp8 = model.weights is not None
    if backend == "deep_gemm":
        known = model.quantization == "fp8" or (not fp8 and release >= Version("0.5.12"))
    elif backend == "triton_kernel":
        known = not fp8
    elif backend == "flashinfer_cutlass":
        if model.quantization == "fp8" and release >= Version("0.5.20"):
            return (
                "triton"  # "Fp8MoEMethod has no FLASHINFER_CUTLASS path; using triton for its fp8 experts."
            )
        known = not fp8 or model.quantization == "modelopt_fp8"
    elif backend == "cutlass":
        known = model.quantization == "fp8"
    else:
        known = backend in ("flashinfer_trtllm", "flashinfer_trtllm_routed")
    if not known:
        raise Open(f"what --moe-runner-backend {backend} does for these experts was not verified")
    return backend


def _packed(model: Model, request: Request, backend: str, capability: Version) -> str:
    """Return the runner of AWQ, GPTQ and compressed-tensors wNa16: Marlin from compute capability 8.0 on."""
    if backend not in ("auto", "marlin") or capability < Version("8.0"):
        raise Open("which runner serves packed integer experts depends on more than was verified")
    newer = request.release >= Version("0.5.19") and capability.major == 10
    if model.quantization == "compressed-tensors" and newer:
        raise Open("from 0.5.19 on 10.x may take Triton for wNa16 experts")
    if model.weights == "int4_awq":
        return _awq(model, request)
    return "marlin"


def _awq(model: Model, request: Request) -> str:
    """Decide as AWQMarlinConfig.get_quant_method: Triton where Marlin has no kernel for the shape."""
    if model.architecture.startswith("Llama4"):
        raise Open("Llama 4's AWQ experts were not verified")
    if request.width is None or request.hidden is None or request.group is None:
        raise Open("whether Marlin has a kernel for the shape is not known", ("model.hidden_size",))
    fits = request.hidden % 128 == 0 and request.width % max(64, request.group) == 0
    return "marlin" if fits and request.group in (-1, 32, 64, 128) else "triton"


def _with_dispatcher(model: Model, request: Request, capability: Version) -> str:
    """Return what serves the experts behind DeepEP and its like: DeepGEMM for FP8 on 9.0 and 10.x."""
    dispatchers = {"deepep", "mooncake"} | ({"nixl"} if request.release >= Version("0.5.10") else set())
    able = capability.major in (9, 10) and not request.deep_gemm_off
    if request.a2a in dispatchers and model.quantization == "fp8" and able and request.backend == "auto":
        return "deep_gemm"
    raise Open(f"which runner serves the experts with --moe-a2a-backend {request.a2a} was not verified")
