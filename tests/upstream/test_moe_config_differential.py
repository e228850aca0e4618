"""The config lookup beside SGLang's own: the real source of nine releases answers in child processes."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import config_pairs, config_table, moe_config, moe_files
from sgdoctor.upstream.moe_config import Listing, Lookup, Shape
from tests.upstream.oracle import ask_all
from tools.oracles import RELEASES

DEVICES = ("NVIDIA H200", "NVIDIA RTX PRO 6000 Blackwell Server Edition")
# Those that a torch required, local and nightly builds, and versions without a folder.
TRITONS = ["3.6.0", "3.5.1", "3.4.0", "3.10.0", "3.6.0+git1a2b", "3.7.1", "3.8.0"]


def case_of(
    shape: Shape,
    device: str,
    triton: str,
    tokens: list[int],
    *,
    root: Path | None = None,
    deterministic: bool = False,
) -> dict:
    return {
        "root": None if root is None else str(root),
        "triton": triton,
        "device": device,
        "experts": shape.experts,
        "width": shape.width,
        "dtype": shape.dtype,
        "block_shape": shape.block_shape and list(shape.block_shape),
        "per_channel": shape.per_channel,
        "deterministic": deterministic,
        "tokens": tokens,
    }


FOLDERS = [
    "triton_3_1_0",
    "triton_3_2_0",
    "triton_3_3_1",
    "triton_3_4_0",
    "triton_3_5_1",
    "triton_3_6_0",
    "triton_3_10_0",
    "triton_3_6",
]
ODD_ENTRIES = [
    "triton_custom",
    "triton_3_6_0+git1a2b",
    "triton_3.6.0",
    "triton_",
    "triton_3_6_0.bak",
    "README.md",
]
entry = st.fixed_dictionaries(
    {
        "BLOCK_SIZE_M": st.sampled_from([16, 32, 64, 128]),
        "BLOCK_SIZE_N": st.sampled_from([64, 128]),
        "BLOCK_SIZE_K": st.sampled_from([64, 128]),
        "GROUP_SIZE_M": st.just(1),
    }
)
good_table = st.dictionaries(st.integers(0, 600).map(str), entry, min_size=1, max_size=4).map(json.dumps)
odd_table = st.sampled_from(["{}", "[]", "null", '{"triton_version": "3.6.0"}', "{", '{"1.5": {}}', ""])
table = st.one_of(*[good_table] * 7, odd_table)
shapes = st.builds(
    Shape,
    experts=st.sampled_from([8, 128]),
    width=st.sampled_from([256, 768]),
    dtype=st.sampled_from([None, "fp8_w8a8", "int8_w8a8", "int4_w4a16"]),
    block_shape=st.sampled_from([None, (128, 128), (0, 64)]),
    per_channel=st.booleans(),
)


@st.composite
def config_folders(draw, shape: Shape, device: str) -> dict[str, dict[str, str] | None] | None:
    """Draw folders with the file that is looked for, its down twin, neither or both."""
    if draw(st.integers(0, 9)) == 0:
        return None
    up, down = (moe_config.file_name(device, shape, down=is_down) for is_down in (False, True))
    held = st.sampled_from(
        [None, (), (up,), (up,), (up, down), (up, down), (down,), (up.upper(), "other.json")]
    )
    chosen = draw(st.dictionaries(st.sampled_from(FOLDERS), held, max_size=len(FOLDERS)))
    if draw(st.integers(0, 3)) == 0:
        chosen[draw(st.sampled_from(ODD_ENTRIES))] = draw(held)
    return {
        folder: None if files is None else {file: draw(table) for file in files}
        for folder, files in chosen.items()
    }


def write_folders(root: Path, folders: dict[str, dict[str, str] | None] | None) -> None:
    if folders is None:
        return
    (root / "configs").mkdir()
    for name, files in folders.items():
        if files is None:
            (root / "configs" / name).touch()
            continue
        (root / "configs" / name).mkdir()
        for file, text in files.items():
            (root / "configs" / name / file).write_text(text)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_sglang_itself_agrees_on_any_folder(real_lookups, tmp_path_factory, data):
    """Some 1350 cases: 150 trees of folders, each read by nine releases."""
    device = data.draw(st.sampled_from(DEVICES))
    shape = data.draw(shapes)
    triton = data.draw(st.sampled_from(TRITONS))
    deterministic = data.draw(st.integers(0, 9)) == 0
    folders = data.draw(config_folders(shape, device))
    tokens = data.draw(st.lists(st.integers(1, 700), min_size=1, max_size=4))
    root = tmp_path_factory.mktemp("case")
    write_folders(root, folders)
    case = case_of(shape, device, triton, tokens, root=root, deterministic=deterministic)
    listing = Listing.from_disk(root / "configs")
    for version, (answer,) in ask_all(real_lookups, [case]).items():
        release = Version(version)
        found = moe_config.look_up(release, triton, device, shape, listing, deterministic=deterministic)
        if deterministic:
            assert answer["lines"][0].startswith("Deterministic inference is enabled")
            assert {down[0] for _, down in answer["result"]} == {None}
        else:
            assert_same(release, shape, found, tokens, answer)


# --- the files that a release ships ---------------------------------------------------------------------

DEVICE = re.compile(r"device_name=([^,]*?)(?:_down)?(?:\.json|,)")
ELSEWHERE = "NVIDIA H200 that nobody has tuned"


def shipped_cases(listing: Listing) -> list[tuple[str, Shape, str]]:
    """Return Triton version, shape and device of every file that is shipped, and of neighbours that are not.

    Each is asked for under the versions whose folder has it and under two others, which take turns.
    """
    held: dict[tuple[Shape, str], set[str]] = {}
    for folder, names in (listing.entries or {}).items():
        for file in names or ():
            shape, device = moe_config.shape_of(file), DEVICE.search(file)
            assert shape is not None, file
            assert device is not None, file
            down = file.endswith("_down.json")
            assert moe_config.file_name(device.group(1), shape, down=down) == file
            held.setdefault((shape, device.group(1)), set()).add(moe_config.version_of(folder))
    tritons = list(dict.fromkeys([*map(moe_config.version_of, listing.entries or {}), *TRITONS]))
    cases = []
    for turn, ((shape, device), own) in enumerate(sorted(held.items(), key=repr)):
        turns = {tritons[turn % len(tritons)], tritons[-1 - turn // 2 % len(tritons)]}
        cases += [(triton, shape, device) for triton in sorted(own | turns)]
        cases.append((tritons[turn % len(tritons)], shape, ELSEWHERE))
        cases.append(("3.6.0", msgspec.structs.replace(shape, experts=shape.experts + 1), device))
    return cases


@pytest.mark.parametrize("version", RELEASES)
def test_sglang_itself_agrees_on_every_file_it_ships(real_lookups, sglang_wheel, version):
    """Every name of the release, under every version of Triton: 1100 to 1900 cases a release."""
    configs = next(sglang_wheel(version).rglob("fused_moe_triton_config.py")).parent / "configs"
    listing = Listing.from_disk(configs)
    cases = shipped_cases(listing)
    tokens = [1, 4096]
    questions = [case_of(shape, device, triton, tokens) for triton, shape, device in cases]
    answers = real_lookups[version].ask(questions)
    sources = set()
    for (triton, shape, device), answer in zip(cases, answers, strict=True):
        found = moe_config.look_up(Version(version), triton, device, shape, listing)
        assert_same(Version(version), shape, found, tokens, answer)
        sources.add(found.up.source)
    assert len(cases) > 1000
    assert sources == {"exact", "fallback", "default"}


# --- what has to be the same ----------------------------------------------------------------------------

read = functools.lru_cache(maxsize=4096)(config_table.read)


def assert_same(release: Version, shape: Shape, found: Lookup, tokens: list[int], answer: dict) -> None:
    error = moe_files.check(release, shape, found).error
    if error is None:
        assert_same_tables(release, shape, found, tokens, answer)
        assert_same_files(release, found, answer["lines"])
    else:
        assert error.startswith(answer["raised"]), (error, answer)


def assert_same_tables(release, shape, found, tokens, answer):
    """Check that SGLang hands the entries of the files that the lookup named to the kernels."""
    up = config_table.read(Path(found.up.path)) if found.up.path else {}
    down = config_table.read(Path(found.down.path)) if found.down.source in ("exact", "fallback") else {}
    if found.down.source == "up" and release >= Version("0.5.16"):
        down = up
    expected = []
    for number in tokens:
        mine = config_pairs.nearest(up, number) if up else None
        block_m = mine["BLOCK_SIZE_M"] if mine else config_pairs.default_block_m(release, shape, number)
        other = dict(config_pairs.nearest(down, number)) if down else None
        if other is not None and other["BLOCK_SIZE_M"] != block_m:
            assert moe_files.check(release, shape, found).block_m_mismatch
            if release < Version("0.5.13"):
                assert answer["raised"] == "AssertionError: "
                return
            other["BLOCK_SIZE_M"] = block_m
        expected.append((mine, block_m, other))
    for (mine, block_m, other), (config, (down_config, _)) in zip(expected, answer["result"], strict=True):
        assert mine is None or config == mine
        assert config["BLOCK_SIZE_M"] == block_m
        assert down_config == other


def assert_same_files(release, found, lines):
    """Check the paths and verdicts of SGLang's own log lines."""
    text = "\n".join(lines)
    own = moe_config.folder_of(found.directories[0])
    for projection in (found.up, found.down):
        if projection.source == "exact":
            assert f"Using MoE kernel config from {projection.path}." in text
        elif projection.source == "fallback":
            assert f"Fallback to triton version {projection.triton} and use" in text
            assert f"MoE kernel config from {projection.path}." in text
        else:
            assert f"/configs/{own}/{projection.file}" in text
    missing = "reusing the tuned up-projection" if release >= Version("0.5.16") else "with down_moe=False."
    if found.down.source == "up":
        assert missing in text
    assert ("Using default MoE kernel config." in text) == (
        found.up.source == "default" or (found.down.source == "default" and release >= Version("0.5.16"))
    )
