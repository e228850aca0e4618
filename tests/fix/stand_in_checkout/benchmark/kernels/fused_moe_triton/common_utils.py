"""The stand-in's other file: the tuner's script imports it from its own folder, as the real one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DEVICE = "NVIDIA_H200"


def model_shape(args: Any) -> dict[str, Any]:
    """Return E, N and the block of a model folder; the real one's mistakes included."""
    config = json.loads((Path(args.model) / "config.json").read_text())
    quantization = config.get("quantization_config", {})
    block = quantization.get("weight_block_size")
    if config["architectures"][0] == "Qwen3MoeForCausalLM":
        experts = config["num_experts"] // args.ep_size
    elif config["architectures"][0] == "DeepseekV3ForCausalLM":
        experts = config["n_routed_experts"] // args.ep_size + (not args.disable_shared_experts_fusion)
    else:
        name = "num_local_experts"
        raise AttributeError(f"'{config['architectures'][0]}' object has no attribute '{name}'")
    return {"E": experts, "N": config["moe_intermediate_size"] * args.ep_size // args.tp_size, "block": block}


def file_name(shape: dict[str, Any], args: Any) -> str:
    """Return the name of the file to write: for int4, where a server looks for N / 2, one that none reads."""
    dtype = "" if args.dtype == "auto" else f",dtype={args.dtype}"
    block = f",block_shape={shape['block']}" if shape["block"] else ""
    channel = ",per_channel_quant=True" if args.per_channel_quant else ""
    return f"E={shape['E']},N={shape['N']},device_name={DEVICE}{dtype}{block}{channel}.json"
