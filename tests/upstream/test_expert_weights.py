"""How experts are stored, from quantization configs as checkpoints carry them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.upstream import expert_weights
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.expert_weights import Stored


def compressed(weights: dict, inputs: dict | None = None, **more) -> dict:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


FP8 = {"num_bits": 8, "type": "float"}
DYNAMIC = {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Stored()),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            Stored("fp8", "fp8_block", (128, 128)),
        ),
        ({"quant_method": "fp8", "activation_scheme": "static"}, Stored("fp8", "fp8_tensor")),
        (
            compressed({**FP8, "strategy": "channel"}, DYNAMIC),
            Stored("compressed-tensors", "fp8_channel"),
        ),
        (
            compressed({**FP8, "strategy": "block", "block_structure": [128, 128]}, DYNAMIC),
            Stored("compressed-tensors", "fp8_block", (128, 128)),
        ),
        (
            compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}),
            Stored("compressed-tensors", "int4_marlin", group=32),
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False},
            Stored("gptq", "int4_marlin", group=128),
        ),
        ({"quant_method": "gptq", "bits": 3}, Stored("gptq", "gptq")),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            Stored("awq", "int4_awq", group=128),
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, Stored("modelopt_fp8", "fp8_tensor")),
        ({"quant_algo": "NVFP4"}, Stored("modelopt_fp4", "modelopt_fp4")),
        ({"quant_method": "mxfp4"}, Stored("mxfp4", "mxfp4")),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.3.mlp.experts"]},
            Stored("fp8", "mixed"),
        ),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.3.mlp.shared_expert_gate"]},
            Stored("fp8", "fp8_tensor"),
        ),
    ],
)
def test_checkpoints(config, expected):
    assert expert_weights.from_checkpoint(config) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["fp8", "float", 128]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
known_keys = st.sampled_from(
    [
        "quant_method",
        "quant_algo",
        "weight_block_size",
        "config_groups",
        "bits",
        "group_size",
        "sym",
        "ignore",
    ]
)


@given(st.dictionaries(known_keys, json_values))
def test_anything_in_a_quantization_config_is_taken(config):
    assert isinstance(expert_weights.from_checkpoint(config), Stored)


def test_what_is_asked_for_on_top():
    assert expert_weights.in_use(None, Stored("fp8", "fp8_tensor")) == Stored("fp8", "fp8_tensor")
    assert expert_weights.in_use("fp8", Stored()) == Stored("fp8", "fp8_tensor")
    block = Stored("fp8", "fp8_block", (128, 128))
    assert expert_weights.in_use("fp8", block) == block
    assert expert_weights.in_use("moe_wna16", Stored("gptq", "int4_marlin", group=128)) == Stored(
        "moe_wna16", "int4_weight", group=128
    )
    assert (
        expert_weights.in_use("w8a8_fp8", Stored("compressed-tensors", "fp8_tensor")).weights == "fp8_channel"
    )
    with pytest.raises(Open):
        expert_weights.in_use("fp8", Stored("awq", "int4_awq"))
