"""Which config file is used, and what is wrong with its content, by example.

test_moe_config_differential.py asks SGLang's own lookup.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import config_pairs, moe_config, moe_files
from sgdoctor.upstream.config_problem import Gpu
from sgdoctor.upstream.moe_config import Listing, Shape

H200 = "NVIDIA H200"
QWEN = Shape(experts=256, width=256)


# --- examples -------------------------------------------------------------------------------------------


def shipped(**folders: set[str]) -> Listing:
    return Listing.from_catalogue("/sglang/configs", folders)


def test_a_file_name_is_spelled_as_sglang_spells_it():
    block = Shape(experts=128, width=768, dtype="fp8_w8a8", block_shape=(128, 128))
    assert moe_config.file_name("NVIDIA H100 80GB HBM3", block, down=True) == (
        "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
    )
    channel = Shape(experts=8, width=64, dtype="fp8_w8a8", per_channel=True)
    assert moe_config.file_name(H200, channel) == (
        "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,per_channel_quant=True.json"
    )
    grouped = Shape(experts=8, width=64, dtype="int4_w4a16", block_shape=(0, 128))
    assert moe_config.file_name(H200, grouped) == "E=8,N=64,device_name=NVIDIA_H200,dtype=int4_w4a16.json"


def test_up_to_0_5_11_only_four_other_folders_are_tried():
    name = moe_config.file_name(H200, QWEN)
    listing = shipped(triton_3_5_1={name}, triton_3_2_0=set())
    found = moe_config.look_up(Version("0.5.10"), "3.6.0", H200, QWEN, listing)
    assert found.up.source == "default"
    assert found.directories == ("3.6.0", "3.4.0", "3.3.1", "3.2.0", "3.1.0")
    assert found.elsewhere == ("3.5.1",)


def test_from_0_5_12_on_every_folder_is_tried_newest_first():
    name = moe_config.file_name(H200, QWEN)
    listing = shipped(triton_3_2_0={name}, triton_3_5_1={name}, triton_3_10_0=set(), triton_3_6_0=set())
    found = moe_config.look_up(Version("0.5.12"), "3.6.0", H200, QWEN, listing)
    assert (found.up.source, found.up.triton) == ("fallback", "3.5.1")
    assert found.directories == ("3.6.0", "3.10.0", "3.5.1", "3.2.0")
    assert (found.down.source, found.down.path) == ("up", found.up.path)


def test_the_folder_named_by_the_variable_lacks_configs():
    listing = Listing("/nowhere/configs", None)
    old = moe_config.look_up(Version("0.5.11"), "3.6.0", H200, QWEN, listing)
    assert (old.up.source, old.down.source, old.error) == ("default", "default", None)
    new = moe_config.look_up(Version("0.5.12"), "3.6.0", H200, QWEN, listing)
    assert new.up.source == "error"
    assert new.error == "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/configs'"


def test_an_odd_entry_kills_the_lookup_of_the_down_file_even_when_the_up_file_is_there():
    listing = Listing(
        "/c", {"triton_3_6_0": frozenset({moe_config.file_name(H200, QWEN)}), "triton_old": None}
    )
    found = moe_config.look_up(Version("0.5.23"), "3.6.0", H200, QWEN, listing)
    assert (found.up.source, found.down.source) == ("exact", "error")
    assert found.error is not None
    assert "invalid literal for int() with base 10: 'old'" in found.error


def test_deterministic_inference_looks_nothing_up():
    found = moe_config.look_up(
        Version("0.5.23"), "3.6.0", H200, QWEN, Listing("/nowhere", None), deterministic=True
    )
    assert (found.up.source, found.down.source, found.directories) == ("default", "default", ())


def test_an_unreadable_folder_is_not_taken_for_an_empty_one(tmp_path):
    assert Listing.from_disk(tmp_path / "absent").entries is None
    (tmp_path / "file").touch()
    assert Listing.from_disk(tmp_path / "file").trouble == (
        f"NotADirectoryError: [Errno 20] Not a directory: '{tmp_path}/file'"
    )
    (tmp_path / "configs" / "triton_3_6_0").mkdir(parents=True)
    (tmp_path / "configs" / "triton_3_6_0" / "a.json").touch()
    (tmp_path / "configs" / "triton_note").touch()
    (tmp_path / "configs" / "README.md").touch()
    entries = Listing.from_disk(tmp_path / "configs").entries
    assert entries == {"triton_3_6_0": frozenset({"a.json"}), "triton_note": None}


# --- the files' content ---------------------------------------------------------------------------------


def tile(m: int, **more: int) -> dict[str, int]:
    return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, **more}


def checked(tmp_path: Path, release: str, up: object, down: object = None, shape: Shape = QWEN, **more):
    folder = tmp_path / "configs" / "triton_3_6_0"
    folder.mkdir(parents=True, exist_ok=True)
    for content, is_down in ((up, False), (down, True)):
        if content is not None:
            (folder / moe_config.file_name(H200, shape, down=is_down)).write_text(json.dumps(content))
    listing = Listing.from_disk(tmp_path / "configs")
    found = moe_config.look_up(Version(release), "3.6.0", H200, shape, listing)
    return moe_files.check(Version(release), shape, found, **more)


def test_up_and_down_that_agree_at_every_key_may_still_differ_between_them(tmp_path):
    up = {"1": tile(16), "64": tile(64)}
    assert not checked(tmp_path, "0.5.12", up, {"1": tile(16), "64": tile(64)}).block_m_mismatch
    # 40 tokens: up takes key 64, down key 48
    assert checked(tmp_path, "0.5.12", up, {"1": tile(16), "48": tile(16), "64": tile(64)}).block_m_mismatch


def test_a_down_file_alone_meets_the_built_in_config(tmp_path):
    assert checked(tmp_path, "0.5.12", None, {"1": tile(32)}).block_m_mismatch
    assert not checked(tmp_path, "0.5.12", None, {"1": tile(16), "511": tile(64)}).block_m_mismatch


def test_a_tile_wider_than_the_quantization_block_computes_wrong(tmp_path):
    fp8 = Shape(experts=8, width=256, dtype="fp8_w8a8", block_shape=(128, 128))
    result = checked(tmp_path, "0.5.23", {"1": tile(16), "64": tile(16, BLOCK_SIZE_K=256)}, shape=fp8)
    (problem,) = result.of("error")
    assert problem.startswith(f"{moe_config.file_name(H200, fp8)} has BLOCK_SIZE_K 256 at M = 64")
    assert checked(tmp_path, "0.5.23", {"1": tile(16, BLOCK_SIZE_K=64)}, shape=fp8).of("error") == []


def test_up_tma_is_understood_from_0_5_18_on(tmp_path):
    up = {"1": tile(16, USE_TMA=True)}
    assert "USE_TMA" in checked(tmp_path, "0.5.17", up).of("error")[0]
    assert checked(tmp_path, "0.5.18", up).of("error") == []


def test_tiles_that_do_not_fit_the_shared_memory(tmp_path):
    up = {"1": tile(64, num_stages=4)}  # 3 x (64 + 128) x 128 x 2 bytes
    assert checked(tmp_path, "0.5.12", up).of("error") == []
    assert checked(tmp_path, "0.5.12", up, gpu=Gpu(shared_memory=232448)).of("error") == []
    assert "shared memory" in checked(tmp_path, "0.5.12", up, gpu=Gpu(shared_memory=101376)).of("error")[0]


def test_what_has_no_effect_and_what_is_worth_knowing(tmp_path):
    empty = checked(tmp_path, "0.5.12", {})
    assert (len(empty.of("error")), len(empty.of("warning")), len(empty.of("info"))) == (0, 1, 0)
    far = checked(tmp_path, "0.5.12", {"256": tile(16)}, {"256": tile(16), "512": tile(16)})
    assert (len(far.of("error")), len(far.of("warning")), len(far.of("info"))) == (0, 0, 4)


@pytest.mark.parametrize(
    ("content", "exception"),
    [
        ({"triton_version": "3.6.0"}, "ValueError: invalid literal for int()"),
        ([1], "AttributeError: 'list' object has no attribute 'items'"),
    ],
)
def test_files_that_end_the_server(tmp_path, content, exception):
    result = checked(tmp_path, "0.5.12", content)
    assert result.error is not None
    assert result.error.startswith(exception)
    assert len(result.of("error")) == 1


@given(
    up=st.dictionaries(st.integers(-5, 40), st.sampled_from([16, 64]), max_size=5),
    down=st.dictionaries(st.integers(-5, 40), st.sampled_from([16, 64]), min_size=1, max_size=5),
    experts=st.integers(1, 30),
)
def test_a_mismatch_is_found_exactly_when_some_batch_meets_one(up, down, experts):
    shape = Shape(experts=experts, width=64)
    release = Version("0.5.12")
    tables = [{key: tile(value) for key, value in table.items()} for table in (up, down)]
    batches = range(1, 60)
    meets = any(
        (
            config_pairs.nearest(tables[0], number)["BLOCK_SIZE_M"]
            if up
            else config_pairs.default_block_m(release, shape, number)
        )
        != config_pairs.nearest(tables[1], number)["BLOCK_SIZE_M"]
        for number in batches
    )
    assert bool(config_pairs.differing(release, shape, tables[0], tables[1], None)) == meets
