"""The experts of one GPU as the tuner takes them, from the facts of a deployment."""

from __future__ import annotations

from sgdoctor.errors import Undecided
from sgdoctor.facts import Facts
from sgdoctor.tune.space import Kind, Problem
from sgdoctor.upstream import moe_config
from sgdoctor.upstream.moe_config import Shape

_HALVES: dict[str, Kind] = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


def of(facts: Facts) -> Problem:
    """Return the problem that the up file's name stands for, with what the name does not say.

    Raises Undecided for a quantization that the tuner does not cover, or when hidden size, top k, dtype or
    the group of int4 are not known.
    """
    file = str(facts.value("moe.up.expected_file"))
    shape = moe_config.shape_of(file)
    if shape is None:
        raise Undecided(f"{file} is no name of a fused-MoE config file")
    _refuse_unknown(facts, shape)
    kind = _kind(facts, shape)
    packed = 2 if kind == "int4" else 1  # two weights in a byte halve the N of the name
    return Problem(
        experts=shape.experts,
        width=shape.width * packed,
        hidden=int(facts.value("model.hidden_size")),
        topk=_topk(facts),
        kind=kind,
        block=(0, _group(facts)) if kind == "int4" else shape.block_shape,
        routed=_routed(facts, shape.experts),
    )


def _kind(facts: Facts, shape: Shape) -> Kind:
    half = _half(facts)
    if shape.dtype is None and half is not None:
        return half
    if shape.dtype == "fp8_w8a8":
        return "fp8_block" if shape.block_shape else "fp8_channel" if shape.per_channel else "fp8_tensor"
    if shape.dtype == "int8_w8a8" and (shape.block_shape or shape.per_channel):
        return "int8_block" if shape.block_shape else "int8_channel"
    if shape.dtype == "int4_w4a16":
        return "int4"
    raise Undecided(
        f"experts stored as {shape.dtype} are not covered: the tuner knows bf16, fp16, fp8_w8a8, int8_w8a8 "
        "per channel or block, and int4_w4a16"
    )


def _half(facts: Facts) -> Kind | None:
    """Return bf16 or fp16: --dtype, where it is auto the model's own (model_config.py, 0.5.9 to 0.5.23)."""
    for name in ("arg.dtype", "asked.dtype", "model.dtype"):
        value = facts.value(name)
        if value in _HALVES:
            return _HALVES[value]
        if value == "float32" and name == "model.dtype":
            return "bf16" if str(facts.value("model.architecture")).startswith("Gemma") else "fp16"
    return None


def _topk(facts: Facts) -> int:
    """Return the experts per token, those of fused shared experts included; 0 where it is not known."""
    return int(facts.value("moe.topk") or facts.value("model.experts_per_token") or 0)


def _routed(facts: Facts, local: int) -> int | None:
    """Return the experts that tokens are routed over, null without expert parallelism."""
    ep = facts.value("arg.ep_size") or facts.value("asked.ep_size") or 1
    if ep == 1:
        return None
    fused = max(0, _topk(facts) - int(facts.value("model.experts_per_token") or _topk(facts)))
    return (local - fused) * int(ep) + fused


def _refuse_unknown(facts: Facts, shape: Shape) -> None:
    """Refuse when something is not known that no file's name says, and name all of it."""
    known = {
        "the model's hidden size": facts.value("model.hidden_size"),
        "how many experts a token takes": _topk(facts),
        "whether the experts are bf16 or fp16": shape.dtype is not None or _half(facts),
        "the group size of the int4 experts": shape.dtype != "int4_w4a16" or _group(facts) > 0,
    }
    missing = [what for what, value in known.items() if not value]
    if missing:
        raise Undecided(
            f"not known: {', '.join(missing)}; --model DIR names the model's folder or its config.json"
        )


def _group(facts: Facts) -> int:
    return int(facts.value("model.quantization_group_size") or 0)
