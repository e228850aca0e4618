"""config.json as a source of facts, and where it is looked for."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.collect.model import find_model, read_model
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Unknown

TESTS = Path(__file__).parents[1]
MODELS = TESTS / "captures" / "models"

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}


def read(tmp_path: Path, config: object, **beside: object) -> Facts:
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, content in beside.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    facts = Facts()
    read_model(facts, tmp_path)
    return facts


def values(facts: Facts, *names: str) -> tuple:
    return tuple(facts.value(f"model.{name}", "unknown") for name in names)


def test_a_moe_model(tmp_path):
    facts = Facts()
    read_model(facts, MODELS / "moe-e128-n768-fp8")
    experts = ("is_moe", "experts", "experts_per_token", "moe_intermediate_size")
    assert values(facts, *experts) == (True, 128, 8, 768)
    quantization = ("checkpoint_quantization", "expert_weights", "weight_block_size")
    assert values(facts, *quantization) == ("fp8", "fp8_block", [128, 128])
    assert values(facts, "max_position_embeddings", "kv_heads", "dtype") == (40960, 4, "bfloat16")
    assert values(facts, "attention_heads") == (32,)


def test_a_dense_architecture_with_fields_of_experts_has_no_experts():
    facts = Facts()
    read_model(facts, MODELS / "dense" / "config.json")
    assert values(facts, "architecture", "is_moe", "experts") == ("Qwen3ForCausalLM", False, None)


def test_the_language_model_of_a_multimodal_one():
    facts = Facts()
    read_model(facts, TESTS / "scenarios" / "rtx-pro-6000" / "config.json")
    assert values(facts, "experts", "moe_intermediate_size", "hidden_size") == (256, 1024, 3072)
    assert values(facts, "is_hybrid", "shared_experts", "dtype") == (True, 1, "bfloat16")


@pytest.mark.parametrize(
    ("architecture", "fields", "expected"),
    [
        ("MixtralForCausalLM", {"num_local_experts": 8, "intermediate_size": 14336}, (8, 14336)),
        ("DeepseekV3ForCausalLM", {"n_routed_experts": 256, "moe_intermediate_size": 2048}, (256, 2048)),
        ("Ernie4_5_MoeForCausalLM", {"moe_num_experts": 64, "moe_intermediate_size": 1536}, (64, 1536)),
        ("GptOssForCausalLM", {"num_local_experts": 128, "intermediate_size": 2880}, (128, 2880)),
    ],
)
def test_each_architecture_has_its_own_names(tmp_path, architecture, fields, expected):
    facts = read(tmp_path, {"architectures": [architecture], **fields})
    assert values(facts, "experts", "moe_intermediate_size") == expected


@pytest.mark.parametrize(
    ("architecture", "fields", "has_experts"),
    [
        ("Gemma4ForConditionalGeneration", {"enable_moe_block": True, "num_experts": 128}, True),
        ("Gemma4ForConditionalGeneration", {"num_experts": None}, False),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "ME*E"}, True),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "M-*-"}, False),
        ("NemotronHForCausalLM", {"layers_block_type": ["mamba", "moe"]}, True),
        ("NemotronHForCausalLM", {"n_routed_experts": 8}, "unknown"),  # the pattern decides
    ],
)
def test_some_architectures_say_elsewhere_whether_there_are_experts(
    tmp_path, architecture, fields, has_experts
):
    facts = read(tmp_path, {"architectures": [architecture], **fields})
    assert values(facts, "is_moe") == (has_experts,)


def test_a_list_of_all_layers_is_one_number_when_they_agree(tmp_path):
    hunyuan = {"architectures": ["HunYuanMoEV1ForCausalLM"], "num_experts": 64, "intermediate_size": 3072}
    facts = read(tmp_path, {**hunyuan, "moe_topk": [8, 8]})
    assert values(facts, "experts_per_token", "moe_intermediate_size") == (8, 3072)
    facts = read(tmp_path, {**hunyuan, "moe_topk": [8, 4], "moe_intermediate_size": 1536})
    assert values(facts, "experts_per_token", "moe_intermediate_size") == ("unknown", 1536)


def test_an_architecture_that_is_not_known_is_not_guessed_at(tmp_path):
    facts = read(tmp_path, {"architectures": ["NewForCausalLM"], "num_experts": 64})
    assert values(facts, "is_moe", "experts") == ("unknown", "unknown")
    facts = read(tmp_path, {"architectures": ["NewMoeForCausalLM"], "num_experts": 64})
    assert values(facts, "is_moe", "experts") == (True, "unknown")
    facts = read(tmp_path, {"architectures": ["NewForCausalLM"]})
    assert values(facts, "is_moe", "experts") == (False, None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 8192),
        ({"rope_scaling": None}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
        ({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8192}}, 8192),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "unknown"),  # as transformers 4 and 5 differ
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 8192),
        ({"model_max_length": 4096}, 4096),  # the first of SGLang's names wins
        ({"rope_scaling": {"type": "linear", "factor": "four"}}, "unknown"),
        ({"max_position_embeddings": None}, "unknown"),
    ],
)
def test_context_length(tmp_path, fields, expected):
    facts = read(tmp_path, {**DENSE, **fields})
    assert values(facts, "max_position_embeddings") == (expected,)


def test_modelopt_writes_its_config_beside(tmp_path):
    facts = read(tmp_path, DENSE, hf_quant_config={"quantization": {"quant_algo": "FP8"}})
    assert values(facts, "checkpoint_quantization", "expert_weights") == ("modelopt_fp8", "fp8_tensor")


@pytest.mark.parametrize(("kind", "expected"), [("kimi_k25", "int4_marlin"), ("qwen3_vl_moe", None)])
def test_quantization_that_stands_with_the_language_part(tmp_path, kind, expected):
    """Kimi K2.5 keeps it there, and its config class moves it up; of other models SGLang does not see it."""
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    packed = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    text = {"n_routed_experts": 384, "moe_intermediate_size": 2048, "quantization_config": packed}
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": kind, "text_config": text}
    assert values(read(tmp_path, config), "expert_weights") == (expected,)


@pytest.mark.parametrize(
    ("quantized", "scales"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, False),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"strategy": "tensor"}}, True),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"dynamic": True}}, False),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"strategy": "attn_head"}}, False),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, True),
        ({"quant_method": "fp8", "kv_cache_scheme": "static"}, True),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, False),
        ({"quant_method": "quark", "export": {"kv_cache_group": ["*k_proj", "*v_proj"]}}, True),
        ({"quant_method": "quark", "export": {"kv_cache_group": []}}, False),
    ],
)
def test_scales_of_the_kv_cache(tmp_path, quantized, scales):
    facts = read(tmp_path, {**DENSE, "quantization_config": quantized})
    assert values(facts, "kv_cache_scales") == (scales,)


def test_scales_that_modelopt_writes_of_beside(tmp_path):
    assert values(read(tmp_path, DENSE), "kv_cache_scales") == (False,)
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert values(read(tmp_path, DENSE, hf_quant_config=beside), "kv_cache_scales") == (True,)


def test_a_config_without_architecture_is_noted(tmp_path):
    facts = read(tmp_path, {"hidden_size": 8})
    assert "names no architecture" in facts.notes[0]
    assert isinstance(facts.get("model.is_moe"), Unknown)


@pytest.mark.parametrize("text", ["", "{", "[]", '"config"', "null", "GGUF\0\0", "[" * 100_000])
def test_what_is_no_config(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        read_model(Facts(), tmp_path)


def test_what_is_not_there(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="No such file"):
            read_model(Facts(), path)


keys = st.sampled_from(
    "architectures model_type text_config thinker_config llm_config quantization_config rope_scaling "
    "rope_parameters rope_theta layer_types hidden_size num_experts n_routed_experts num_experts_per_tok "
    "moe_intermediate_size shared_expert_intermediate_size n_shared_experts num_hidden_layers torch_dtype "
    "num_key_value_heads max_position_embeddings multi_query vision_config".split()
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM", "bfloat16", "fp8", "mamba", ""])
)
any_json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5)
)


@given(st.dictionaries(keys, any_json, max_size=12))
def test_any_object_is_read_without_a_crash(tmp_path_factory, config):
    facts = read(tmp_path_factory.mktemp("model"), config)
    context = facts.value("model.max_position_embeddings")
    assert context is None or (isinstance(context, int) and math.isfinite(context))


# --- where it lies --------------------------------------------------------------------------------------


def model_at(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder(tmp_path):
    folder = model_at(tmp_path / "model")
    assert find_model(str(folder)) == folder
    assert find_model("/models/model", lambda path: path.replace("/models", str(tmp_path))) == folder


def test_the_hugging_face_cache(tmp_path):
    repository = tmp_path / "hub" / "models--Qwen--Qwen3-30B-A3B"
    old = model_at(repository / "snapshots" / "aaaa")
    used = model_at(repository / "snapshots" / "bbbb")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("bbbb")
    name = "Qwen/Qwen3-30B-A3B"
    assert find_model(name, variables={"HF_HOME": str(tmp_path)}) == used
    assert find_model(name, variables={"HF_HUB_CACHE": str(tmp_path / "hub")}) == used
    (repository / "refs" / "main").write_text("cccc")
    assert find_model(name, variables={"HF_HOME": str(tmp_path)}) in (old, used)
    assert find_model("Qwen/Other", variables={"HF_HOME": str(tmp_path)}) is None


def test_the_cache_in_the_home_directory(tmp_path):
    snapshot = tmp_path / ".cache" / "huggingface" / "hub" / "models--a--b" / "snapshots" / "1"
    assert find_model("a/b", variables={"HOME": str(tmp_path)}) is None
    model_at(snapshot)
    assert find_model("a/b", variables={"HOME": str(tmp_path)}) == snapshot


def test_the_modelscope_cache(tmp_path):
    folder = model_at(tmp_path / "models" / "Qwen" / "Qwen3___5-122B")
    variables = {"MODELSCOPE_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    assert find_model("Qwen/Qwen3.5-122B", variables=variables) == folder


@given(st.text(max_size=30))
def test_any_name_is_found_or_not(tmp_path_factory, name):
    found = find_model(name, variables={"HOME": str(tmp_path_factory.getbasetemp() / "home")})
    assert found is None or found.exists()
