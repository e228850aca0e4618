"""The experts of one GPU: how many, how wide, and what the config file's name says about their weights.

E, N and topk are computed as FusedMoE.__init__ (srt/layers/moe/fused_moe_triton/layer.py) and the classes of
srt/models/ do, 0.5.7 to 0.5.23; the dtype part as the quantization methods hand it to the kernel.
"""

from __future__ import annotations

import msgspec
from packaging.version import Version

from sgdoctor.upstream.architectures import ARCHITECTURES, Experts
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.moe_config import Shape

MOE_DP_SINCE = Version("0.5.9")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json says about one MoE layer. ``weights``: see `expert_weights`."""

    architecture: str
    experts: int
    per_token: int
    width: int
    shared: int = 0
    shared_width: int | None = None
    quantization: str | None = None
    weights: str | None = None
    block: tuple[int, int] | None = None


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a release spreads the experts: the server's flags as they are in effect, and the GPU."""

    release: Version
    vendor: str
    capability: Version | None
    tp: int = 1
    ep: int = 1
    moe_dp: int = 1
    redundant: int = 0
    a2a: str = "none"
    fusion_disabled: bool = False
    fusion_enforced: bool = False
    batch_overlap: bool = False
    float32: bool = False


class OnOneGpu(msgspec.Struct, frozen=True):
    """The experts of one GPU."""

    shape: Shape
    topk: int


def on_one_gpu(model: Model, layout: Layout) -> OnOneGpu:
    """Return E, N, topk and the file name's other parts.

    Raises Open, with the reason, for what was not verified in SGLang's source.
    """
    experts = ARCHITECTURES.get(model.architecture)
    if experts is None:
        raise Open(f"how SGLang lays out the experts of {model.architecture} is not known to sgdoctor")
    if layout.a2a != "none":
        raise Open(f"with --moe-a2a-backend {layout.a2a} the experts are laid out otherwise")
    width = local_width(model, layout)
    fused = fused_shared_experts(experts, model, layout)
    routed = model.experts + (layout.redundant if experts.redundant else 0)
    if routed % layout.ep:
        raise Open(f"{routed} experts cannot be divided by EP {layout.ep}")
    dtype, block, channel, packed = _stored(model, layout)
    shape = Shape(
        experts=routed // layout.ep + fused,
        width=width // packed,
        dtype=dtype,
        block_shape=block,
        per_channel=channel,
    )
    return OnOneGpu(shape, model.per_token + fused)


def local_width(model: Model, layout: Layout) -> int:
    """Return the width of one expert on one GPU: TP / (EP * MoE DP) GPUs share it (parallel_state.py).

    Raises Open for sizes that do not divide: SGLang stops at an assertion.
    """
    moe_dp = layout.moe_dp if layout.release >= MOE_DP_SINCE else 1
    moe_tp = layout.tp // layout.ep // moe_dp
    if moe_tp < 1 or layout.tp % (layout.ep * moe_dp):
        raise Open(f"TP {layout.tp} cannot be divided by EP {layout.ep} and MoE DP {moe_dp}")
    if model.width % moe_tp:
        raise Open(f"experts of width {model.width} cannot be divided over {moe_tp} GPUs")
    return model.width // moe_tp


def _stored(model: Model, layout: Layout) -> tuple[str | None, tuple[int, int] | None, bool, int]:
    """Return the dtype part, the block shape, whether scales are per channel, and weights packed in a byte.

    What Fp8MoEMethod, W8A8FP8MoEMethod, W8A8Int8MoEMethod, BlockInt8MoEMethod, MoeWNA16Method and
    CompressedTensorsW8A8Fp8MoE hand to the Triton kernel, the same in 0.5.7 to 0.5.23.

    int4 halves N: try_get_optimal_moe_config (fused_moe_triton_config.py) takes it from the last dimension of
    w2, which has two weights in each uint8. MoeWNA16Method creates it so (moe_wna16.py, bit8_pack_factor);
    CompressedTensorsWNA16TritonMoE (compressed_tensors_wNa16_moe.py) loads eight in an int32 and views them
    as uint8 before the first lookup. Read in 0.5.9, 0.5.12, 0.5.16, 0.5.20 and 0.5.23. SGLang's issue 35252
    (experts 512 wide, the server looked for N=256, the tuner had written N=128) fits a server at TP 1 and a
    tuner left at its default, TP 2.
    """
    weights = model.weights
    if weights is None:
        return "float32" if layout.float32 else None, None, False, 1
    if weights in ("fp8_block", "int8_block"):
        if model.block is None:
            raise Open("the block of the block-wise quantization is not known", ("model.weight_block_size",))
        return ("fp8_w8a8" if weights == "fp8_block" else "int8_w8a8"), model.block, False, 1
    known = {
        "fp8_tensor": ("fp8_w8a8", None, False, 1),
        "fp8_channel": ("fp8_w8a8", None, True, 1),
        "int8_channel": ("int8_w8a8", None, True, 1),
        "int8_weight": ("int8_w8a16", None, False, 1),
        "int4_weight": ("int4_w4a16", None, False, 2),
    }
    if weights not in known:
        raise Open(f"no fused-MoE config name is known for {weights} experts")
    return known[weights]


def fused_shared_experts(experts: Experts, model: Model, layout: Layout) -> int:
    """Return how many shared experts run as routed ones on every GPU; they add to E and to topk.

    Raises Open where SGLang's decision depends on something that is not known.
    """
    if experts.fusion == "none" or layout.fusion_disabled:
        return 0
    if not layout.vendor:
        raise Open(
            "whether the GPU lets SGLang fuse the shared experts is not known", ("gpu.compute_capability",)
        )
    if layout.vendor != "nvidia" or layout.capability is None:
        raise Open("whether SGLang fuses the shared experts was verified on NVIDIA GPUs only")
    # What all rules but Qwen3-Next's share: SM80 or newer, no expert parallelism.
    alone = layout.capability >= Version("8.0") and layout.ep == 1
    if experts.fusion == "deepseek":
        return _deepseek(model, layout, alone=alone)
    if experts.fusion == "qwen3_next":
        return _qwen3_next(model, layout)
    since_w4afp8 = layout.release >= Version("0.5.10")
    if experts.fusion == "glm4" and model.quantization == "w4afp8" and since_w4afp8:
        return 0
    if experts.fusion == "glm4_lite" and model.shared != 1:
        return 0
    return model.shared if alone else 0


def _deepseek(model: Model, layout: Layout, *, alone: bool) -> int:
    """Decide as deepseek_v2.py's determine_num_fused_shared_experts, from 0.5.18 on ..._disable_reason."""
    release = layout.release
    if release >= Version("0.5.18") and _may_keep_shared_apart(model, release):
        raise Open("whether this checkpoint's quantization lets SGLang fuse the shared experts is not known")
    if layout.fusion_enforced and release >= Version("0.5.12"):
        return model.shared
    if layout.batch_overlap and release >= Version("0.5.11"):
        return 0
    allowed = (
        "GlmMoeDsaForCausalLM" if model.architecture == "GlmMoeDsaForCausalLM" else "DeepseekV3ForCausalLM"
    )
    quark = model.experts == 384 and model.quantization == "quark" and release >= Version("0.5.13")
    if model.architecture != allowed or not (model.experts == 256 or quark) or model.shared != 1:
        return 0
    if model.quantization == "w4afp8" or (release >= Version("0.5.16") and model.weights == "int4_marlin"):
        return 0
    return model.shared if alone else 0


def _may_keep_shared_apart(model: Model, release: Version) -> bool:
    """Whether the quantization class has can_fuse_shared_expert: Quark, from 0.5.21 on ModelOpt FP4 too."""
    name = model.quantization or ""
    return name.startswith("quark") or (release >= Version("0.5.21") and name.startswith("modelopt"))


def _qwen3_next(model: Model, layout: Layout) -> int:
    """Decide as qwen2_moe.py's can_fuse_shared_expert; on CUDA from 0.5.14 on."""
    if layout.release < Version("0.5.14") or not model.shared or model.shared_width != model.width:
        return 0
    if _may_keep_shared_apart(model, layout.release):
        raise Open("whether this checkpoint's quantization lets SGLang fuse the shared expert is not known")
    return model.shared
