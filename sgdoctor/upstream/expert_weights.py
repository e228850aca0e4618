"""How the experts' weights are stored, from a checkpoint's quantization config and --quantization.

The names: ``fp8_tensor``, ``fp8_channel``, ``fp8_block``, ``int8_channel``, ``int8_block`` (weights and
activations), ``int8_weight`` and ``int4_weight`` (moe_wna16: unpacked by the Triton kernel),
``int4_marlin`` and ``int8_marlin`` (GPTQ, compressed-tensors), ``int4_awq``, ``mixed`` (not all layers
alike); null: not quantized; any other quantization keeps its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sgdoctor.upstream.asked_view import Open


class Stored(msgspec.Struct, frozen=True):
    """What a checkpoint's config says of its experts' weights."""

    method: str | None = None  # quant_method
    weights: str | None = None
    block: tuple[int, int] | None = None
    group: int | None = None


def from_checkpoint(config: Mapping[str, Any]) -> Stored:
    """Read a ``quantization_config`` (or hf_quant_config.json's ``quantization``)."""
    method = config.get("quant_method")
    algorithm = str(config.get("quant_algo") or "").upper()
    if not isinstance(method, str) or method == "modelopt":
        method = _modelopt(algorithm) or method
    if not isinstance(method, str):
        return Stored()
    method = method.lower()
    if _ignores_experts(config):
        return Stored(method, "mixed")
    if method == "fp8":
        block = _pair(config.get("weight_block_size"))
        return Stored(method, "fp8_block" if block else "fp8_tensor", block)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed_tensors("compressed-tensors", config)
    group = config.get("group_size")
    group = group if isinstance(group, int) and not isinstance(group, bool) else None
    if method == "gptq":
        return Stored(method, _gptq(config), group=group)
    if method == "awq":
        return Stored(method, "int4_awq" if config.get("bits", 4) == 4 else method, group=group)
    if method == "modelopt_fp8":
        return Stored(method, "fp8_tensor")
    if method == "blockwise_int8":
        block = _pair(config.get("weight_block_size"))
        return Stored(method, "int8_block" if block else method, block)
    return Stored(method, {"w8a8_int8": "int8_channel", "w8a8_fp8": "fp8_channel"}.get(method, method))


def _modelopt(algorithm: str) -> str | None:
    """_parse_modelopt_quant_config: NVFP4 and FP8; what is mixed or MX has other methods by release."""
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return "modelopt_fp8" if algorithm == "FP8" else (algorithm.lower() or None)


def _pair(value: Any) -> tuple[int, int] | None:
    good = (
        isinstance(value, list) and len(value) == 2 and all(type(part) is int and part > 0 for part in value)
    )
    return (value[0], value[1]) if good else None


def _ignores_experts(config: Mapping[str, Any]) -> bool:
    """Whether some layers' experts are left unquantized (the routed ones, not the shared)."""
    for key in ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules"):
        names = config.get(key)
        if isinstance(names, list) and any(
            isinstance(name, str) and "experts" in name and "shared_expert" not in name for name in names
        ):
            return True
    return False


def _gptq(config: Mapping[str, Any]) -> str:
    """is_gptq_marlin_compatible: 4 or 8 bits, symmetric, groups Marlin knows."""
    bits, group = config.get("bits"), config.get("group_size")
    if bits in (4, 8) and config.get("sym") is True and group in (-1, 32, 64, 128):
        return f"int{bits}_marlin" if "desc_act" in config else "gptq"
    return "gptq"


def _compressed_tensors(method: str, config: Mapping[str, Any]) -> Stored:
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        return Stored(method, "mixed")
    group = next(iter(groups.values()))
    if not isinstance(group, dict) or group.get("targets") != ["Linear"]:
        return Stored(method, "mixed")
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, dict):
        return Stored(method, method)
    bits, kind, strategy = (weights.get(name) for name in ("num_bits", "type", "strategy"))
    if kind == "float" and bits == 8 and isinstance(inputs, dict):
        block = _pair(weights.get("block_structure"))
        if strategy == "block" and block is not None:
            return Stored(method, "fp8_block", block)
        if strategy in ("tensor", "channel"):
            return Stored(method, f"fp8_{strategy}")
    if kind == "int" and bits in (4, 8) and inputs is None and strategy in ("group", "channel"):
        size = weights.get("group_size")
        return Stored(method, f"int{bits}_marlin", group=size if isinstance(size, int) else None)
    return Stored(method, method)


def in_use(requested: str | None, checkpoint: Stored) -> Stored:
    """Return how the weights are held once ``--quantization`` is applied.

    Raises Open for combinations whose outcome was not verified (SGLang refuses most of them).
    """
    method = checkpoint.method
    if requested is None or requested == method:
        return checkpoint
    if method is None and requested == "fp8":
        return Stored("fp8", "fp8_tensor")
    if requested == "w8a8_fp8" and method in (None, "compressed-tensors"):
        return Stored(requested, "fp8_channel")
    if requested == "w8a8_int8" and method in (None, "compressed-tensors"):
        return Stored(requested, "int8_channel")
    if requested == "moe_wna16" and method in ("gptq", "awq"):
        return _wna16(checkpoint)
    same = {("gptq_marlin", "gptq"), ("awq_marlin", "awq"), ("modelopt", "modelopt_fp8")}
    if (requested, method) in same or (requested == "modelopt_fp8" and method == "modelopt_fp8"):
        return checkpoint
    if method is None:
        return Stored(requested, requested)
    raise Open(f"--quantization {requested} on a checkpoint quantized with {method} was not verified")


def _wna16(checkpoint: Stored) -> Stored:
    weights = {"int4_marlin": "int4_weight", "int4_awq": "int4_weight", "int8_marlin": "int8_weight"}
    held = weights.get(checkpoint.weights or "")
    if held is None:
        raise Open("the bits of this checkpoint under --quantization moe_wna16 are not known")
    return Stored("moe_wna16", held, group=checkpoint.group)
