"""Facts and advice in human words."""

from __future__ import annotations

import pytest

from sgdoctor.engine.model import Recommendation
from sgdoctor.report.words import action, phrase


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("model.experts", 256, "256 experts"),
        ("arg.tp_size", 4, "TP 4"),
        ("triton.version", "3.6.0", "Triton 3.6.0"),
        ("gpu.name", "NVIDIA H200", "H200"),
        ("moe.up.source", "fallback", "up config of another Triton"),
        ("model.is_moe", False, "dense model"),
        ("model.weight_block_size", [128, 128], "weight blocks of 128, 128"),
        ("arg.mem_fraction_static", 0.85, "--mem-fraction-static 0.85"),
        ("asked.api_key", None, "no --api-key"),
        ("arg.enable_dp_attention", True, "--enable-dp-attention"),
        ("arg.enable_dp_attention", False, "no --enable-dp-attention"),
        ("arg.fp8_gemm_runner_backend", "auto", "--fp8-gemm-backend auto"),
        ("env.SGLANG_MOE_CONFIG_DIR", "/configs", "SGLANG_MOE_CONFIG_DIR=/configs"),
        ("env.SGLANG_MOE_CONFIG_DIR", None, "SGLANG_MOE_CONFIG_DIR not set"),
        (
            "env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
            None,
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN not set",
        ),
        ("package.flashinfer_python", "0.6.7.post2", "flashinfer-python 0.6.7.post2"),
        ("package.kernels", None, "no kernels"),
        ("pin.torch", "2.9.1", "pins torch 2.9.1"),
        ("gpus", [{"name": "NVIDIA H200"}] * 8, "8 GPUs"),
        (
            "packages.mismatched",
            [{"name": "torch", "installed": "2.11.0", "required": "2.9.1"}],
            "1 mismatched",
        ),
        ("log.died", True, "server died"),
        ("log.match", "Config file not found", '"Config file not found"'),
        ("window.retraction_peak", 13, "KV cache full at least 13 times within a minute"),
        ("window.queue_growth", 9.5, "the queue changed by 9.5"),
        ("metrics.token_usage", 0.975, "metrics token usage 0.975"),
        ("moe.block_m_mismatch", True, "moe block m mismatch"),
        ("moe.dtype", None, "no moe dtype"),
    ],
)
def test_a_fact_is_a_few_words(fact, value, said):
    assert phrase(fact, value) == said


def test_a_long_text_loses_its_end_at_a_word():
    said = phrase(
        "log.fatal", "RuntimeError: Not enough memory.\nPlease try to increase --mem-fraction-static."
    )
    assert said == "RuntimeError: Not enough memory. Please try ..."


def test_a_path_is_never_cut():
    path = "/usr/local/lib/python3.12/dist-packages/sglang/srt/layers/moe"
    assert phrase("moe.config_root", path).endswith(path) or phrase("sglang.path", path) == path


@pytest.mark.parametrize(
    ("recommendation", "said", "is_command"),
    [
        (Recommendation(run="sgdoctor fix --tune-moe"), "sgdoctor fix --tune-moe", True),
        (Recommendation(install="kernels<0.10"), "pip install 'kernels<0.10'", True),
        (Recommendation(env="NCCL_P2P_LEVEL", value="SYS"), "export NCCL_P2P_LEVEL=SYS", True),
        (Recommendation(env="SGLANG_MOE_CONFIG_DIR"), "unset SGLANG_MOE_CONFIG_DIR", True),
        (Recommendation(remove="--enable-mixed-chunk"), "remove --enable-mixed-chunk", False),
        (Recommendation(set="--mem-fraction-static", value=0.8), "set --mem-fraction-static 0.8", False),
        (Recommendation(set="--disable-radix-cache"), "set --disable-radix-cache", False),
        (Recommendation(do="write the flag in full"), "write the flag in full", False),
    ],
)
def test_advice_can_be_copied_where_it_is_a_command(recommendation, said, is_command):
    assert action(recommendation) == (said, is_command)
