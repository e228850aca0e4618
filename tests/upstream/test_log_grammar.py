"""SGLang's own lines, of several releases, as they were logged or as their f-strings print them."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.upstream import log_grammar
from sgdoctor.upstream.log_grammar import Capacity, ConfigName, Weights

TRITON_UTILS = "/usr/local/lib/python3.12/dist-packages/sglang/srt/layers/moe/moe_runner/triton_utils/configs"
NAME = "E=256,N=768,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128, 128]"
CREATE = ", you can create them with https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton"
SUBOPTIMAL = "Performance might be sub-optimal!"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # 0.4.3
            "Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=36.48 GB",
            Weights("DeepseekV3ForCausalLM", "bfloat16", None, None),
        ),
        (  # up to 0.5.8
            "Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=63.49 GB, mem usage=15.35 GB.",
            Weights("Qwen3ForCausalLM", "bfloat16", None, 15.35),
        ),
        (  # 0.5.9
            (
                "Load weight end. elapsed=96.20 s, type=XForCausalLM, dtype=torch.float16, avail mem=33.61 GB, "
                "mem usage=58.92 GB."
            ),
            Weights("XForCausalLM", "float16", None, 58.92),
        ),
        (  # 0.5.10 and newer, without and with a quantization in config.json
            "Load weight end. elapsed=0.08 s, type=Qwen3MoeForCausalLM, avail mem=134.36 GB, mem usage=4.75 GB.",
            Weights("Qwen3MoeForCausalLM", None, None, 4.75),
        ),
        (
            "Load weight end. elapsed=1.20 s, type=X, quant=gptq, bits=4, avail mem=1.00 GB, mem usage=2.00 GB.",
            Weights("X", None, "gptq", 2.0),
        ),
        (
            "Load weight end. elapsed=1.20 s, type=X, quant=compressed-tensors, avail mem=1.00 GB, mem usage=2.00 GB.",
            Weights("X", None, "compressed-tensors", 2.0),
        ),
        ("Load weight end. Committed real weights after CUDA graph capture in 1.00 s", None),  # 0.5.18
    ],
)
def test_weights(text: str, expected: Weights | None) -> None:
    assert log_grammar.weights(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # 0.4.6
            (
                "max_total_num_tokens=404890, chunked_prefill_size=8192, max_prefill_tokens=16384, "
                "max_running_requests=4097, context_len=8096"
            ),
            Capacity(404890, 4097, 8096, None),
        ),
        (
            (
                "max_total_num_tokens=2086558, chunked_prefill_size=-1, max_prefill_tokens=16384, "
                "max_running_requests=33, context_len=256000, available_gpu_mem=17.22 GB"
            ),
            Capacity(2086558, 33, 256000, 17.22),
        ),
        (
            (
                "max_total_num_tokens=1, chunked_prefill_size=None, max_prefill_tokens=2, max_running_requests=3, "
                "context_len=4, available_cpu_mem=5.00 GB"
            ),
            Capacity(1, 3, 4, None),
        ),
        ("max_total_num_tokens=2086558", None),
    ],
)
def test_capacity(text: str, expected: Capacity | None) -> None:
    assert log_grammar.capacity(text) == expected


@pytest.mark.parametrize(
    ("text", "source", "wanted", "used"),
    [
        (f"Using MoE kernel config from {TRITON_UTILS}/triton_3_5_1/{NAME}.json.", "exact", None, "3.5.1"),
        (
            (
                f"Config file not found at {TRITON_UTILS}/triton_3_6_0/{NAME}.json. Fallback to triton version 3.2.0 and use "
                f"MoE kernel config from {TRITON_UTILS}/triton_3_2_0/{NAME}.json. {SUBOPTIMAL}"
            ),
            "fallback",
            "3.6.0",
            "3.2.0",
        ),
        (
            (
                f"Using default MoE kernel config. {SUBOPTIMAL} Config file not found at "
                f"{TRITON_UTILS}/triton_3_6_0/{NAME}.json{CREATE}"
            ),
            "default",
            "3.6.0",
            None,
        ),
        (  # 0.5.16 and newer, where the up projection has none either
            (
                f"Using default MoE kernel config. {SUBOPTIMAL} Config file not found at "
                f"{TRITON_UTILS}/triton_3_6_0/{NAME}_down.json{CREATE}"
            ),
            "default",
            "3.6.0",
            None,
        ),
        (  # up to 0.5.15
            (
                f"Using MoE kernel config with down_moe=False. {SUBOPTIMAL} Config file not found at "
                f"{TRITON_UTILS}/triton_3_6_0+git9844da95/{NAME}_down.json{CREATE}"
            ),
            "up",
            "3.6.0+git9844da95",
            None,
        ),
        (  # 0.5.16 and newer
            (
                f"Down MoE config file not found at {TRITON_UTILS}/triton_3_8_0/{NAME}_down.json; reusing the tuned "
                "up-projection config without TMA. Performance might be sub-optimal."
            ),
            "up",
            "3.8.0",
            None,
        ),
        (  # 0.4.6: no folder of Triton's
            (
                f"Using default MoE config. {SUBOPTIMAL} Config file not found at "
                f"/sgl-workspace/sglang/python/sglang/srt/layers/moe/fused_moe_triton/configs/{NAME}.json{CREATE}"
            ),
            "default",
            None,
            None,
        ),
    ],
)
def test_moe_lookups(text: str, source: str, wanted: str | None, used: str | None) -> None:
    found = log_grammar.moe(text)
    assert found is not None
    assert found.source == source
    assert (found.wanted and found.wanted.triton) == wanted
    assert (found.used and found.used.triton) == used
    assert found.looked_for.file in (f"{NAME}.json", f"{NAME}_down.json")
    assert found.down is found.looked_for.file.endswith("_down.json")
    assert found.looked_for.root.endswith("/configs")


def test_a_lookup_that_is_cut_off_is_none() -> None:
    assert (
        log_grammar.moe(f"Using default MoE kernel config. {SUBOPTIMAL} Config file not found at /x/E=1,N=2")
        is None
    )
    assert log_grammar.moe("Using MoE kernel config from somewhere.json.") is None


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (f"{NAME}.json", ConfigName(256, 768, "NVIDIA H200 NVL", "fp8_w8a8", (128, 128), down=False)),
        (
            "E=8,N=7168,device_name=NVIDIA_A100-SXM4-80GB.json",
            ConfigName(8, 7168, "NVIDIA A100-SXM4-80GB", None, None, down=False),
        ),
        (
            "E=64,N=1280,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,per_channel_quant=True_down.json",
            ConfigName(64, 1280, "NVIDIA H100 80GB HBM3", "fp8_w8a8", None, down=True),
        ),
        (
            "E=384,N=128,device_name=,dtype=int4_w4a16_down.json",
            ConfigName(384, 128, "", "int4_w4a16", None, down=True),
        ),
        ("N=1,K=2,device_name=X.json", None),
    ],
)
def test_config_names(file: str, expected: ConfigName | None) -> None:
    assert log_grammar.config_name(file) == expected


def test_block_wise_gemm() -> None:
    path = "/x/sglang/kernels/ops/gemm/configs/N=24576,K=1536,device_name=NVIDIA_L20,dtype=fp8_w8a8,block_shape=[128, 128].json"
    text = f"Using default W8A8 Block FP8 kernel config. {SUBOPTIMAL} Config file not found at {path}"
    assert log_grammar.gemm(text) == path
    assert log_grammar.gemm(f"Using configuration from {path} for W8A8 Block FP8 kernel.") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # 0.4.4
            ("Decode batch. #running-req: 32, #token: 7352, token usage: 0.01, accept len: 2.54, gen throughput "
            "(token/s): 39.33, largest-len: 0, #queue-req: 68, "),
            {"#running-req": "32", "#token": "7352", "token usage": "0.01", "accept len": "2.54",
             "gen throughput (token/s)": "39.33", "largest-len": "0", "#queue-req": "68"},
        ),
        (  # 0.5.18, sliding windows and speculative decoding
            ("Decode batch [123], #running-req: 1, #full token: 165376, full token usage: 0.02, #swa token: 768, swa "
            "token usage: 0.00, accept len: 5.30, accept rate: 0.86, cuda graph: True, gen throughput (token/s): "
            "167.04, #queue-req: 0"),
            {"#running-req": "1", "#full token": "165376", "full token usage": "0.02", "#swa token": "768",
             "swa token usage": "0.00", "accept len": "5.30", "accept rate": "0.86", "cuda graph": "True",
             "gen throughput (token/s)": "167.04", "#queue-req": "0"},
        ),
        ("Prefill batch, #new-seq: 1, #new-token: ", {"#new-seq": "1"}),
        ("The Decode batch", {}),
    ],
)  # fmt: skip
def test_batches(text: str, expected: dict[str, str]) -> None:
    assert log_grammar.batch(text) == expected


def test_retractions() -> None:
    full = "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 333, #new_token_ratio: "
    assert log_grammar.retracted(full) == 3
    assert log_grammar.retracted("Retract requests.") == 0


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        (
            '  File "/usr/lib/python3/dist-packages/sglang/srt/server_args.py", line 1',
            "/usr/lib/python3/dist-packages/sglang",
        ),
        (
            "/sgl-workspace/sglang/python/sglang/launch_server.py:54: UserWarning:",
            "/sgl-workspace/sglang/python/sglang",
        ),
        ("/opt/sglang/venv/bin/python", None),
    ],
)
def test_where_the_package_is(text: str, folder: str | None) -> None:
    assert log_grammar.package_folder(text) == folder


@given(st.text(max_size=200))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    for words in (
        "Load weight end. type=",
        "Using MoE kernel config from ",
        "Decode batch, ",
        "max_total_num_tokens=",
    ):
        for read in (
            log_grammar.weights,
            log_grammar.moe,
            log_grammar.batch,
            log_grammar.capacity,
            log_grammar.gemm,
        ):
            read(words + text)


def test_the_short_patterns_find_the_lines() -> None:
    lines = {
        "banner": "server_args=ServerArgs(model_path='x')",
        "weights": "Load weight end. elapsed=1.20 s, type=X, avail mem=1.00 GB, mem usage=2.00 GB.",
        "moe": f"Down MoE config file not found at {TRITON_UTILS}/x.json",
        "ready": "The server is fired up and ready to roll!",
    }
    for name, line in lines.items():
        assert re.search(log_grammar.INTERESTING[name], line.encode())
