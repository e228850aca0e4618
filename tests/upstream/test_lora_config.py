"""The lookup of LoRA configs, held against SGLang's own, which answers in child processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import config_pairs, config_table, lora_config
from sgdoctor.upstream.lora_config import Adapter
from sgdoctor.upstream.moe_config import Listing
from tests.upstream.oracle import Oracle, ask_all, start
from tools.oracles import RELEASES

H200 = "NVIDIA H200"
QKV = Adapter(kernel="shrink", size=4096, rank=64, slices=3)
NAME = "lora_shrink,K=4096,R=64,S=3,device=NVIDIA_H200.json"
BUILT_IN = {"shrink": {"BLOCK_N": 16, "BLOCK_K": 256}, "expand": {"BLOCK_N": 64, "BLOCK_K": 16}}


def test_a_file_name_is_spelled_as_sglang_spells_it():
    assert lora_config.file_name(H200, QKV) == NAME
    assert lora_config.adapter_of(NAME) == (QKV, "NVIDIA_H200")


def test_other_tritons_folders_stand_in_in_the_reverse_order_of_their_names():
    listing = Listing("/c", {f"triton_{each}": frozenset({NAME}) for each in ("3_10_0", "3_9_0", "3_5_1")})
    found = lora_config.look_up("3.6.0", H200, QKV, listing)
    assert (found.source, found.folder) == ("fallback", "triton_3_9_0")
    assert found.path == f"/c/triton_3_9_0/{NAME}"
    assert lora_config.look_up("3.5.1", H200, QKV, listing).source == "exact"


def test_a_missing_folder_is_no_error():
    assert lora_config.look_up("3.6.0", H200, QKV, Listing("/c", None)).source == "default"


def test_the_folder_moved_twice(sglang_wheel):
    assert lora_config.folder(Version("0.5.10")) is None
    for release in RELEASES:
        folder = lora_config.folder(Version(release))
        shipped = [path for path in sglang_wheel(release).rglob("lora_*.json") if path.name.count(",") == 4]
        assert {path.parents[1] for path in shipped} == (
            {sglang_wheel(release) / "sglang" / folder} if folder else set()
        )


# --- SGLang's own lookup --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(sglang_wheel) -> Iterator[dict[str, Oracle]]:
    having = [release for release in RELEASES if Version(release) >= lora_config.SINCE]
    oracles = start("real_lora_lookup.py", {release: sglang_wheel(release) for release in having})
    yield oracles
    for oracle in oracles.values():
        oracle.close()


tables = st.dictionaries(
    st.sampled_from([16, 32, 64, 128]).map(str),
    st.builds(lambda size: {"BLOCK_N": size, "BLOCK_K": 16}, st.sampled_from([16, 32, 64])),
    max_size=3,
)
folders = st.dictionaries(
    st.sampled_from(
        ["triton_3_6_0", "triton_3_10_0", "triton_3_9_0", "triton_custom", "triton_3.6.0", "other"]
    ),
    st.one_of(tables, st.just({"x": 1}), st.none()),
    max_size=4,
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    held=folders,
    triton=st.sampled_from(["3.6.0", "3.10.0", "3.7.1", "3.6.0+git1"]),
    kernel=st.sampled_from(lora_config.KERNELS),
    chunk=st.sampled_from([1, 16, 24, 48, 128]),
)
def test_sglang_itself_agrees(real, tmp_path_factory, held, triton, kernel, chunk):
    adapter = Adapter(kernel=kernel, size=1024, rank=32, slices=2)
    root = tmp_path_factory.mktemp("case")
    name = lora_config.file_name(H200, adapter)
    for folder, content in held.items():
        (root / "csgmv_configs" / folder).mkdir(parents=True)
        if content is not None:
            (root / "csgmv_configs" / folder / name).write_text(json.dumps(content))
    found = lora_config.look_up(triton, H200, adapter, Listing.from_disk(root / "csgmv_configs"))
    answers = ask_all(
        real,
        {
            "root": str(root),
            "triton": triton,
            "device": H200,
            "kernel": kernel,
            "size": adapter.size,
            "rank": adapter.rank,
            "slices": adapter.slices,
            "chunk": chunk,
        },
    )
    for answer in answers.values():
        assert_same(found, answer, kernel, chunk)


def assert_same(found, answer, kernel, chunk):
    if found.path is None:
        assert answer["entry"] == BUILT_IN[kernel]
        return
    said = {"exact": f"config from {found.path}.", "fallback": f"Falling back to {found.path}."}
    assert said[found.source] in answer["lines"][0]
    raised, table = "", {}
    try:
        table = config_table.read(Path(found.path))
    except config_table.BrokenFile as broken:
        raised = broken.raised
    if raised:
        assert raised.startswith(answer["raised"])
        return
    if not table:
        assert answer["raised"].startswith("ValueError: min()")
        return
    assert answer["entry"] == (table.get(chunk) or config_pairs.nearest(table, chunk))
