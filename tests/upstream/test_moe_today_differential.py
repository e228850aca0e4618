"""What a server uses today beside SGLang's own choice: the real source of eight releases answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from sgdoctor.facts import Facts
from sgdoctor.fix import moe_today
from sgdoctor.tune.model import Pair
from sgdoctor.tune.space import BATCH_SIZES, Config, Problem, shared_memory_limit
from sgdoctor.upstream.moe_config import Listing, Shape, look_up
from tests.upstream.oracle import ask_all

H200 = "NVIDIA H200"
SHAPES = {
    "bf16": Shape(experts=128, width=768),
    "fp8_tensor": Shape(experts=128, width=768, dtype="fp8_w8a8"),
    "fp8_channel": Shape(experts=128, width=768, dtype="fp8_w8a8", per_channel=True),
    "fp8_block": Shape(experts=128, width=768, dtype="fp8_w8a8", block_shape=(64, 128)),
    "int8_channel": Shape(experts=128, width=768, dtype="int8_w8a8", per_channel=True),
    "int4": Shape(experts=128, width=384, dtype="int4_w4a16", block_shape=(0, 64)),
}


def asked(real_lookups, root: Path, shape: Shape, shared_memory: int | None, tokens: list[int]) -> dict:
    """Return release -> what its own code answers for ``tokens``."""
    case = {
        "root": str(root),
        "triton": "3.6.0",
        "device": H200,
        "experts": shape.experts,
        "width": shape.width,
        "dtype": shape.dtype,
        "block_shape": shape.block_shape and list(shape.block_shape),
        "per_channel": shape.per_channel,
        "deterministic": False,
        "shared_memory": shared_memory,
        "tokens": tokens,
    }
    answers = ask_all(real_lookups, [case])
    return {Version(version): answer for version, (answer,) in answers.items() if version != "0.5.7"}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_the_built_in_default(real_lookups, tmp_path, kind, capability):
    """Of every kind of weights on every size of shared memory, at all batch sizes."""
    (tmp_path / "configs").mkdir()
    shape = SHAPES[kind]
    problem = Problem(128, 768, 2048, 8, kind, shape.block_shape)
    answers = asked(real_lookups, tmp_path, shape, shared_memory_limit(capability), list(BATCH_SIZES))
    for release, answer in answers.items():
        ours = moe_today.default(problem, BATCH_SIZES, capability, release)
        theirs = [Config.from_sglang(up) for up, _ in answer["result"]]
        assert [ours[tokens].up for tokens in BATCH_SIZES] == theirs, release


def entry(block_m: int, **more: object) -> dict:
    return {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, **more}


UP = {"1": entry(16), "32": entry(16, num_warps=8), "2048": entry(64, num_stages=2)}
DOWN = {"1": entry(16, USE_TMA=True), "64": entry(16, num_stages=4), "2048": entry(64, USE_TMA=True)}


def facts_of(root: Path, shape: Shape, release: Version) -> Facts:
    """Return the facts of a server whose folder is ``root``."""
    found = look_up(release, "3.6.0", H200, shape, Listing.from_disk(root / "configs"))
    facts = Facts()
    for name, each in (("up", found.up), ("down", found.down)):
        facts.set(f"moe.{name}.source", each.source, source="log", place="test")
        facts.set(f"moe.{name}.expected_file", each.file, source="log", place="test")
        facts.set(f"moe.{name}.triton", each.triton, source="log", place="test")
    return facts


def written(root: Path, *, down: bool, tma: bool = False) -> Path:
    folder = root / "configs" / "triton_3_4_0"
    folder.mkdir(parents=True)
    up = {key: value | ({"USE_TMA": True} if tma else {}) for key, value in UP.items()}
    (folder / "E=128,N=768,device_name=NVIDIA_H200.json").write_text(json.dumps(up))
    if down:
        (folder / "E=128,N=768,device_name=NVIDIA_H200_down.json").write_text(json.dumps(DOWN))
    return root


def used(answer: dict, tokens: list[int]) -> dict[int, list[Config | None]]:
    return {
        number: [each and Config.from_sglang(each) for each in (up, down[0])]
        for number, (up, down) in zip(tokens, answer["result"], strict=True)
    }


@pytest.mark.parametrize(("down", "tma"), [(True, False), (False, False), (False, True)])
def test_the_files_in_use(real_lookups, tmp_path, down, tma):
    """Nearest keys of both files; without a down file what each release takes in its place."""
    root = written(tmp_path, down=down, tma=tma)
    shape, tokens = SHAPES["bf16"], [1, 16, 32, 48, 1040, 1041, 4096]
    for release, answer in asked(real_lookups, root, shape, None, tokens).items():
        if down and release < Version("0.5.13"):
            assert answer["raised"] == "AssertionError: "  # at 1041 tokens BLOCK_SIZE_M differs
            continue
        builtin = moe_today.default(Problem(128, 768, 2048, 8), tokens, (9, 0), release)
        ours = moe_today.today(facts_of(root, shape, release), root / "configs", builtin, release)
        for number, (up, own_down) in used(answer, tokens).items():
            assert up is not None
            in_its_place = own_down or Config.from_list([*up.to_list()[:-1], 0])
            if release < moe_today.UP_TMA:
                up = Config.from_list([*up.to_list()[:-1], 0])  # noqa: PLW2901 (the kernel would not take it)
            assert ours[number] == Pair(up, in_its_place), (release, number)
