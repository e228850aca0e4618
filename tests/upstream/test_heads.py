"""Over how many GPUs the attention heads can be split, held against the asserts in the releases' models."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from sgdoctor.facts import Facts, Known, Unknown
from sgdoctor.upstream import heads
from tests.upstream.asked import facts_of
from tools.oracles import RELEASES

LATENT = ("deepseek_v2.py", "DeepseekV2AttentionMLA")
LAYERS = [
    ("llama.py", "LlamaAttention"),
    ("qwen2.py", "Qwen2Attention"),
    ("mixtral.py", "MixtralAttention"),
    ("gemma2.py", "Gemma2Attention"),
    ("gemma3_causal.py", "Gemma3Attention"),
    ("glm4.py", "Glm4Attention"),
    ("qwen3.py", "Qwen3Attention"),
    ("qwen2_moe.py", "Qwen2MoeAttention"),
    ("qwen3_moe.py", "Qwen3MoeAttention"),
    ("qwen3_next.py", "Qwen3HybridAttentionDecoderLayer"),
    ("qwen3_5.py", "Qwen3_5AttentionDecoderLayer"),
    ("llama4.py", "Llama4Attention"),
    ("glm4_moe.py", "Glm4MoeAttention"),
    ("gpt_oss.py", "GptOssAttention"),
    ("minimax_m2.py", "MiniMaxM2Attention"),
    LATENT,
]
SHAPES = [(40, 8), (28, 4), (64, 8), (96, 8), (128, 128), (16, 2), (24, 24)]


def checks(file: Path, layer: str) -> CodeType:
    """Compile what a layer's constructor asserts of its heads, and nothing else of it."""
    tree = ast.parse(file.read_text(encoding="utf-8-sig"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == layer]
    (init,) = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    body = [
        each
        for each in init.body
        if (isinstance(each, ast.Assert) and "num_heads %" in ast.unparse(each))
        or (isinstance(each, ast.If) and "total_num_kv_heads >=" in ast.unparse(each.test))
    ]
    assert body, f"{file}: {layer} asserts nothing of its heads"
    return compile(ast.Module(body, type_ignores=[]), str(file), "exec")


def refuses(code: CodeType, total: int, kv: int, gpus: int) -> bool:
    sizes = {"tp_size": gpus, "attn_tp_size": gpus, "kv_tp_size": gpus}
    layer = SimpleNamespace(total_num_heads=total, total_num_kv_heads=kv, **sizes)
    try:
        exec(code, {"self": layer, "num_heads": total, **sizes})  # noqa: S102 (only asserts of a wheel)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("release", RELEASES)
def test_the_layers_assert_it(release: str, sglang_wheel: Callable[[str], Path]) -> None:
    models = next(sglang_wheel(release).rglob("srt/models"))
    for name, layer in LAYERS:
        if not (models / name).is_file():
            assert (name, release) == ("qwen3_5.py", "0.5.7")
            continue
        code = checks(models / name, layer)
        for total, kv in SHAPES:
            for gpus in range(1, 33):
                told = heads.split_error(total, None if (name, layer) == LATENT else kv, gpus)
                assert (told is not None) is refuses(code, total, kv, gpus), (name, total, kv, gpus)


# --- the facts ----------------------------------------------------------------------------------------------

QWEN = {"model.architecture": "Qwen3ForCausalLM", "model.attention_heads": 64, "model.kv_heads": 8}
LLAMA = {**QWEN, "model.architecture": "LlamaForCausalLM"}
DEEPSEEK = {**QWEN, "model.architecture": "DeepseekV3ForCausalLM", "model.attention_heads": 128}


def derived(flags: str, version: str | None = "0.5.12", **model: Any) -> Facts:
    facts = facts_of(flags, version, **{**model, "gpu.vendor": "nvidia"})
    heads.derive(facts)
    return facts


def told(flags: str, version: str | None = "0.5.12", **model: Any) -> str | None:
    fact = derived(flags, version, **model).get(heads.ERROR)
    assert isinstance(fact, Known), fact
    return None if fact.value is None else str(fact.value)


def why_unknown(flags: str, version: str | None = "0.5.12", **model: Any) -> str:
    fact = derived(flags, version, **model).get(heads.ERROR)
    assert isinstance(fact, Unknown), fact
    return fact.reason


def test_the_sizes_that_fit_are_named() -> None:
    facts = derived("--tp 12", **QWEN)
    assert facts.value(heads.ERROR) == "64 attention heads cannot be split evenly over 12 GPUs"
    assert facts.value(heads.SIZES) == [1, 2, 4, 8]


def test_key_value_heads_are_split_or_repeated() -> None:
    few = {**QWEN, "model.attention_heads": 96}
    assert told("--tp 6", **few) == "8 key/value heads cannot be split evenly over 6 GPUs"
    assert told("--tp 12", **few) == "8 key/value heads cannot be repeated evenly on 12 GPUs"
    assert told("--tp 16", **few) is None


def test_one_gpu_has_all_heads_of_any_model() -> None:
    assert told("") is None


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.5.12", "--tp 12 --dp-size 3 --enable-dp-attention"),
        ("0.5.23", "--tp 12 --attn-dp-size 3"),
        ("0.5.23", "--tp 12 --dp-size 3 --enable-dp-attention"),
    ],
)
def test_groups_of_dp_attention_share_the_heads(version: str, flags: str) -> None:
    assert told(flags, version, **QWEN) is None
    assert told(flags, version, **LLAMA) is not None, "whose layers know no groups"


def test_so_do_groups_of_context_parallelism() -> None:
    assert told("--tp 12 --attention-context-parallel-size 3", **QWEN) is None
    assert told("--tp 12 --attention-context-parallel-size 2", **QWEN) is not None


def test_a_model_that_learned_about_groups() -> None:
    model = {**QWEN, "model.architecture": "MiniMaxM2ForCausalLM"}
    flags = "--tp 12 --dp-size 3 --enable-dp-attention"
    assert told(flags, "0.5.10.post1", **model) is not None
    assert told(flags, "0.5.11", **model) is None


def test_what_all_releases_do_needs_no_release() -> None:
    assert told("--tp 14", None, **DEEPSEEK) is not None
    assert told("--tp 8", None, **DEEPSEEK) is None


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--tp 12 --model-impl transformers", "another implementation"),
        ("--tp 12 --encoder-only", "--encoder-only"),
        ("--tp 12 --enable-prefill-context-parallel", "--enable-prefill-context-parallel"),
        ("--tp 12 --dp-size 5 --enable-dp-attention", "divided into the groups"),
    ],
)
def test_what_cannot_be_told(flags: str, reason: str) -> None:
    assert reason in why_unknown(flags, "0.5.13", **QWEN)


def test_a_model_that_was_not_looked_at_or_says_little() -> None:
    assert "CohereForCausalLM" in why_unknown(
        "--tp 12", **{**QWEN, "model.architecture": "CohereForCausalLM"}
    )
    assert "not known" in why_unknown("--tp 12")
    assert "no heads" in why_unknown("--tp 12", **{**QWEN, "model.kv_heads": 0})


def test_a_log_alone_tells_the_sizes() -> None:
    """The banner of a server that died has every flag; nobody has its launch command."""
    facts = Facts()
    banner = {"tp_size": 6, "model_impl": "auto", "encoder_only": False, "dcp_size": 1, "attn_cp_size": 1}
    banner |= {"enable_dp_attention": False, "dp_size": 1, "enable_prefill_cp": False}
    for name, value in {f"arg.{dest}": value for dest, value in banner.items()}.items():
        facts.set(name, value, source="log", place="server.log:1")
    for name, value in {**QWEN, "sglang.version": "0.5.20"}.items():
        facts.set(name, value, source="assume", place="--assume")
    heads.derive(facts)
    assert facts.value(heads.ERROR) == "64 attention heads cannot be split evenly over 6 GPUs"
