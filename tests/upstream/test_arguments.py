"""What is in effect, predicted from what was asked; each boundary was read in the releases' own source."""

from __future__ import annotations

from typing import Any

import pytest

from sgdoctor.collect import launch
from sgdoctor.collect.launch_asked import interpret
from sgdoctor.facts import Facts, Known, Unknown
from sgdoctor.upstream import catalogue, piecewise
from sgdoctor.upstream.arguments import REWRITES, effective, exposure, listens_beyond
from tests.upstream.asked import facts_of

H200 = {"gpu.vendor": "nvidia", "gpu.compute_capability": "9.0", "gpu.name": "NVIDIA H200"}
LLAMA = {"model.architecture": "LlamaForCausalLM", "model.is_hybrid": False}
QWEN = {"model.architecture": "Qwen3MoeForCausalLM", "model.is_hybrid": False}


def arg(dest: str, flags: str, version: str | None = "0.5.12", **more: Any) -> Any:
    fact = facts_of(flags, version, **more).get(f"arg.{dest}")
    assert isinstance(fact, Known), fact
    return fact.value


def why_unknown(dest: str, flags: str, version: str | None = "0.5.12", **more: Any) -> str:
    fact = facts_of(flags, version, **more).get(f"arg.{dest}")
    assert isinstance(fact, Unknown), fact
    return fact.reason


# --- flags that are never rewritten ---------------------------------------------------------------------


def test_a_flag_keeps_what_was_written_or_its_default():
    facts = facts_of("--port 1 --api-key k")
    assert facts.value("arg.port") == 1
    assert facts.value("arg.host") == "127.0.0.1"
    assert facts.value("arg.api_key") == "<redacted>"
    assert facts.value("arg.trust_remote_code") is False
    assert facts.roots("arg.host")["asked.host"].provenance[0].place == "launch.sh:1"


def test_what_a_server_says_is_not_replaced():
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="server_info", place="/server_info")
    facts.set("arg.ep_size", 8, source="server_info", place="/server_info")
    (command,) = launch.parse_script("sglang serve --model-path m --ep 2", "launch.sh")
    interpret(facts, command)
    effective(facts)
    assert facts.value("arg.ep_size") == 8


def test_without_anything_asked_nothing_is_predicted():
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="packages", place="metadata")
    effective(facts)
    assert not facts.known("arg.port")


def test_an_unknown_word_leaves_its_flag_and_what_follows_from_it_open():
    facts = facts_of("--tp $TP --ep 2 --moe-a2a-backend deepep")
    assert isinstance(facts.get("arg.tp_size"), Unknown)
    assert isinstance(facts.get("arg.ep_size"), Unknown)
    assert facts.value("arg.moe_a2a_backend") == "deepep"


def test_a_setting_that_the_release_does_not_have():
    assert arg("flashinfer_allreduce_fusion_backend", "", "0.5.13") is None
    assert why_unknown("attn_dp_size", "", "0.5.21") == "SGLang 0.5.21 has no such setting"


def test_a_flag_that_is_rewritten_in_ways_not_followed_is_unknown():
    assert why_unknown("page_size", "--page-size 64") == "SGLang may rewrite it at start"


def test_without_a_release_only_what_all_agree_on():
    facts = facts_of("--tp 4", version=None)
    assert facts.value("arg.tp_size") == 4
    assert facts.value("arg.host") == "127.0.0.1"
    fact = facts.get("arg.enable_fused_moe_sum_all_reduce")
    assert isinstance(fact, Unknown)
    assert fact.missing == ("sglang.version",)


def test_every_followed_flag_exists():
    known = {dest for version in catalogue.releases() for dest in REWRITES if has(version, dest)}
    assert known == set(REWRITES)


def has(version: str, dest: str) -> bool:
    release = catalogue.resolve(version)
    return release is not None and release.has(dest)


@pytest.mark.parametrize("version", catalogue.releases())
def test_no_release_breaks_a_prediction(version: str):
    for flags in ("", "--tp 8 --dp 2 --enable-dp-attention", "--speculative-algorithm EAGLE", "$X"):
        facts = facts_of(flags, version, **H200, **QWEN)
        undecided = [name for name, fact in facts.items() if isinstance(fact, Unknown) and not fact.reason]
        assert undecided == []


# --- parallelism ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [
        ("0.5.21", "--dp 2 --enable-dp-attention", (2, None, True)),
        ("0.5.22", "--dp 2 --enable-dp-attention", (1, 2, True)),
        ("0.5.23", "--dp 2 --attn-dp-size 4 --enable-dp-attention", (2, 4, True)),
        ("0.5.23", "--dp 2", (2, 1, False)),
        ("0.5.12", "--enable-dp-attention", (1, None, False)),
        ("0.5.7", "--enable-dp-attention", (1, None, False)),
        ("0.5.22", "--enable-dp-attention", (1, 1, False)),
    ],
)
def test_dp_attention(version: str, flags: str, expected: tuple[int, int | None, bool]):
    facts = facts_of(flags, version, **LLAMA)
    assert (
        facts.value("arg.dp_size"),
        facts.value("arg.attn_dp_size"),
        facts.value("arg.enable_dp_attention"),
    ) == expected


def test_dp_attention_of_deepseek_in_0_5_7_is_not_certain():
    deepseek = {"model.architecture": "DeepseekV3ForCausalLM"}
    assert (
        why_unknown("enable_dp_attention", "--dp 2", "0.5.7", **deepseek)
        == "sparse attention may switch it on"
    )
    assert arg("enable_dp_attention", "--dp 2", "0.5.8", **deepseek) is False


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [
        ("0.5.9", "--tp 8 --ep 2", ("none", 2)),
        ("0.5.9", "--tp 8 --ep 2 --moe-a2a-backend deepep", ("deepep", 8)),
        ("0.5.9", "--tp 8 --moe-a2a-backend flashinfer", ("flashinfer", 8)),
        ("0.5.17", "--tp 8 --moe-a2a-backend pplx", ("pplx", 8)),
        ("0.5.16", "--tp 8 --ep 4 --moe-a2a-backend ascend_tp", ("none", 4)),
        ("0.5.15", "--tp 8 --enable-deepep-waterfill", ("deepep", 8)),
        ("0.5.16", "--tp 8 --enable-waterfill --moe-a2a-backend megamoe", ("megamoe", 8)),
        ("0.5.18", "--tp 8 --moe-runner-backend megamoe", ("megamoe", 8)),
    ],
)
def test_all_to_all_backends_span_the_tensor_parallel_group(
    version: str, flags: str, expected: tuple[str, int]
):
    facts = facts_of(flags, version, **QWEN)
    assert (facts.value("arg.moe_a2a_backend"), facts.value("arg.ep_size")) == expected


def test_an_environment_variable_that_forces_megamoe():
    forced = {"env.SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE": "1"}
    assert arg("ep_size", "--tp 8", "0.5.17", **forced) == 8
    assert arg("ep_size", "--tp 8", "0.5.18", **forced) == 1
    assert arg("ep_size", "--tp 8", "0.5.11", **forced) == 1


def test_what_hides_behind_other_flags():
    assert "--dwdp-size may change it" in why_unknown("dp_size", "--tp 4 --dwdp-size 4", "0.5.17")
    assert arg("moe_dp_size", "--tp 4 --dwdp-size 4", "0.5.17") == 1
    assert "may change it" in why_unknown("ep_size", "--enable-prefill-cp", "0.5.16")
    assert arg("pp_size", "--pp-size 2 --dllm-algorithm x", "0.5.15") == 1
    assert arg("disaggregation_mode", "--disaggregation-mode decode") == "decode"


# --- FlashInfer all-reduce fusion -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "flags", "more", "expected"),
    [
        # switched on by itself: silently in 0.5.9, at any TP; from 0.5.10 on only above TP 1
        ("0.5.9", "", {}, True),
        ("0.5.10", "", {}, False),
        ("0.5.10", "--tp 2", {}, True),
        ("0.5.10", "--tp 2", {"gpu.compute_capability": "12.0"}, False),
        ("0.5.7", "", {"gpu.compute_capability": "12.0"}, True),
        ("0.5.8", "", {"gpu.compute_capability": "12.0"}, False),
        ("0.5.10", "--tp 2", {"model.architecture": "Qwen3NextForCausalLM"}, False),
        ("0.5.11", "--tp 2", {"model.architecture": "Qwen3NextForCausalLM"}, True),
        ("0.5.12", "--tp 2", {"gpu.name": "NVIDIA H20"}, False),
        ("0.5.13", "--tp 2", {"gpu.name": "NVIDIA H20"}, True),
        ("0.5.12", "--tp 2 --dp 2 --enable-dp-attention", {}, False),
        ("0.5.12", "--tp 2 --moe-a2a-backend deepep", {}, False),
        # asked for
        ("0.5.12", "--enable-flashinfer-allreduce-fusion", {"gpu.compute_capability": "12.0"}, True),
        ("0.5.12", "--tp 2 --enforce-disable-flashinfer-allreduce-fusion", {}, False),
        ("0.5.12", "--tp 2 --enable-deterministic-inference --enable-flashinfer-allreduce-fusion", {}, False),
        ("0.5.11", "--tp 2 --enable-deterministic-inference --enable-flashinfer-allreduce-fusion", {}, True),
        ("0.5.14", "--tp 2 --enable-flashinfer-allreduce-fusion", {}, False),
    ],
)
def test_fusion_up_to_0_5_13(version: str, flags: str, more: dict[str, Any], expected: bool):  # noqa: FBT001
    assert arg("enable_flashinfer_allreduce_fusion", flags, version, **{**H200, **QWEN, **more}) is expected


def test_fusion_that_was_not_asked_for_is_not_taken_for_off():
    assert "model.architecture" in why_unknown(
        "enable_flashinfer_allreduce_fusion", "--tp 2", "0.5.9", **H200
    )


@pytest.mark.parametrize(
    ("version", "flags", "more", "expected"),
    [
        ("0.5.14", "--tp 2", {}, "auto"),
        ("0.5.14", "--enable-flashinfer-allreduce-fusion", {}, "auto"),
        ("0.5.14", "--flashinfer-allreduce-fusion-backend mnnvl", {}, "mnnvl"),
        ("0.5.14", "", {}, None),
        ("0.5.20", "--tp 2", {"gpu.compute_capability": "12.0"}, None),
        ("0.5.20", "--tp 2 --enable-deterministic-inference --enable-flashinfer-allreduce-fusion", {}, None),
    ],
)
def test_fusion_from_0_5_14_on(version: str, flags: str, more: dict[str, Any], expected: str | None):
    assert arg("flashinfer_allreduce_fusion_backend", flags, version, **{**H200, **QWEN, **more}) == expected


# --- features -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [
        ("0.5.12", "", False),
        ("0.5.12", "--enable-mixed-chunk", True),
        ("0.5.18", "--enable-mixed-chunk --speculative-algorithm EAGLE", False),
        ("0.5.18", "--enable-mixed-chunk --speculative-algorithm ngram", False),
    ],
)
def test_mixed_chunks(version: str, flags: str, expected: bool):  # noqa: FBT001
    assert arg("enable_mixed_chunk", flags, version, **LLAMA) is expected


def test_mixed_chunks_with_speculative_decoding_from_0_5_19_on_are_not_certain():
    flags = "--enable-mixed-chunk --speculative-algorithm EAGLE"
    assert (
        why_unknown("enable_mixed_chunk", flags, "0.5.19", **LLAMA)
        == "speculative decoding may switch it off"
    )


def test_the_radix_cache_is_on_for_ordinary_models():
    assert arg("disable_radix_cache", "", **LLAMA) is False
    assert arg("disable_radix_cache", "--disable-radix-cache") is True
    assert "hybrid" in why_unknown("disable_radix_cache", "", **{**LLAMA, "model.is_hybrid": True})
    assert "dual chunk" in why_unknown("disable_radix_cache", "", **QWEN)
    assert arg("disable_radix_cache", "--attention-backend fa3", **QWEN) is False
    assert arg("disable_radix_cache", "", "0.5.20", **QWEN) is False
    assert "decode" in why_unknown("disable_radix_cache", "--disaggregation-mode decode", **LLAMA)
    assert "deterministic" in why_unknown("disable_radix_cache", "--enable-deterministic-inference", **LLAMA)
    assert "--enable-mis" in why_unknown("disable_radix_cache", "--enable-mis", **LLAMA)


def test_the_overlap_schedule():
    assert arg("disable_overlap_schedule", "", **H200, **LLAMA) is False
    assert arg("disable_overlap_schedule", "--pp-size 2") is True
    assert "speculative" in why_unknown("disable_overlap_schedule", "--speculative-algorithm EAGLE")


def test_deterministic_inference_and_what_follows():
    flags = "--tp 2 --enable-deterministic-inference"
    assert arg("disable_custom_all_reduce", flags, **H200) is True
    assert arg("disable_custom_all_reduce", "--tp 2", **H200) is False
    assert arg("enable_deterministic_inference", "--rl-on-policy-target fsdp") is True


def test_cuda_graphs_and_lora():
    assert arg("disable_cuda_graph", "", **H200, **LLAMA) is False
    assert arg("disable_cuda_graph", "--attention-backend torch_native", "0.5.13", **H200) is True
    assert arg("enable_lora", "--lora-paths a=b") is True
    assert arg("enable_lora", "") is None


def test_gemm_backends():
    longcat = {"model.architecture": "LongcatFlashForCausalLM"}
    assert arg("fp8_gemm_runner_backend", "") == "auto"
    assert arg("fp8_gemm_runner_backend", "", "0.5.16", **QWEN) == "auto"
    assert arg("fp8_gemm_runner_backend", "--fp8-gemm-backend triton", "0.5.16") == "triton"
    assert "GEMM" in why_unknown("fp8_gemm_runner_backend", "", "0.5.16", **longcat)


def test_the_predictions_lead_to_what_switches_piecewise_graphs_off():
    facts = facts_of("--tp 2 --dp 2 --enable-dp-attention", "0.5.12", **H200, **LLAMA)
    piecewise.derive(facts)
    assert facts.value("graph.piecewise_off_by") == ["--enable-dp-attention"]
    facts = facts_of("--tp 2", "0.5.12", **H200, **LLAMA)
    piecewise.derive(facts)
    assert facts.value("graph.piecewise_off_by") == []


# --- model, memory, attention ---------------------------------------------------------------------------


def test_running_requests_as_asked():
    assert arg("max_running_requests", "--max-running-requests 64") == 64
    assert arg("max_running_requests", "", "0.5.11") is None
    assert arg("max_running_requests", "", **{"model.architecture": "DeepseekV4ForCausalLM"}) == 256
    assert "speculative" in why_unknown("max_running_requests", "--speculative-algorithm EAGLE")


def test_memory():
    assert arg("mem_fraction_static", "--mem-fraction-static 0.8", **H200) == 0.8
    assert why_unknown("mem_fraction_static", "", **H200) == "SGLang computes it from the GPU's memory"
    assert arg("chunked_prefill_size", "--chunked-prefill-size 4096", **LLAMA) == 4096
    flags = "--chunked-prefill-size 4096 --dp 2 --enable-dp-attention"
    assert why_unknown("chunked_prefill_size", flags, **LLAMA) == "DP attention divides it"
    assert arg("schedule_conservativeness", "--dp 2 --enable-dp-attention", **LLAMA) == 0.3


def test_attention_backends():
    assert arg("attention_backend", "--attention-backend triton", **H200, **QWEN) == "triton"
    assert why_unknown("attention_backend", "", **H200, **QWEN).startswith("SGLang chooses")
    flags = "--attention-backend fa3 --kv-cache-dtype fp8_e5m2"
    assert arg("attention_backend", flags, **H200, **QWEN) == "triton"
    flags = "--attention-backend triton --decode-attention-backend fa3"
    assert "--decode-attention-backend" in why_unknown("attention_backend", flags, **H200, **QWEN)
    assert arg("decode_attention_backend", "", **H200, **LLAMA) is None
    deepseek = {"model.architecture": "DeepseekV4ForCausalLM"}
    assert "own" in why_unknown("attention_backend", "--attention-backend triton", **H200, **deepseek)


def test_names_types_and_formats():
    facts = facts_of("--load-format dummy --dtype half --kv-cache-dtype fp8_e4m3", **H200, **LLAMA)
    assert facts.value("arg.served_model_name") == "/m/q"
    assert facts.value("model.name") == "q"
    assert facts.value("arg.load_format") == "dummy"
    assert facts.value("arg.dtype") == "half"
    assert facts.value("arg.kv_cache_dtype") == "fp8_e4m3"
    assert facts_of("--served-model-name x").value("model.name") == "x"
    assert arg("tokenizer_worker_num", "--tokenizer-worker-num 4 --skip-tokenizer-init", "0.5.15") == 1
    assert arg("tokenizer_worker_num", "--tokenizer-worker-num 4 --skip-tokenizer-init", "0.5.16") == 4
    assert arg("speculative_algorithm", "--speculative-algorithm NEXTN", "0.5.11") == "EAGLE"


# --- exposure -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "beyond"),
    [
        ("127.0.0.1", False),
        ("127.8.8.8", False),
        ("localhost", False),
        ("::1", False),
        ("[::1]", False),
        ("0.0.0.0", True),
        ("::", True),
        ("10.0.0.7", True),
        ("fe80::1%eth0", True),
        ("gpu-node-3", None),
        ("", True),
        ("*", True),
    ],
)
def test_addresses_that_others_reach(host: str, beyond: bool | None):  # noqa: FBT001
    assert listens_beyond(host) is beyond


def exposed(host: str | None, told: str | None = None) -> Known | Unknown:
    """Tell what follows for a server on ``host``, when a launch file left open, for a reason, who does."""
    facts = Facts()
    if host is not None:
        facts.set("arg.host", host, source="log", place="server.log:3")
    if told is not None:
        facts.set_unknown("server.exposed", told)
    exposure(facts)
    return facts.get("server.exposed")


def test_exposure_follows_the_host():
    assert exposed("127.0.0.1") == Known(False, (), ("arg.host",))
    assert exposed("::ffff:127.0.0.1") == Known(False, (), ("arg.host",))
    assert exposed("0.0.0.0") == Known(True, (), ("arg.host",))
    assert exposed("gpu-node-3") == Unknown("what gpu-node-3 resolves to there is not known", ("arg.host",))
    assert exposed(None) == Unknown("the address it listens on is not known", ("arg.host",))


def test_where_a_launch_file_leaves_exposure_open_only_loopback_is_certain():
    why = "Dockerfile:9: docker run decides"
    assert exposed("0.0.0.0", why) == Unknown(why)
    assert exposed(None, why) == Unknown(why)
    assert exposed("127.0.0.1", why) == Known(False, (), ("arg.host",))


def test_a_container_s_fence_goes_before_the_host():
    facts = Facts()
    facts.set("server.exposed", False, source="launch", place="compose.yml:9")
    facts.set("arg.host", "0.0.0.0", source="log", place="server.log:3")
    exposure(facts)
    assert facts.value("server.exposed") is False
