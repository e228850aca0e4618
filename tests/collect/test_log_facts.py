"""Single records and what is made of them; the texts are those of the releases named."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import pytest

from sgdoctor.facts import Known, Unknown
from tests.collect import logs

ROOT = "/x/sglang/srt/layers/moe/moe_runner/triton_utils/configs"
MAIN = "E=128,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]"
DRAFT = "E=64,N=192,device_name=NVIDIA_H200"


def stamped(*texts: str) -> str:
    return "".join(f"[2026-11-30 05:12:{number:02}] {text}\n" for number, text in enumerate(texts))


def default(name: str, triton: str = "triton_3_8_0") -> str:
    return (
        "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
        f"{ROOT}/{triton}/{name}.json, you can create them with https://github.com/sgl-project/sglang/tree/main"
    )


def exact(name: str, triton: str = "triton_3_8_0") -> str:
    return f"Using MoE kernel config from {ROOT}/{triton}/{name}.json."


def test_both_files_are_there() -> None:
    facts = logs.read(stamped(exact(MAIN), exact(f"{MAIN}_down")))
    assert facts.value("moe.up.source") == facts.value("moe.down.source") == "exact"
    assert facts.value("moe.up.triton") == facts.value("triton.version") == "3.8.0"
    assert facts.value("moe.up.path", "unknown") is None
    assert facts.value("moe.log_files") == []
    assert facts.value("moe.config_root") == ROOT
    assert facts.value("moe.local_experts") == 128
    assert facts.value("moe.local_intermediate_size") == 192
    assert facts.value("moe.dtype") == "fp8_w8a8"
    assert facts.value("moe.block_shape") == [128, 128]
    assert facts.value("moe.config_matters") is True


def test_from_0_5_16_on_the_missing_down_file_has_the_up_file_s_words() -> None:
    facts = logs.read(stamped(default(MAIN), default(f"{MAIN}_down")))
    assert facts.value("moe.up.expected_file") == f"{MAIN}.json"
    assert facts.value("moe.down.expected_file") == f"{MAIN}_down.json"
    assert facts.value("moe.down.source") == "default"
    reused = f"Down MoE config file not found at {ROOT}/triton_3_8_0/{MAIN}_down.json; reusing the tuned up-projection config without TMA. Performance might be sub-optimal."
    facts = logs.read(stamped(exact(MAIN), reused))
    assert (facts.value("moe.up.source"), facts.value("moe.down.source")) == ("exact", "up")


def test_of_several_shapes_the_first_on_the_default_is_spoken_of() -> None:
    facts = logs.read(stamped(exact(DRAFT), default(MAIN), default(f"{DRAFT}_down"), default(f"{MAIN}_down")))
    assert facts.value("moe.up.expected_file") == f"{MAIN}.json"
    assert facts.value("moe.down.expected_file") == f"{MAIN}_down.json"
    assert facts.value("moe.log_files") == [f"{MAIN}.json", f"{DRAFT}_down.json", f"{MAIN}_down.json"]


def test_a_triton_built_from_source_keeps_its_local_part() -> None:
    facts = logs.read(stamped(default(MAIN, "triton_3_6_0+git9844da95")))
    assert facts.value("triton.version") == "3.6.0+git9844da95"


def test_a_path_that_a_terminal_broke() -> None:
    """As in kvcache-ai/ktransformers 2008."""
    whole = stamped(default(MAIN), "The server is fired up and ready to roll!")
    at = whole.index("H200,dtype")
    facts = logs.read(whole[:at] + "\n" + whole[at:])
    up = facts.get("moe.up.expected_file")
    assert isinstance(up, Known)
    assert (up.value, up.provenance[0].place) == (f"{MAIN}.json", "server.log:1")
    assert facts.value("log.ready") is True


def test_a_path_that_ends_with_the_log() -> None:
    facts = logs.read(stamped(default(MAIN)[:150], "The server is fired up and ready to roll!"))
    assert not facts.known("moe.up.source")
    assert facts.value("log.ready") is True


def test_lookups_of_a_draft_model_tell_nothing_of_the_model_s_runner() -> None:
    banner = "server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE')"
    facts = logs.read(stamped(banner, default(DRAFT)))
    assert facts.value("moe.up.source") == "default"
    assert not facts.known("moe.runner")
    assert not facts.known("moe.config_matters")


def test_deterministic_inference() -> None:
    facts = logs.read(stamped("Deterministic inference is enabled, using default MoE kernel config."))
    assert facts.value("arg.enable_deterministic_inference") is True
    assert not facts.known("moe.up.source")


def test_block_wise_gemm_configs() -> None:
    text = "Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config file not found at /x/configs/N={n},K=1536,device_name=NVIDIA_L20,dtype=fp8_w8a8,block_shape=[128, 128].json"
    facts = logs.read(stamped(text.format(n=1), text.format(n=2), text.format(n=1)))
    assert facts.value("gemm.missing_files") == [
        "N=1,K=1536,device_name=NVIDIA_L20,dtype=fp8_w8a8,block_shape=[128, 128].json",
        "N=2,K=1536,device_name=NVIDIA_L20,dtype=fp8_w8a8,block_shape=[128, 128].json",
    ]


def test_of_workers_that_differ_the_smallest_cache_counts() -> None:
    text = "max_total_num_tokens={n}, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=33, context_len=256000, available_gpu_mem={n}.00 GB"
    facts = logs.read(stamped(*(text.format(n=n) for n in (30, 20, 20, 40))))
    tokens = facts.get("kv.tokens")
    assert isinstance(tokens, Known)
    assert (tokens.value, tokens.count, tokens.provenance[0].place) == (20, 2, "server.log:2")
    assert facts.value("memory.available_gb") == 20.0


def test_arguments_that_cannot_be_told() -> None:
    facts = logs.read(
        stamped(
            "server_args=ServerArgs(model_path='/m', tp_size='x', quantization=<Mode.A: 'a'>, extra={'api_key': 'k'})"
        )
    )
    wrong, opaque = facts.get("arg.tp_size"), facts.get("arg.quantization")
    assert isinstance(wrong, Unknown)
    assert wrong.reason.startswith("server.log:1: ")
    assert opaque == Unknown("server.log:1 prints an object")
    assert facts.value("arg.extra") == {"api_key": "<redacted>"}


def test_a_dict_banner() -> None:
    """From 0.5.19 on."""
    facts = logs.read(
        stamped("server_args={'model_path': '/m', 'tp_size': 8, 'api_key': 'k', 'admin_api_key': None}")
    )
    assert facts.value("arg.tp_size") == 8
    assert facts.value("arg.api_key") == "<redacted>"
    assert facts.value("log.release") == ">=0.5.19"


def test_a_banner_that_is_cut_off() -> None:
    facts = logs.read(
        stamped(
            "server_args={'model_path': '/m', 'tp_size': 8, 'api_k", "Load weight begin. avail mem=1.00 GB"
        )
    )
    assert facts.value("arg.tp_size") == 8
    assert not facts.known("sglang.version")
    assert "server.log:1: the end of the start-up banner is missing" in facts.notes


@pytest.mark.parametrize(
    ("text", "usage", "graph", "accepted"),
    [
        (  # 0.5.7
            "Decode batch, #running-req: 4, #token: 28419, token usage: 0.16, cuda graph: False, gen throughput (token/s): 1262.64, #queue-req: 2, ",
            0.16,
            1.0,
            None,
        ),
        (  # 0.5.18, sliding windows
            "Decode batch, #running-req: 4, #full token: 165376, full token usage: 0.02, #swa token: 768, swa token usage: 0.40, accept len: 5.30, accept rate: 0.86, cuda graph: True, gen throughput (token/s): 167.04, #queue-req: 2",
            0.4,
            0.0,
            5.3,
        ),
        (  # NPU, a state cache
            "Decode batch [123], #running-req: 4, #full token: 1, full token usage: 0.10, mamba num: 3, mamba usage: 0.90, npu graph: True, gen throughput (token/s): 12.00, #queue-req: 2",
            0.9,
            0.0,
            None,
        ),
    ],
)
def test_load(text: str, usage: float, graph: float, accepted: float | None) -> None:
    facts = logs.read(stamped(text, text))
    assert facts.value("log.token_usage") == usage
    assert facts.value("log.decode_without_graph") == graph
    assert facts.value("log.accept_length", "unknown") == accepted
    assert facts.value("log.running_requests") == 4.0
    assert facts.value("log.queued_requests") == 2.0
    assert facts.value("log.decode_batches") == 2


def test_load_of_an_hour_ago_is_not_the_load() -> None:
    text = "[2026-11-30 0{hour}:00:00] Decode batch, #running-req: {hour}, cuda graph: True, #queue-req: 0\n"
    facts = logs.read(text.format(hour=4) * 5 + text.format(hour=6) * 2)
    assert facts.value("log.decode_batches") == 2
    assert facts.value("log.running_requests") == 6.0


def test_an_engine_started_from_python_prints_its_banner_twice() -> None:
    facts = logs.read(stamped(*["server_args=ServerArgs(model_path='/m', tp_size=2)"] * 2))
    assert facts.value("log.starts") == 1


REQUEST = '[2026-11-30 05:49:31] INFO:     127.0.0.1:40460 - "POST /{} HTTP/1.1" {}\n'


@pytest.mark.parametrize(
    ("requests", "paused"),
    [
        (["generate"], None),
        (["pause_generation"], "pause_generation"),
        (["pause_generation", "continue_generation"], None),
        (
            ["pause_generation", "release_memory_occupation", "continue_generation"],
            "release_memory_occupation",
        ),
        (["root/pause_generation?x=1"], "pause_generation"),  # behind --fastapi-root-path
        ([], "unknown"),  # the log shows no requests
    ],
)
def test_what_stopped_the_scheduler(requests: list[str], paused: str | None) -> None:
    banner = stamped(
        "server_args=ServerArgs(model_path='/m', uvicorn_access_log_exclude_prefixes=['/health'])"
    )
    told = "".join(REQUEST.format(each, "200 OK") for each in requests)
    facts = logs.read(banner + told)
    assert facts.value("log.paused", "unknown") == paused
    assert facts.value("log.pauses") == sum("pause" in each or "release" in each for each in requests)
    again = banner.replace("05:12", "06:12")
    assert logs.read(banner + told + again).value("log.paused", "unknown") == "unknown"
    hidden = banner.replace("'/health'", "'/health', '/pause'")
    if paused is None:
        assert not logs.read(hidden + told).known("log.paused")


@pytest.mark.parametrize("hidden", ["/release", "/continue", "/resume_memory_occupation"])
def test_what_a_log_leaves_out_of_a_pause_leaves_it_open(hidden: str) -> None:
    banner = f"server_args=ServerArgs(model_path='/m', uvicorn_access_log_exclude_prefixes=['{hidden}'])"
    for request in ("generate", "pause_generation"):
        facts = logs.read(stamped(banner) + REQUEST.format(request, "200 OK"))
        assert not facts.known("log.paused")


def test_a_pause_that_was_refused_is_none() -> None:
    facts = logs.read(
        stamped("server_args={'model_path': '/m'}") + REQUEST.format("pause_generation", "401 Unauthorized")
    )
    assert facts.value("log.paused", "unknown") is None
