"""What the catalogue answers, held to what is known of real releases and to what real servers said."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Interval
from sgdoctor.upstream.flags import Parser

CAPTURES = Path(__file__).parents[1] / "captures"  # captured from SGLang 0.5.12 on an H200


@pytest.mark.parametrize(
    ("version", "release", "exact"),
    [
        ("0.5.12", "0.5.12", True),
        ("0.5.12.post1", "0.5.12.post1", True),
        ("0.5.12+cu130", "0.5.12", False),  # a build of that release
        ("0.5.13.post2", "0.5.13.post1", False),
        ("0.5.14.dev3", "0.5.13.post1", False),  # on the way to 0.5.14
        ("0.5.14.dev3+g1234567", "0.5.13.post1", False),
        ("0.5.14rc1", "0.5.13.post1", False),
        ("0.6.0", "0.5.23", False),
    ],
)
def test_an_unknown_build_goes_by_the_newest_release_not_after_it(version, release, exact):
    found = catalogue.resolve(version)
    assert (found.version, found.exact, found.asked) == (release, exact, version)


@pytest.mark.parametrize("version", ["0.5.6", "0.0.0.dev1+g1234567", "0.5.7.dev9", "unknown", ""])
def test_what_the_catalogue_cannot_know_is_none(version):
    assert catalogue.resolve(version) is None


def test_the_releases_are_in_the_order_of_their_versions():
    versions = catalogue.releases()
    assert versions[0] == "0.5.7"
    assert versions.index("0.5.10") < versions.index("0.5.10.post1") < versions.index("0.5.11")
    assert len(versions) == len(set(versions)) == 22


def test_a_flag_is_found_by_its_field_and_by_any_of_its_spellings():
    release = catalogue.resolve("0.5.12")
    flag = release.flag("tp_size")
    assert flag.options == ("--tensor-parallel-size", "--tp-size")
    assert (flag.type, flag.default) == ("int", 1)
    assert release.option("--tp-size") is flag
    assert release.option("--tp") is None  # argparse takes it, as an abbreviation
    assert release.flag("no_such_thing") is None


def test_a_flag_that_works_goes_before_its_deprecated_twin():
    release = catalogue.resolve("0.5.14")
    assert release.flag("cuda_graph_backend_prefill").option == "--cuda-graph-backend-prefill"
    retired = release.option("--disable-piecewise-cuda-graph")
    assert (retired.dest, retired.effect, retired.const) == (
        "cuda_graph_backend_prefill",
        "const",
        "disabled",
    )


def test_defaults_are_those_before_anything_is_resolved():
    assert catalogue.resolve("0.5.9").default("hicache_storage_prefetch_policy") == "best_effort"
    assert catalogue.resolve("0.5.12").default("hicache_storage_prefetch_policy") == "timeout"
    assert catalogue.resolve("0.5.23").default("disable_cuda_graph") is False  # a flag again, not a field's
    assert catalogue.resolve("0.5.23").default("stat_loggers") is None  # a field without a flag
    with pytest.raises(KeyError):
        catalogue.resolve("0.5.23").default("cuda_graph_max_bs")


def test_a_null_that_nothing_resolves_has_a_fallback():
    release = catalogue.resolve("0.5.23")
    assert release.default("swa_full_tokens_ratio") is None
    assert release.fallback("swa_full_tokens_ratio") == 0.8
    assert release.fallback("port") is None


def test_has_tells_fields_and_flags():
    assert catalogue.resolve("0.5.13").has("cuda_graph_max_bs")
    assert not catalogue.resolve("0.5.14").has("cuda_graph_max_bs")
    assert catalogue.resolve("0.5.23").has("stat_loggers")


@pytest.mark.parametrize(
    ("option", "runs"),
    [
        ("--model-path", [("0.5.7", None)]),
        ("--stream-output", [("0.5.7", "0.5.20")]),
        ("--no-enable-prefill-delayer", []),
        ("--enable-flashinfer-allreduce-fusion", [("0.5.7", None)]),
        ("--no-record-nolora-graph", [("0.5.11", "0.5.13")]),
        ("--never-existed", []),
    ],
)
def test_the_history_of_an_option(option, runs):
    expected = [Interval(since=since, before=before) for since, before in runs]
    assert catalogue.flag_history(option) == expected


def test_the_history_does_not_break_where_only_a_default_changed():
    defaults = {catalogue.resolve(v).default("hicache_storage_prefetch_policy") for v in catalogue.releases()}
    assert len(defaults) == 2
    assert catalogue.flag_history("--hicache-storage-prefetch-policy") == [Interval(since="0.5.7")]


@pytest.mark.parametrize(
    ("version", "torch", "triton", "kernel", "minimum"),
    [
        ("0.5.9", "2.9.1", "3.5.1", ("sgl-kernel", "0.3.21"), "0.3.21"),
        ("0.5.10", "2.9.1", "3.5.1", ("sglang-kernel", "0.4.1"), "0.4.1"),
        ("0.5.17", "2.11.0", "3.6.0", ("sglang-kernel", "0.4.5"), "0.4.5"),
        ("0.5.18", "2.13.0", "3.7.1", ("sglang-kernel", "0.4.6.post1"), "0.4.6.post1"),
        ("0.5.23", "2.14.1", "3.8.0", ("sglang-kernel", "0.4.10"), "0.4.9"),
    ],
)
def test_pins(version, torch, triton, kernel, minimum):
    release = catalogue.resolve(version)
    assert (release.torch_pin, release.triton_pin) == (torch, triton)
    assert (release.kernel_package, release.kernel_pin) == kernel
    assert release.kernel_minimum == minimum
    assert release.pins["torch"] == torch


def test_requirements_are_told_apart_by_extra_and_machine():
    release = catalogue.resolve("0.5.17")
    by_name = {(r.name, r.extra): r for r in release.requirements}
    assert by_name["av", None].machines == ("aarch64",)
    assert by_name["av", "diffusion"].specifier == "==16.1.0"
    assert "av" not in release.pins
    assert "torchcodec" in release.pins


def test_flashinfer_is_asserted_only_when_it_is_the_attention_backend():
    (flashinfer, kernel) = catalogue.resolve("0.5.12").assertions
    assert "attention_backend == 'flashinfer'" in flashinfer.condition
    assert "_is_cuda" in kernel.condition
    assert catalogue.resolve("0.5.12").flashinfer_minimum == "0.6.11.post1"


def test_config_folders_and_files():
    old, new = catalogue.resolve("0.5.10"), catalogue.resolve("0.5.11")
    assert old.moe_folder == "srt/layers/moe/fused_moe_triton/configs"
    assert new.moe_folder == "srt/layers/moe/moe_runner/triton_utils/configs"
    assert "triton_3_6_0" not in old.moe_listing
    assert len(new.moe_listing["triton_3_6_0"]) == 8  # all of them for AMD
    assert "E=8,N=14336,device_name=NVIDIA_H200.json" in old.moe_listing["triton_3_1_0"]
    assert catalogue.resolve("0.5.16").gemm_folder == "kernels/ops/quantization/configs"
    name = "N=1280,K=5120,device_name=NVIDIA_B200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    assert name in new.gemm_listing
    assert old.lora_listing == {}
    assert {folder: len(names) for folder, names in new.lora_listing.items()} == {"triton_3_5_1": 7}


def test_how_serve_finds_the_model():
    assert catalogue.resolve("0.5.10").serve.model_options == ("--model-path",)
    assert not catalogue.resolve("0.5.15.post1").serve.positional
    assert catalogue.resolve("0.5.16").serve.positional


def banner(log: Path) -> list[str]:
    """Return the names in the ``server_args=ServerArgs(...)`` line of a log."""
    found = re.search(r"server_args=(ServerArgs\(.*\))$", log.read_text(errors="replace"), re.MULTILINE)
    call = ast.parse(found.group(1), mode="eval").body
    return [keyword.arg for keyword in call.keywords]


def test_the_release_is_inferred_from_a_real_banner():
    names = banner(CAPTURES / "moe-no-config" / "server.log")
    assert names == catalogue.resolve("0.5.12").banner_fields
    assert catalogue.infer_release(names) == ["0.5.12", "0.5.12.post1"]
    assert catalogue.infer_release(names[1:]) == []


def test_releases_with_other_fields_are_told_apart():
    fields = {version: catalogue.resolve(version).banner_fields for version in catalogue.releases()}
    told = {version: catalogue.infer_release(names) for version, names in fields.items()}
    assert all(version in found for version, found in told.items())
    assert all(len(found) <= 2 for found in told.values())  # a release and its post release


@pytest.mark.parametrize(
    "name", ["allreduce-fusion-tp1", "kv-pool-full", "moe-fallback-config", "moe-no-config"]
)
def test_a_real_server_has_what_was_asked_or_the_default_unless_the_field_is_rewritten(name):
    said = json.loads((CAPTURES / name / "server_info.json").read_text())
    release = catalogue.resolve(said["version"])
    argv = shlex.split((CAPTURES / name / "command.txt").read_text())
    given = Parser(release.flags).parse(argv[argv.index("sglang.launch_server") + 1 :]).given
    asked = {
        field: given[field].value if field in given else release.default(field)
        for field in release.banner_fields
    }
    for answer in (said, *said["internal_states"]):
        changed = {field for field, value in asked.items() if field in answer and answer[field] != value}
        assert changed <= release.rewritten
    assert {"page_size", "random_seed", "served_model_name"} <= release.rewritten


def test_what_nothing_writes_is_not_rewritten():
    for version in catalogue.releases():
        assert catalogue.resolve(version).rewritten.isdisjoint(
            {"host", "port", "api_key", "tp_size", "nnodes"}
        )
