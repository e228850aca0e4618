"""Names of config files: what they say, and why SGLang would never look for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.configs import names
from sgdoctor.configs.names import Name, Unreachable
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.gemm_config import CHANNELWISE, Weight
from sgdoctor.upstream.lora_config import Adapter
from sgdoctor.upstream.moe_config import Shape


def test_a_name_in_its_parts():
    file = "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
    shape = Shape(experts=128, width=768, dtype="fp8_w8a8", block_shape=(128, 128))
    assert names.parse(file, "moe") == Name(
        family="moe", device="NVIDIA_H100_80GB_HBM3", key=shape, down=True
    )


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("E=128,N=768,device_name=,dtype=int4_w4a16.json", "names no device"),
        (
            "E=8,N=8,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json",
            "it asks for E=8,N=8,device_name=X",
        ),
        (
            "E=8,N=8,dtype=fp8_w8a8,device_name=X.json",
            "it asks for E=8,N=8,device_name=X,dtype=fp8_w8a8.json",
        ),
        ("E=8,N=8,device_name=NVIDIA H200.json", "it asks for E=8,N=8,device_name=NVIDIA_H200.json"),
        ("E=8,N=8,device_name=X,dtype=bfloat16.json", "dtype is one of fp8_w8a8"),
        ("E=8,N=8,device_name=X,dtype=fp8_w8a8,block_shape=[0, 128].json", "dtype=fp8_w8a8.json"),
        ("E=8,N=8,device_name=X_down,dtype=fp8_w8a8.json", None),
        ("E=8,N=8.json", "has no device_name="),
        ("E=eight,N=8,device_name=X.json", "E=eight is no number"),
        ("E=08,N=8,device_name=X.json", "it asks for E=8,N=8,device_name=X.json"),
        ("E=8,N=8,device_name=X,topk=2.json", "never writes topk="),
        ("E=8,N=8,device_name=X,tuned.json", "'tuned' is no part of one"),
        ("E=8,N=8,device_name=X,per_channel_quant=true.json", "per_channel_quant=True.json"),
    ],
)
def test_fused_moe_names(file, why):
    if why is None:
        assert names.file_name(names.parse(file, "moe")) == file
        return
    with pytest.raises(Unreachable) as reason:
        names.parse(file, "moe")
    assert why in str(reason.value)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("N=64,K=64,device_name=X,dtype=fp8_w8a8.json", "dtype=fp8_w8a8 needs a block_shape"),
        (f"N=64,K=64,device_name=X,dtype={CHANNELWISE},block_shape=[128, 128].json", "has no block_shape"),
        ("N=64,K=64,device_name=X.json", "has no dtype="),
        ("N=64,K=64,device_name=X,dtype=fp8_w8a8,block_shape=128.json", "block_shape is [N, K]"),
    ],
)
def test_gemm_names(file, why):
    with pytest.raises(Unreachable) as reason:
        names.parse(file, "gemm")
    assert why in str(reason.value)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("lora_shrink,K=64,R=8,S=1,device_name=X.json", "never writes device_name="),
        ("lora_both,K=64,R=8,S=1,device=X.json", "begins with lora_shrink or lora_expand"),
        ("lora_shrink,K=64,R=8,device=X.json", "has no S="),
    ],
)
def test_lora_names(file, why):
    with pytest.raises(Unreachable) as reason:
        names.parse(file, "lora")
    assert why in str(reason.value)


@pytest.mark.parametrize("version", catalogue.releases())
def test_all_names_that_are_shipped_are_looked_for_but_the_two_without_a_device(version):
    release = catalogue.Release(version)
    for file in {name for listed in release.moe_listing.values() for name in listed}:
        if ",device_name=," in file:
            assert file.startswith("E=384,N=128,device_name=,dtype=int4_w4a16")
        else:
            names.parse(file, "moe")
    for file in release.gemm_listing:
        names.parse(file, "gemm")


devices = st.from_regex(r"[A-Za-z0-9_()-]{1,20}", fullmatch=True)
blocks = st.none() | st.tuples(st.integers(1, 256), st.integers(1, 256))
keys = st.one_of(
    st.builds(
        Shape,
        experts=st.integers(1, 1024),
        width=st.integers(1, 65536),
        dtype=st.none() | st.sampled_from(names.MOE_DTYPES),
        block_shape=blocks,
        per_channel=st.booleans(),
    ),
    st.builds(
        Weight,
        rows=st.integers(1, 65536),
        depth=st.integers(1, 65536),
        dtype=st.sampled_from(["fp8_w8a8", "int8_w8a8"]),
        block=st.tuples(st.integers(1, 256), st.integers(1, 256)),
    ),
    st.builds(
        Adapter,
        kernel=st.sampled_from(["shrink", "expand"]),
        size=st.integers(1, 65536),
        rank=st.integers(1, 512),
        slices=st.integers(1, 4),
    ),
)


@given(key=keys, device=devices, down=st.booleans())
def test_what_sglang_writes_is_read_back(key, device, down):
    family = "moe" if isinstance(key, Shape) else "gemm" if isinstance(key, Weight) else "lora"
    name = Name(family=family, device=device, key=key, down=down and family == "moe")
    assert names.parse(names.file_name(name), family) == name


@given(file=st.text(max_size=60), family=st.sampled_from(names.FAMILIES))
def test_any_text_is_a_name_or_says_why_not(file, family):
    try:
        assert names.file_name(names.parse(f"{file}.json", family)) == f"{file}.json"
    except Unreachable as reason:
        assert str(reason)  # noqa: PT017 (either is fine)
