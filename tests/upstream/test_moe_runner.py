"""Which runner serves the experts: what is known is said, what is not known is not."""

from __future__ import annotations

import itertools

import pytest
from packaging.version import Version

from sgdoctor.upstream import moe_runner
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.moe_runner import Request
from sgdoctor.upstream.moe_shapes import Model


def model(architecture="Qwen3MoeForCausalLM", quantization=None, weights=None) -> Model:
    return Model(
        architecture=architecture,
        experts=128,
        per_token=8,
        width=768,
        quantization=quantization,
        weights=weights,
    )


def request(release="0.5.12", capability="9.0", **more) -> Request:
    return Request(release=Version(release), vendor="nvidia", capability=Version(capability), **more)


BF16 = model()
FP8 = model(quantization="fp8", weights="fp8_block")
RELEASES = ("0.5.7", "0.5.10", "0.5.12", "0.5.16", "0.5.20", "0.5.23")


@pytest.mark.parametrize(
    ("experts", "release", "capability"),
    [
        (model("Qwen3_5MoeForConditionalGeneration"), "0.5.10", "12.0"),  # the four RTX PRO 6000
        (BF16, "0.5.12", "9.0"),
        # Block FP8 on an H200: DeepGEMM, which the log shows compiling, serves the dense layers only.
        (FP8, "0.5.12", "9.0"),
        (model("DeepseekV3ForCausalLM", "fp8", "fp8_block"), "0.5.23", "12.0"),
        (model(quantization="compressed-tensors", weights="fp8_channel"), "0.5.12", "8.9"),
        (model(quantization="w8a8_int8", weights="int8_channel"), "0.5.12", "8.0"),
    ],
)
def test_triton_is_the_default(experts, release, capability):
    assert moe_runner.runner(experts, request(release, capability)) == "triton"


@pytest.mark.parametrize("release", RELEASES)
def test_deepep_brings_deepgemm_to_fp8_experts(release):
    assert moe_runner.runner(FP8, request(release, a2a="deepep")) == "deep_gemm"
    for case in (
        request(release, a2a="deepep", deep_gemm_off=True),
        request(release, "8.9", a2a="deepep"),
        request(release, a2a="flashinfer"),
    ):
        with pytest.raises(Open):
            moe_runner.runner(FP8, case)


def test_blackwell_takes_flashinfer_for_known_models():
    assert moe_runner.runner(FP8, request("0.5.7", "10.0")) == "flashinfer_trtllm"
    assert moe_runner.runner(BF16, request("0.5.8", "10.3")) == "flashinfer_trtllm"
    with pytest.raises(Open):
        moe_runner.runner(BF16, request("0.5.7", "10.0"))
    # what a running server says is not rewritten any more
    assert moe_runner.runner(BF16, request("0.5.12", "10.0", backend="auto", settled=True)) == "triton"


def test_unquantized_experts_of_models_without_a_rule_stay_with_triton_there():
    assert moe_runner.runner(model("MixtralForCausalLM"), request("0.5.23", "10.0")) == "triton"
    with pytest.raises(Open):
        moe_runner.runner(model("MixtralForCausalLM", "fp8", "fp8_block"), request("0.5.23", "10.0"))


def test_nemotron_h_leaves_triton_from_0_5_13_on():
    bf16 = model("NemotronHForCausalLM")
    assert moe_runner.runner(bf16, request("0.5.12")) == "triton"
    assert moe_runner.runner(bf16, request("0.5.13")) == "flashinfer_cutlass"
    assert moe_runner.runner(bf16, request("0.5.13", backend="triton")) == "triton"
    fp8 = model("NemotronHForCausalLM", "modelopt_fp8", "fp8_tensor")
    assert (
        moe_runner.runner(fp8, request("0.5.10", backend="triton")) == "flashinfer_cutlass"
    )  # whatever asked
    for undecided in (request("0.5.23", "10.0"), request("0.5.12", "10.0")):
        with pytest.raises(Open):
            moe_runner.runner(bf16, undecided)


def test_packed_integers_are_marlins():
    gptq = model(quantization="gptq", weights="int4_marlin")
    assert moe_runner.runner(gptq, request()) == "marlin"
    with pytest.raises(Open):
        moe_runner.runner(gptq, request(capability="7.5"))


def test_awq_falls_back_to_triton_where_marlin_has_no_kernel():
    awq = model(quantization="awq", weights="int4_awq")
    assert moe_runner.runner(awq, request(width=256, hidden=2048, group=128)) == "marlin"
    assert moe_runner.runner(awq, request(width=192, hidden=2048, group=128)) == "triton"
    with pytest.raises(Open):
        moe_runner.runner(awq, request(width=192))


def test_an_explicit_backend_is_taken_where_the_method_has_it():
    assert moe_runner.runner(BF16, request(backend="triton_kernel")) == "triton_kernel"
    assert moe_runner.runner(BF16, request("0.5.12", backend="deep_gemm")) == "deep_gemm"
    assert moe_runner.runner(FP8, request("0.5.20", backend="flashinfer_cutlass")) == "triton"
    with pytest.raises(Open):
        moe_runner.runner(FP8, request("0.5.12", backend="flashinfer_cutlass"))
    with pytest.raises(Open):
        moe_runner.runner(BF16, request("0.5.11", backend="deep_gemm"))


def test_triton_is_never_said_of_what_was_not_verified():
    for experts, case in itertools.chain(
        ((model(name), request()) for name in ("GptOssForCausalLM", "SomeMoeForCausalLM")),
        ((model(quantization=name, weights=name), request()) for name in ("mxfp4", "modelopt_fp4", "mixed")),
        [
            (BF16, Request(release=Version("0.5.12"), vendor="amd", capability=None)),
            (BF16, Request(release=Version("0.5.12"), vendor="", capability=None)),
            (BF16, request(a2a="deepep")),
            (model("MiMoV2FlashForCausalLM", "fp8", "fp8_block"), request()),
        ],
    ):
        with pytest.raises(Open):
            moe_runner.runner(experts, case)
