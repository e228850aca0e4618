"""Piecewise CUDA graphs: which causes switch them off, and where that is not known."""

from __future__ import annotations

from typing import Any

import pytest

from sgdoctor.facts import Facts, Unknown
from sgdoctor.upstream import piecewise

PLAIN: dict[str, Any] = {
    "arg.enable_dp_attention": False,
    "arg.enable_torch_compile": False,
    "arg.pp_size": 1,
    "arg.moe_a2a_backend": "none",
    "arg.enable_lora": None,
    "arg.lora_paths": None,
    "arg.enable_hierarchical_cache": False,
    "arg.enable_deterministic_inference": False,
    "arg.disaggregation_mode": "null",
    "arg.dllm_algorithm": None,
    "arg.cpu_offload_gb": 0,
    "arg.enable_symm_mem": False,
    "arg.enable_eplb": False,
    "arg.expert_distribution_recorder_mode": None,
    "arg.attn_cp_size": 1,
    "arg.debug_cuda_graph": False,
    "arg.speculative_algorithm": None,
    "arg.model_path": "/models/m",
    "asked.load_format": None,
    "asked.quantization": None,
    "model.architecture": "Qwen3MoeForCausalLM",
    "gpu.vendor": "nvidia",
}


def off_by(release: str, without: tuple[str, ...] = (), **changed: Any) -> Any:
    facts = Facts()
    facts.set("sglang.version", release, source="packages", place="here")
    values = PLAIN | {name.replace("__", "."): value for name, value in changed.items()}
    for name, value in values.items():
        if name not in without:
            facts.set(name, value, source="command", place="here")
    piecewise.derive(facts)
    fact = facts.get("graph.piecewise_off_by")
    return fact if isinstance(fact, Unknown) else fact.value


@pytest.mark.parametrize("release", ["0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.13.post1"])
def test_a_plain_server_keeps_them(release: str) -> None:
    assert off_by(release) == []


def test_speculative_decoding_only_in_0_5_10() -> None:
    assert off_by("0.5.10", arg__speculative_algorithm="EAGLE") == ["speculative decoding"]
    assert off_by("0.5.11", arg__speculative_algorithm="EAGLE") == []


def test_sparse_attention_models_up_to_0_5_12() -> None:
    assert off_by("0.5.12", model__architecture="DeepseekV32ForCausalLM")
    assert off_by("0.5.13", model__architecture="DeepseekV32ForCausalLM") == []


def test_a_gguf_file() -> None:
    assert off_by("0.5.12", arg__model_path="/models/m.gguf") == ["a GGUF checkpoint"]


@pytest.mark.parametrize("release", ["0.5.10", "0.5.13"])
@pytest.mark.parametrize("flag", ["load_format", "quantization"])
def test_gguf_by_a_flag_where_the_path_is_a_folder(release: str, flag: str) -> None:
    assert off_by(release, **{f"asked__{flag}": "gguf"}) == ["a GGUF checkpoint"]


def test_a_model_folder_whose_name_ends_in_gguf_is_no_gguf_file() -> None:
    assert off_by("0.5.12", arg__model_path="org/Qwen3-8B-gguf") == []


def test_every_cause_is_named_once() -> None:
    found = off_by("0.5.12", arg__enable_lora=True, arg__lora_paths=["a"], arg__pp_size=2)
    assert found == ["pipeline parallelism", "LoRA"]


def test_a_multimodal_model_is_one_unless_sglang_serves_it_as_text() -> None:
    assert off_by("0.5.10", model__architecture="Qwen3_5MoeForConditionalGeneration")
    assert off_by("0.5.10", model__architecture="Llama4ForConditionalGeneration") == []


def test_one_cause_is_enough_even_where_others_are_not_known() -> None:
    assert off_by("0.5.12", without=("model.architecture",), arg__pp_size=2) == ["pipeline parallelism"]


def test_a_cpu_server_and_a_decode_server_have_none_to_lose() -> None:
    assert off_by("0.5.12", gpu__vendor="other", arg__pp_size=2) == []
    assert off_by("0.5.12", arg__disaggregation_mode="decode", arg__pp_size=2) == []
    assert off_by("0.5.12", arg__disaggregation_mode="prefill") == ["prefill/decode disaggregation"]


def test_an_unknown_flag_is_not_taken_for_harmless() -> None:
    found = off_by("0.5.12", without=("arg.enable_symm_mem",))
    assert isinstance(found, Unknown)
    assert found.missing == ("arg.enable_symm_mem",)


@pytest.mark.parametrize("release", ["0.5.9", "0.5.14", "0.5.23"])
def test_other_releases_have_other_graphs(release: str) -> None:
    assert isinstance(off_by(release), Unknown)
