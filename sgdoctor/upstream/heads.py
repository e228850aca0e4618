"""Over how many GPUs SGLang can split a model's attention heads.

The constructor of a model's attention layer asserts ``total_num_heads % tp_size == 0``, and of the key/value
heads that they are split evenly or, where there are fewer than GPUs, repeated evenly (srt/models/*.py, 0.5.7
to 0.5.23, the same in all 22 releases). Attention with a latent cache (MLA) has no such key/value heads.
``adjust_config_with_unaligned_cpu_tp`` pads the heads on ``--device cpu`` alone (model_runner.py, 0.5.7 to
0.5.23). The GPUs that share the heads are what ``compute_dp_attention_world_info`` leaves of ``--tp-size``
(srt/layers/dp_attention.py, 0.5.7 to 0.5.23).
"""

from __future__ import annotations

from sgdoctor.facts import Facts
from sgdoctor.upstream import arguments
from sgdoctor.upstream.asked_view import Open, View
from sgdoctor.upstream.rewrites_parallel import CONTEXT_PARALLEL

ERROR = "attention.split_error"
SIZES = "attention.split_sizes"

_ALL = "0.5.7"
# The architectures of which the attention layer was read, and the first release in which DP attention makes
# the group that shares the heads smaller than --tp-size; None: in none.
_BY_GROUP_SINCE: dict[str, str | None] = {
    "LlamaForCausalLM": None,
    "MistralForCausalLM": None,
    "Phi3ForCausalLM": None,
    "Qwen2ForCausalLM": None,
    "Qwen2_5_VLForConditionalGeneration": None,
    "MixtralForCausalLM": None,
    "Gemma2ForCausalLM": None,
    "Gemma3ForCausalLM": None,
    "Gemma3ForConditionalGeneration": None,
    "Glm4ForCausalLM": None,
    "Qwen3ForCausalLM": _ALL,
    "Qwen2MoeForCausalLM": _ALL,
    "Qwen3MoeForCausalLM": _ALL,
    "Qwen3VLForConditionalGeneration": _ALL,
    "Qwen3VLMoeForConditionalGeneration": _ALL,
    "Qwen3NextForCausalLM": _ALL,
    "Qwen3_5ForConditionalGeneration": _ALL,
    "Qwen3_5MoeForConditionalGeneration": _ALL,
    "Llama4ForCausalLM": _ALL,
    "Llama4ForConditionalGeneration": _ALL,
    "Glm4MoeForCausalLM": _ALL,
    "GptOssForCausalLM": _ALL,
    "MiniMaxM2ForCausalLM": "0.5.11",
}
_LATENT = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM",
)
_BY_GROUP_SINCE.update(dict.fromkeys(_LATENT, _ALL))


def split_error(heads: int, kv_heads: int | None, gpus: int) -> str | None:
    """Return why the heads cannot be split over ``gpus``; None: they can. ``kv_heads`` is None with MLA."""
    if heads % gpus:
        return f"{heads} attention heads cannot be split evenly over {gpus} GPUs"
    if kv_heads is None:
        return None
    if kv_heads >= gpus and kv_heads % gpus:
        return f"{kv_heads} key/value heads cannot be split evenly over {gpus} GPUs"
    if kv_heads < gpus and gpus % kv_heads:
        return f"{kv_heads} key/value heads cannot be repeated evenly on {gpus} GPUs"
    return None


def derive(facts: Facts) -> None:
    """Set ``attention.split_error`` and ``attention.split_sizes``, or say what is missing for them."""
    if facts.value("arg.tp_size") == 1:
        facts.derive(ERROR, None, ["arg.tp_size"])
        facts.derive(SIZES, [1], ["arg.tp_size"])
        return
    needs = ["model.architecture", "model.attention_heads", "model.kv_heads"]
    missing = facts.missing(*needs)
    if missing:
        _lack(facts, "the model's attention heads are not known", missing)
        return
    architecture = facts.value("model.architecture")
    if architecture not in _BY_GROUP_SINCE:
        _lack(facts, f"how {architecture} splits its heads was not looked at")
        return
    heads, kv_heads = facts.value("model.attention_heads"), facts.value("model.kv_heads")
    if not heads or not kv_heads:
        _lack(facts, "config.json gives no heads")
        return
    inputs = list(needs)
    groups = set()
    try:
        for release in arguments.candidates(facts):
            view = View(facts, release, arguments.REWRITES)
            groups.add(_group(view, architecture))
            inputs += [name for name in view.inputs if name not in inputs]
    except Open as undecided:
        _lack(facts, str(undecided), undecided.missing)
        return
    if len(groups) > 1:
        _lack(facts, "it depends on the SGLang version", ["sglang.version"])
        return
    (gpus,) = groups
    kv = None if architecture in _LATENT else kv_heads
    facts.derive(ERROR, split_error(heads, kv, gpus), inputs)
    facts.derive(SIZES, [n for n in range(1, gpus + 1) if split_error(heads, kv, n) is None], inputs)


def _lack(facts: Facts, reason: str, missing: tuple[str, ...] | list[str] = ()) -> None:
    for name in (ERROR, SIZES):
        facts.set_unknown(name, reason, missing)


def _group(view: View, architecture: str) -> int:
    """Return over how many GPUs the heads are split; raises Open where that cannot be told."""
    tp_size = int(view.effective("tp_size"))
    if str(view.effective("model_impl")).lower() not in ("auto", "sglang"):
        raise Open("another implementation of the model was asked for")
    for dest in ("encoder_only", "dcp_size", *CONTEXT_PARALLEL):
        if view.release.has(dest) and view.effective(dest) not in (None, view.plain_default(dest)):
            raise Open(f"--{dest.replace('_', '-')} changes what the heads are split over")
    since = _BY_GROUP_SINCE[architecture]
    if since is None or not view.since(since):
        return tp_size
    parts = int(view.effective("attn_cp_size")) if view.release.has("attn_cp_size") else 1
    if view.since("0.5.22"):
        parts *= int(view.effective("attn_dp_size"))
    elif view.effective("enable_dp_attention"):
        parts *= int(view.effective("dp_size"))
    if tp_size < 1 or parts < 1 or tp_size % parts:
        raise Open("--tp-size cannot be divided into the groups that were asked for")
    return tp_size // parts
