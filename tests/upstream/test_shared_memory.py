"""The shared memory that a config needs, held against what Triton's compiler says it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from sgdoctor.upstream import shared_memory

COMPILED = json.loads(Path(__file__).with_name("shared_memory_compiled.json").read_text())["compiled"]


def entry(rows, columns, depth, stages):
    return {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": depth, "num_stages": stages}


@pytest.mark.parametrize("target", COMPILED, ids=lambda each: f"{each['capability']}-{each['dtype']}")
def test_never_more_than_the_compiler_takes_and_hardly_less(target):
    for rows, columns, depth, stages, taken in target["rows"]:
        said = shared_memory.moe(
            entry(rows, columns, depth, stages), target["dtype"], Version(target["capability"])
        )
        assert said <= taken
        assert taken <= said * (1.06 if target["dtype"] else 1) + 16


def test_what_was_not_compared_is_not_told():
    tile = entry(128, 128, 64, 4)
    assert shared_memory.moe(tile, "int8_w8a8", Version("8.0")) is None
    assert shared_memory.moe({**tile, "USE_TMA": True}, None, Version("9.0")) is None
    assert shared_memory.moe(tile, None, Version("8.6")) == 3 * (128 + 128) * 64 * 2
