"""What is wrong with a config file's content, by example: a table, a release, the codes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import catalogue, config_checks, config_table
from sgdoctor.upstream.config_problem import Gpu, Problem, at_keys
from sgdoctor.upstream.gemm_config import CHANNELWISE, Weight
from sgdoctor.upstream.moe_config import Shape

PLAIN = Shape(experts=128, width=768)
BLOCK = Shape(experts=128, width=768, dtype="fp8_w8a8", block_shape=(128, 128))
GEMM = Weight(rows=4096, depth=512, dtype="fp8_w8a8", block=(128, 128))
H200 = Gpu.of_device("NVIDIA_H200")
L40S = Gpu.of_device("NVIDIA_L40S")
NEWEST = catalogue.releases()[-1]


def tile(m=16, n=64, k=64, **more):
    return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 1, **more}


def whole(first, rest=None):
    """Return a table without a batch far from every key: ``first`` for one token, ``rest`` for more."""
    more = tile() if rest is None else rest
    return {1: first, 16: more, 300: more}


def moe(table, shape=PLAIN, *, release=NEWEST, down=False, gpu=H200) -> list[Problem]:
    return list(config_checks.moe(Version(release), "file", table, shape, down=down, gpu=gpu))


def gemm(table, weight=GEMM, *, release=NEWEST, gpu=H200) -> list[Problem]:
    return list(config_checks.gemm(Version(release), "file", table, weight, gpu=gpu))


def codes(problems):
    return [(problem.severity, problem.code) for problem in problems]


@pytest.mark.parametrize(
    ("table", "code", "text"),
    [
        ({}, "empty", "is empty"),
        (whole([1], tile()), "entry-not-an-object", "at M = 1"),
        (whole({**tile(), "GROUP_SIZE_M": None}, tile()), "key-missing", "lacks GROUP_SIZE_M at M = 1"),
        (
            whole(tile(m=48), tile()),
            "value-unusable",
            "BLOCK_SIZE_M 48, which is no power of two, at M = 1",
        ),
        (whole(tile(num_warps=6), tile()), "value-unusable", "num_warps 6, which is no power of two"),
        (whole(tile(num_stages="3"), tile()), "value-unusable", "num_stages '3', which is no number"),
        (whole(tile(SPLIT_K=1), tile()), "key-unknown", "has SPLIT_K, neither the kernel's nor Triton's"),
        (whole(tile(waves_per_eu=2), tile()), "key-unknown", "an option of AMD's compiler"),
    ],
)
def test_what_no_release_can_use(table, code, text):
    (problem,) = moe(table)
    assert problem.code == code
    assert problem.severity == ("warning" if code == "empty" else "error")
    assert text in problem.text


def test_a_sound_table_has_no_problem():
    assert moe(whole(tile())) == []
    assert moe(whole(tile(waves_per_eu=2, kpack=1), tile()), gpu=Gpu("amd")) == []
    assert moe(whole(tile(num_ctas=1, maxnreg=128), tile())) == []


def test_an_empty_down_file_leaves_the_up_config_in_use():
    assert "runs on the up projection's config" in moe({}, down=True)[0].text


def test_tma_in_an_up_file_from_0_5_18_on():
    table = whole(tile(USE_TMA=True), tile())
    assert codes(moe(table, release="0.5.17")) == [("error", "tma-in-up-file")]
    assert moe(table, release="0.5.18") == []
    assert moe(table, release="0.5.9", down=True) == []


@pytest.mark.parametrize("release", ["0.5.7", "0.5.12", NEWEST])
def test_a_tile_that_crosses_quantization_blocks_computes_wrong(release):
    (problem,) = moe({**whole(tile(k=64), tile(k=128)), 64: tile(k=256)}, BLOCK, release=release)
    assert (problem.code, problem.severity) == ("block-k", "error")
    assert "BLOCK_SIZE_K 256 at M = 64" in problem.text
    odd = Shape(experts=8, width=960, dtype="fp8_w8a8", block_shape=(96, 128))
    assert codes(moe(whole(tile(n=64), tile(n=128)), odd)) == [("error", "block-n")]


def test_a_down_projection_no_deeper_than_one_block_has_one_scale():
    narrow = Shape(experts=128, width=128, dtype="fp8_w8a8", block_shape=(128, 128))
    table = whole(tile(k=256), tile())
    assert moe(table, narrow, down=True) == []
    assert codes(moe(table, narrow)) == [("error", "block-k")]


def test_tiles_that_do_not_fit_the_shared_memory():
    table = whole(tile(), tile(m=64, n=128, k=128, num_stages=4))  # 3 x (64 + 128) x 128 x 2 bytes
    assert moe(table, gpu=H200) == []
    (problem,) = moe(table, gpu=L40S)
    assert problem.code == "shared-memory"
    assert "147456 bytes of shared memory at M = 16, 300, and this GPU gives a block 101376" in problem.text
    assert moe(table, gpu=Gpu.of_device("NVIDIA_of_tomorrow")) == []


def test_batches_far_from_every_key():
    assert codes(moe({256: tile(), 1024: tile()})) == [("info", "keys-far")]
    assert (
        "every smaller batch, down to 1, runs on the entry for 256"
        in moe({256: tile(), 1024: tile()})[0].text
    )
    assert "every larger batch runs on the entry for 64" in moe({1: tile(), 64: tile()})[0].text
    gap = {1: tile(), 512: tile(m=64)}
    assert "has no key between 1 and 512: M up to 256 run on the entry for 1" in moe(gap)[0].text
    assert moe({1: tile(), 512: tile()}) == []  # the same on both sides


# --- GEMM -----------------------------------------------------------------------------------------------


def test_block_fp8_gemm_stays_on_the_first_scale_up_to_0_5_9():
    """SGLang's own kernels run in Triton's interpreter: 0.68 relative error in 0.5.9, none in 0.5.10."""
    table = whole(tile(k=64), tile(k=128))
    (problem,) = gemm(table, release="0.5.9")
    assert (problem.code, problem.severity) == ("block-k", "error")
    assert "BLOCK_SIZE_K 64 at M = 1, which is not the quantization block of 128" in problem.text
    assert gemm(table, release="0.5.11") == []


def test_a_small_tile_is_raised_from_0_5_12_and_on_cuda_kept_from_0_5_14():
    table = whole(tile(k=64), tile(k=128))
    assert codes(gemm(table, release="0.5.12")) == [("info", "block-k-raised")]
    assert gemm(table, release="0.5.14") == []
    assert codes(gemm(table, release="0.5.14", gpu=Gpu("amd"))) == [("info", "block-k-raised")]


@pytest.mark.parametrize("release", ["0.5.9", "0.5.10", "0.5.12", NEWEST])
@pytest.mark.parametrize("dtype", ["fp8_w8a8", "int8_w8a8"])
def test_a_large_tile_is_wrong_in_every_release(release, dtype):
    deep = Weight(rows=64, depth=512, dtype=dtype, block=(128, 128))
    table = whole(tile(k=256), tile(k=128))
    assert codes(gemm(table, deep, release=release)) == [("error", "block-k")]
    flat = Weight(rows=64, depth=128, dtype=dtype, block=(128, 128))
    assert gemm(table, flat, release=release) == []


def test_int8_has_always_taken_small_tiles():
    weight = Weight(rows=64, depth=512, dtype="int8_w8a8", block=(128, 128))
    assert gemm(whole(tile(k=64), tile(k=128)), weight, release="0.5.7") == []


def test_hopper_keys():
    small = Weight(rows=64, depth=512, dtype="fp8_w8a8", block=(32, 32))
    table = whole(tile(k=32, SWAP_AB=True, SPLIT_K=4), tile(k=32))
    assert gemm(table, small) == []
    assert codes(gemm(table, small, release="0.5.20")) == [("error", "key-unknown")]
    assert codes(gemm(table, small, gpu=Gpu.of_device("NVIDIA_B200"))) == [("error", "key-unknown")]
    switched_off = whole(tile(k=32, SWAP_AB=False), tile(k=32))
    assert "only where SWAP_AB is true" in gemm(switched_off, small)[0].text


def test_a_range_closed_with_the_built_in_config_is_meant_so():
    assert gemm({1: tile(k=128), 2: tile(m=64, n=128, k=128)}) == []
    assert codes(gemm({1: tile(k=128), 2: tile(m=16, n=128, k=128)})) == [("info", "keys-far")]


def test_channel_wise_entries_may_be_null_but_need_warps_and_stages():
    weight = Weight(rows=64, depth=512, dtype=CHANNELWISE)
    sound = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 1024, "num_warps": 4, "num_stages": 3}
    assert gemm({**whole(sound, sound), 16: None}, weight) == []
    assert [each.text for each in gemm(whole(tile(), sound), weight)] == [
        "lacks num_warps at M = 1",
        "lacks num_stages at M = 1",
    ]
    assert "CUTLASS serves the weight" in gemm({}, weight)[0].text


# --- LoRA -----------------------------------------------------------------------------------------------


def test_lora_tables():
    sound = {"BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 1, "maxnreg": 128}
    assert list(config_checks.lora("file", {16: sound, 128: {"BLOCK_N": 16, "BLOCK_K": 16}})) == []
    (missing,) = config_checks.lora("file", {16: {"BLOCK_N": 16}})
    assert missing.text == "lacks BLOCK_K at chunk = 16"
    (empty,) = config_checks.lora("file", {})
    assert (empty.severity, empty.code) == ("error", "empty")


# --- anything -------------------------------------------------------------------------------------------


def test_keys_in_words():
    assert at_keys([64, 1, 8]) == "M = 1, 8, 64"
    assert at_keys(range(1, 19)) == "M = 1, 2, 3, 4, ..., 18 (18 keys)"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    "BLOCK_SIZE_M BLOCK_SIZE_N BLOCK_SIZE_K GROUP_SIZE_M num_warps num_stages USE_TMA SWAP_AB SPLIT_K "
    "BLOCK_N BLOCK_K other"
)
names = st.sampled_from(NAMES.split())
numbers = st.sampled_from([16, 32, 64, 96, 128, 256, 0, -1, 2**70]) | json_values
tables = st.dictionaries(st.integers(), st.dictionaries(names, numbers, max_size=9) | json_values, max_size=5)


@given(
    table=tables,
    release=st.sampled_from(catalogue.releases()).map(Version),
    device=st.sampled_from(["NVIDIA_H200", "NVIDIA_L40S", "NVIDIA_B200", "AMD_Instinct_MI300X", "", "Intel"]),
    shape=st.builds(
        Shape,
        experts=st.integers(1, 512),
        width=st.integers(1, 4096),
        dtype=st.sampled_from([None, "fp8_w8a8", "int8_w8a8", "int4_w4a16"]),
        block_shape=st.sampled_from([None, (128, 128), (0, 128), (96, 64)]),
    ),
    weight=st.builds(
        Weight,
        rows=st.integers(1, 4096),
        depth=st.integers(1, 4096),
        dtype=st.sampled_from(["fp8_w8a8", "int8_w8a8", CHANNELWISE]),
        block=st.sampled_from([None, (128, 128), (32, 32), (96, 64)]),
    ),
)
def test_any_table_gets_a_verdict(table, release, device, shape, weight):
    gpu = Gpu.of_device(device)
    problems = [
        *config_checks.moe(release, "file", table, shape, down=False, gpu=gpu),
        *config_checks.moe(release, "file", table, shape, down=True, gpu=gpu),
        *config_checks.gemm(release, "file", table, weight, gpu=gpu),
        *config_checks.lora("file", table),
    ]
    assert all("\n" not in str(problem) and len(problem.text) < 500 for problem in problems)


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_table_or_a_broken_file(raw):
    raised, table = None, {}
    try:
        table = config_table.parse(raw, "file")
    except config_table.BrokenFile as broken:
        raised = broken.raised
    if raised is None:
        assert {str(key) for key in table} == {str(int(key)) for key in json.loads(raw.decode())}
    else:
        assert raised.endswith("(file)")
