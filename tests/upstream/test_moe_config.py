"""The config lookup, held against SGLang's own: the real source of a release answers in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import moe_config, moe_files
from sgdoctor.upstream.moe_config import Listing, Shape

RELEASES = ("0.5.10", "0.5.12", "0.5.23")  # fixed list; discovered folders; the newest
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


# --- SGLang's own lookup --------------------------------------------------------------------------------


class RealLookup:
    """The lookup of one release, answering in a child process."""

    def __init__(self, source: Path) -> None:
        script = Path(__file__).parent / "real_moe_lookup.py"
        self.child = subprocess.Popen(
            [sys.executable, str(script), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "ready\n"

    def ask(self, case: dict) -> dict:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps(case) + "\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def close(self) -> None:
        with self.child:
            self.child.stdin.close()


def lookup_source(wheel: Path, folder: Path) -> Path:
    """Return the file of the lookup, taken out of the wheel (or where it lies in an unpacked one)."""
    if wheel.is_dir():
        return next(wheel.rglob("fused_moe_triton_config.py"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/fused_moe_triton_config.py"))
        return Path(archive.extract(name, folder))


@pytest.fixture(scope="module", params=RELEASES)
def real(request, sglang_wheel, tmp_path_factory) -> Iterator[tuple[Version, RealLookup]]:
    source = lookup_source(sglang_wheel(request.param), tmp_path_factory.mktemp("wheel"))
    lookup = RealLookup(source)
    yield Version(request.param), lookup
    lookup.close()


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
def test_sglang_itself_agrees(real, tmp_path_factory, data):
    release, sglang = real
    device = data.draw(st.sampled_from([H200, "NVIDIA RTX PRO 6000 Blackwell Server Edition"]))
    shape = data.draw(shapes)
    triton = data.draw(st.sampled_from(["3.6.0", "3.5.1", "3.4.0", "3.10.0", "3.6.0+git1a2b", "3.7.1"]))
    deterministic = data.draw(st.integers(0, 9)) == 0
    folders = data.draw(config_folders(shape, device))
    tokens = data.draw(st.lists(st.integers(1, 700), min_size=1, max_size=4))
    root = tmp_path_factory.mktemp("case")
    write_folders(root, folders)
    answer = sglang.ask(
        {
            "root": str(root),
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
    )
    listing = Listing.from_disk(root / "configs")
    found = moe_config.look_up(release, triton, device, shape, listing, deterministic=deterministic)
    checked = moe_files.check(release, shape, found)
    error = checked.error
    if error is not None:
        assert error.startswith(answer["raised"]), (error, answer)
    elif deterministic:
        assert answer["lines"][0].startswith("Deterministic inference is enabled")
        assert {down[0] for _, down in answer["result"]} == {None}
    else:
        assert_same_tables(release, shape, found, tokens, answer)
        assert_same_files(release, found, answer["lines"])


def assert_same_tables(release, shape, found, tokens, answer):
    """Check that SGLang hands the entries of the files that the lookup named to the kernels."""
    up = moe_files.read(Path(found.up.path)) if found.up.path else {}
    down = moe_files.read(Path(found.down.path)) if found.down.source in ("exact", "fallback") else {}
    if found.down.source == "up" and release >= Version("0.5.16"):
        down = up
    expected = []
    for number in tokens:
        mine = moe_files.nearest(up, number) if up else None
        block_m = mine["BLOCK_SIZE_M"] if mine else moe_files.default_block_m(release, shape, number)
        other = dict(moe_files.nearest(down, number)) if down else None
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
    assert len(result.problems) == 1
    assert "BLOCK_SIZE_K" in result.problems[0]
    assert "M = 64" in result.problems[0]
    assert checked(tmp_path, "0.5.23", {"1": tile(16, BLOCK_SIZE_K=64)}, shape=fp8).problems == ()


def test_up_tma_is_understood_from_0_5_18_on(tmp_path):
    up = {"1": tile(16, USE_TMA=True)}
    assert "USE_TMA" in checked(tmp_path, "0.5.17", up).problems[0]
    assert checked(tmp_path, "0.5.18", up).problems == ()


def test_tiles_that_do_not_fit_the_shared_memory(tmp_path):
    up = {"1": tile(64, num_stages=4)}  # 3 x (64 + 128) x 128 x 2 bytes
    assert checked(tmp_path, "0.5.12", up, shared_memory=232448).problems == ()
    assert "shared memory" in checked(tmp_path, "0.5.12", up, shared_memory=101376).problems[0]


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
            moe_files.nearest(tables[0], number)["BLOCK_SIZE_M"]
            if up
            else moe_files.default_block_m(release, shape, number)
        )
        != moe_files.nearest(tables[1], number)["BLOCK_SIZE_M"]
        for number in batches
    )
    assert moe_files._differs(release, shape, tables[0], tables[1], None) == meets


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_a_broken_file(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("any") / "config.json"
    file.write_bytes(content)
    try:
        table = moe_files.read(file)
    except moe_files.BrokenFile:
        return
    assert all(isinstance(key, int) for key in table)
