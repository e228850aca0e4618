"""The lookup of GEMM configs, held against SGLang's own functions, which answer in child processes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import catalogue, config_entries, config_table, gemm_config
from sgdoctor.upstream.gemm_config import CHANNELWISE, Weight
from tests.upstream.oracle import Oracle, ask_all, start
from tools.oracles import RELEASES

H200 = "NVIDIA H200"
BLOCK = Weight(rows=4096, depth=512, dtype="fp8_w8a8", block=(128, 128))


def test_a_file_name_is_spelled_as_sglang_spells_it():
    assert gemm_config.file_name(H200, BLOCK) == (
        "N=4096,K=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    )
    channel = Weight(rows=4096, depth=512, dtype=CHANNELWISE)
    assert gemm_config.file_name("NVIDIA L40S", channel) == (
        "N=4096,K=512,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json"
    )


@pytest.mark.parametrize("release", ["0.5.7", "0.5.23"])
def test_every_file_that_a_release_ships_is_a_weight(release):
    for file in catalogue.Release(release).gemm_listing:
        weight, device = gemm_config.weight_of(file)
        assert gemm_config.file_name(device, weight) == file


def test_there_is_no_folder_that_stands_in():
    name = gemm_config.file_name(H200, BLOCK)
    found = gemm_config.look_up(Version("0.5.23"), H200, BLOCK, "/configs", {name})
    assert (found.source, found.path) == ("exact", f"/configs/{name}")
    assert gemm_config.look_up(Version("0.5.23"), H200, BLOCK, "/configs", set()).source == "default"
    assert gemm_config.look_up(Version("0.5.23"), H200, BLOCK, "/configs", None).source == "default"


def test_channel_wise_fp8_stays_with_cutlass_and_has_no_files_before_0_5_18():
    channel = Weight(rows=4096, depth=512, dtype=CHANNELWISE)
    assert gemm_config.look_up(Version("0.5.17"), "NVIDIA L40S", channel, "/configs", set()) is None
    assert (
        gemm_config.look_up(Version("0.5.18"), "NVIDIA L40S", channel, "/configs", set()).source == "cutlass"
    )


# --- SGLang's own functions -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(sglang_wheel) -> Iterator[dict[str, Oracle]]:
    oracles = start("real_gemm_lookup.py", {release: sglang_wheel(release) for release in RELEASES})
    yield oracles
    for oracle in oracles.values():
        oracle.close()


weights = st.one_of(
    st.builds(
        Weight,
        rows=st.sampled_from([64, 4096]),
        depth=st.sampled_from([128, 512]),
        dtype=st.sampled_from(["fp8_w8a8", "int8_w8a8"]),
        block=st.sampled_from([(128, 128), (32, 32), (128, 64)]),
    ),
    st.builds(Weight, rows=st.just(64), depth=st.just(512), dtype=st.just(CHANNELWISE)),
)
entries = st.one_of(
    st.builds(
        lambda size: {"BLOCK_SIZE_K": size, "num_warps": 4}, st.sampled_from([16, 32, 64, 96, 128, 256])
    ),
    st.sampled_from([None, {}, 3]),
)
contents = st.one_of(
    st.dictionaries(st.integers(0, 4096).map(str), entries, max_size=4),
    st.sampled_from([{"triton_version": "3.6.0"}, [1], "text", {}]),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    weight=weights,
    content=contents,
    name=st.sampled_from(["own", "other device", "none", "no folder"]),
    device=st.sampled_from([H200, "AMD Instinct MI300X", "NVIDIA L40S"]),
    compiling=st.booleans(),
)
def test_sglang_itself_agrees(real, tmp_path_factory, weight, content, name, device, compiling):
    root = tmp_path_factory.mktemp("case")
    configs = root / "configs"
    if name != "no folder":
        configs.mkdir()
    if name in ("own", "other device"):
        file = gemm_config.file_name(device if name == "own" else "NVIDIA B200", weight)
        (configs / file).write_text(json.dumps(content))
    cuda = device.startswith("NVIDIA")
    answers = ask_all(
        real,
        {
            "root": str(root),
            "device": device,
            "dtype": weight.dtype,
            "rows": weight.rows,
            "depth": weight.depth,
            "block": list(weight.block or ()),
            "cuda": cuda,
            "compiling": compiling,
        },
    )
    names = {each.name for each in configs.iterdir()} if configs.is_dir() else None
    for version, answer in answers.items():
        release = Version(version)
        found = gemm_config.look_up(release, device, weight, str(configs), names)
        assert (found is not None) == answer["known"]
        if found is None:
            continue
        if compiling and release >= Version("0.5.9") and weight.dtype != "int8_w8a8":
            assert answer["table"] is None
        elif found.source == "exact":
            assert_same_table(release, weight, configs / found.file, answer, cuda=cuda)
        else:
            assert answer["table"] is None
            said = any(f"Config file not found at {configs}/{found.file}" in line for line in answer["lines"])
            assert said == (found.source == "default")


def read_as(answer, path):
    """Return the table of a file, None where SGLang raises what we say that it raises."""
    raised = ""
    try:
        return config_table.read(path)
    except config_table.BrokenFile as broken:
        raised = broken.raised
    assert raised.startswith(answer["raised"])
    return None


def assert_same_table(release, weight, path, answer, *, cuda):
    """Check that SGLang reads the file that was found, and what it makes of it."""
    table = read_as(answer, path)
    if table is None:
        return
    if "raised" in answer:
        assert release >= gemm_config.CLAMPS_SINCE
        assert not all(config_entries.usable(config_entries.BLOCK_GEMM, entry) for entry in table.values())
        return
    expected = {
        str(key): {**entry, "BLOCK_SIZE_K": weight.block[1]}
        if isinstance(entry, dict)
        and "BLOCK_SIZE_K" in entry
        and gemm_config.clamped(release, weight, entry["BLOCK_SIZE_K"], cuda=cuda)
        else entry
        for key, entry in table.items()
    }
    assert answer["table"] == expected
    assert f"Using configuration from {path} for W8A8" in answer["lines"][0]
    assert (expected != {str(key): entry for key, entry in table.items()}) == any(
        line.startswith("Clamped BLOCK_SIZE_K") for line in answer["lines"]
    )
