"""Which checks the environment of a server switches off."""

from __future__ import annotations

import pytest

from sgdoctor.facts import Facts
from sgdoctor.upstream import switches


def switched(release=None, **variables):
    facts = Facts()
    if release is not None:
        facts.set("sglang.version", release, source="packages", place="metadata")
    for name, value in variables.items():
        facts.set(f"env.{name}", value, source="launch", place="launch.sh:3")
    switches.derive(facts)
    switches.gone(facts)
    return facts


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_the_kernel_check_is_off_for_what_sglang_takes_for_true(value):
    assert switched(SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=value).value("kernel.check_off") is True


@pytest.mark.parametrize("value", ["0", "false", "yes", "", None])
def test_the_kernel_check_is_on_for_everything_else(value):
    assert switched(SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=value).value("kernel.check_off") is False


def test_flashinfer_takes_any_value_for_true_even_0():
    assert switched(FLASHINFER_DISABLE_VERSION_CHECK="0").value("flashinfer.check_off") is True
    assert switched(FLASHINFER_DISABLE_VERSION_CHECK="").value("flashinfer.check_off") is False


def test_peers_are_restricted_by_a_list_of_addresses():
    assert switched(SGLANG_ZMQ_ALLOWED_PEERS="10.0.0.1,10.0.0.2").value("network.peers_restricted") is True


@pytest.mark.parametrize(("value", "kept"), [("1", True), ("Yes", True), ("0", False), (None, False)])
def test_aiter_leaves_a_memory_fraction_that_was_asked_for_where_it_is_told_to(value, kept):
    facts = switched(SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION=value)
    assert facts.value("memory.aiter_keeps_fraction") is kept


def test_without_any_word_of_them_all_checks_are_on():
    facts = switched()
    for name in ("kernel.check_off", "cudnn.check_off", "flashinfer.check_off", "network.peers_restricted"):
        assert facts.value(name) is False
    assert facts.value("memory.aiter_keeps_fraction") is False


def test_a_switch_rests_on_the_place_where_its_variable_was_read():
    facts = switched(SGLANG_DISABLE_CUDNN_CHECK="1")
    (root,) = facts.roots("cudnn.check_off").values()
    assert root.provenance[0].place == "launch.sh:3"


def test_a_variable_names_the_kernel_of_fp8_and_of_nvfp4_layers():
    facts = switched(SGLANG_SUPPORT_CUTLASS_BLOCK_FP8="y", SGLANG_FLASHINFER_FP4_GEMM_BACKEND="cudnn")
    assert facts.value("fp8_gemm.cutlass_by_variable") is True
    assert facts.value("fp4_gemm.backend_by_variable") is True


@pytest.mark.parametrize(
    ("release", "variable", "gone"),
    [
        ("0.5.9", "SGLANG_SUPPORT_CUTLASS_BLOCK_FP8", False),
        ("0.5.10", "SGLANG_SUPPORT_CUTLASS_BLOCK_FP8", True),
        ("0.5.10.dev3", "SGLANG_ENABLE_FLASHINFER_GEMM", True),
        ("0.5.17", "SGLANG_CUTLASS_MOE", False),
        ("0.5.18", "SGLANG_CUTLASS_MOE", True),
    ],
)
def test_a_release_stops_reading_a_variable(release, variable, gone):
    facts = switched(release, **{variable: "1"})
    assert facts.value("variables.gone") == ([variable] if gone else [])


@pytest.mark.parametrize("value", [None, "", "0", "False", "no"])
def test_a_variable_that_is_not_set_or_off_is_not_missed(value):
    assert switched("0.5.23", SGLANG_CUTLASS_MOE=value).value("variables.gone") == []


@pytest.mark.parametrize(
    ("variable", "flag", "named", "gone"),
    [
        ("SGLANG_SUPPORT_CUTLASS_BLOCK_FP8", "fp8_gemm_runner_backend", "cutlass", False),
        ("SGLANG_SUPPORT_CUTLASS_BLOCK_FP8", "fp8_gemm_runner_backend", "auto", True),
        ("SGLANG_SUPPORT_CUTLASS_BLOCK_FP8", "fp8_gemm_runner_backend", None, True),
        ("SGLANG_FLASHINFER_FP4_GEMM_BACKEND", "fp4_gemm_runner_backend", "flashinfer_cudnn", False),
        ("SGLANG_CUTLASS_MOE", "moe_runner_backend", "cutlass", False),
        ("SGLANG_CUTLASS_MOE", "moe_runner_backend", "flashinfer_cutlass", True),
    ],
)
def test_a_variable_is_not_missed_where_its_flag_names_the_kernel(variable, flag, named, gone):
    facts = Facts()
    facts.set("sglang.version", "0.5.23", source="packages", place="metadata")
    facts.set(f"env.{variable}", "1", source="launch", place="launch.sh:3")
    facts.set(f"asked.{flag}", named, source="launch", place="launch.sh:4")
    switches.gone(facts)
    assert facts.value("variables.gone") == ([variable] if gone else [])


@pytest.mark.parametrize(("quantization", "gone"), [(None, False), ("fp8", True)])
def test_a_model_in_16_bits_has_no_use_for_these_variables(quantization, gone):
    facts = Facts()
    facts.set("sglang.version", "0.5.23", source="packages", place="metadata")
    facts.set("env.SGLANG_CUTLASS_MOE", "1", source="launch", place="launch.sh:3")
    facts.set("model.quantization", quantization, source="model", place="config.json")
    switches.gone(facts)
    assert facts.value("variables.gone") == (["SGLANG_CUTLASS_MOE"] if gone else [])


def test_which_variables_are_gone_depends_on_the_release():
    assert not switched(SGLANG_CUTLASS_MOE="1").known("variables.gone")
    assert not switched("main", SGLANG_CUTLASS_MOE="1").known("variables.gone")
