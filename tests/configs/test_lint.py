"""Linting whole folders: small ones that show a problem each, and all that SGLang ships."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgdoctor.configs import lint, places
from sgdoctor.errors import Undecided, UsageError
from tests.configs.conftest import table, tile, write
from tools.oracles import RELEASES

H200 = "E=128,N=768,device_name=NVIDIA_H200.json"
DOWN = "E=128,N=768,device_name=NVIDIA_H200_down.json"
GEMM = "N=512,K=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
LORA = "lora_shrink,K=512,R=8,S=1,device=NVIDIA_H200.json"


def linted(path, release=None):
    return lint.lint(places.find(str(path)), release)


def told(path, release=None):
    """Return severity, code and file name of all problems."""
    problems = linted(path, release).problems
    return [(each.severity, each.code, each.file.rpartition("/")[2]) for each in problems]


def folder(tmp_path, **tritons):
    """Make a configs folder: ``v3_6_0={name: content}``."""
    files = {
        f"triton_{version[1:]}/{name}": content
        for version, held in tritons.items()
        for name, content in held.items()
    }
    return write(tmp_path / "configs", files)


def test_a_sound_folder(tmp_path):
    path = folder(tmp_path, v3_6_0={H200: table(), DOWN: table()}, v3_5_1={H200: table()})
    result = linted(path, "0.5.12")
    assert (result.problems, result.unread, result.worst) == ((), (), None)
    assert (len(result.files), result.release.version, result.assumed) == (3, "0.5.12", False)


def test_the_release_is_asked_for_or_paths_own_or_the_newest(installed, tmp_path):
    site = installed("0.5.9", {f"moe/triton_3_6_0/{H200}": table()})
    assert (linted(site).release.version, linted(site).assumed) == ("0.5.9", False)
    assert linted(site, "0.5.23").release.version == "0.5.23"
    loose = linted(folder(tmp_path, v3_6_0={H200: table()}))
    assert (loose.release.version, loose.assumed) == ("0.5.23", True)
    with pytest.raises(UsageError, match="no release that sgdoctor knows"):
        linted(site, "0.4.6")


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        ("{", "not-json", "is not JSON: Expecting property name"),
        (
            [1],
            "not-an-object",
            "holds a list instead of an object of batch sizes; SGLang ends in AttributeError",
        ),
        (
            {"triton_version": "3.6.0", **table()},
            "key-not-a-number",
            "which vLLM writes and SGLang cannot read",
        ),
        ({"1-16": tile(), **table()}, "key-not-a-number", "has keys that are no whole numbers: '1-16'"),
    ],
)
def test_files_that_end_the_server(tmp_path, content, code, text):
    path = folder(tmp_path, v3_6_0={H200: content})
    (problem,) = linted(path, "0.5.12").problems
    assert (problem.severity, problem.code) == ("error", code)
    assert text in problem.text


def test_what_a_kernel_cannot_use_is_found_in_each_family(installed):
    site = installed(
        "0.5.12",
        {
            f"moe/triton_3_6_0/{H200}": table(USE_TMA=True),
            f"gemm/{GEMM}": table(BLOCK_SIZE_K=256),
            f"lora/triton_3_6_0/{LORA}": {},
        },
    )
    assert told(site) == [
        ("error", "block-k", GEMM),
        ("error", "empty", LORA),
        ("error", "tma-in-up-file", H200),
    ]


def test_a_name_that_is_never_looked_for_is_not_judged_by_its_content(tmp_path):
    name = "E=8,N=8,device_name=X,block_shape=[128,128].json"
    assert told(folder(tmp_path, v3_6_0={name: table(m=48)})) == [("warning", "name-never-read", name)]


def test_files_of_two_families_in_one_folder(tmp_path):
    path = folder(tmp_path, v3_6_0={H200: table(), LORA: {}, GEMM: table(), "notes.json": {}})
    assert told(path) == [
        ("error", "empty", LORA),
        ("warning", "name-never-read", GEMM),
        ("warning", "name-never-read", "notes.json"),
    ]


def test_a_file_that_cannot_be_read_is_neither_sound_nor_broken(tmp_path):
    path = folder(tmp_path, v3_6_0={DOWN: table()})
    (path / "triton_3_6_0" / H200).mkdir()  # a folder of that name
    result = linted(path, "0.5.12")
    assert result.problems == ()
    assert result.unread == (f"{path}/triton_3_6_0/{H200}: Is a directory",)


def test_nothing_to_lint(installed, tmp_path):
    with pytest.raises(Undecided, match="no kernel config files there"):
        linted(installed("0.5.12", {}))
    (tmp_path / "configs" / "triton_3_6_0").mkdir(parents=True)
    with pytest.raises(Undecided):
        linted(tmp_path / "configs")


# --- up and down ------------------------------------------------------------------------------------------


def test_up_and_down_of_one_folder_that_differ(tmp_path):
    path = folder(tmp_path, v3_6_0={H200: table(), DOWN: {**table(), "16": tile(64)}})
    (problem,) = linted(path, "0.5.12").problems
    assert (problem.severity, problem.code) == ("error", "block-m-differs")
    assert problem.text == (
        "has another BLOCK_SIZE_M at M = 9, 16, 128, 129, 136 than the up file beside it: the server ends in "
        "an AssertionError there"
    )
    (overridden,) = linted(path, "0.5.13").problems
    assert overridden.severity == "info"


def test_other_keys_with_the_same_tiles_are_worth_knowing(tmp_path):
    path = folder(tmp_path, v3_6_0={H200: table(), DOWN: {**table(), "64": tile()}})
    (problem,) = linted(path, "0.5.12").problems
    assert (problem.severity, problem.code) == ("info", "keys-differ")
    assert "in one of the two: M = 64" in problem.text


def test_a_down_file_meets_the_up_file_of_another_triton(installed):
    files = {f"moe/triton_3_4_0/{H200}": table(16), f"moe/triton_3_6_0/{DOWN}": table(64)}
    (problem,) = linted(installed("0.5.12", files, triton="3.6.0")).problems
    assert (problem.severity, problem.code) == ("error", "block-m-differs")
    assert "than the up file of Triton 3.4.0, with which Triton 3.6.0 uses it" in problem.text


def test_a_down_file_alone_meets_the_built_in_config(installed):
    (problem,) = linted(installed("0.5.12", {f"moe/triton_3_6_0/{DOWN}": table(32)})).problems
    assert (problem.severity, problem.code) == ("error", "block-m-differs")
    assert "than the built-in up config, with which Triton 3.6.0 uses it" in problem.text


def test_a_down_file_whose_up_file_is_broken_is_left_alone(tmp_path):
    assert told(folder(tmp_path, v3_6_0={H200: "{", DOWN: table(32)})) == [("error", "not-json", H200)]


# --- what SGLang ships ------------------------------------------------------------------------------------

# from 0.5.9 on
WRONG_MOE = "E=512,N=256,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128].json"
WRONG_GEMM = {  # up to 0.5.9, whose kernel stays on the first scale
    f"N={rows},K={depth},device_name={device},dtype=fp8_w8a8,block_shape=[128, 128].json"
    for rows, depth, device in (
        (2048, 512, "NVIDIA_H20"),
        (4096, 512, "NVIDIA_B200"),
        (7168, 256, "NVIDIA_B200"),
        (7168, 256, "AMD_Radeon_Graphics"),
    )
}
NEVER_READ = {
    f"E=384,N=128,device_name=,dtype=int4_w4a16{down}.json" for down in ("", "_down")
}  # from 0.5.10 on


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_ships_has_the_problems_of_docs_configs_and_no_others(sglang_wheel, release):
    result = linted(sglang_wheel(release))
    number = tuple(int(part) for part in release.split("."))
    found = {(each.severity, each.code, each.file.rpartition("/")[2]) for each in result.problems}
    assert {each for each in found if each[0] == "error"} == {
        ("error", "block-k", name)
        for name in ({WRONG_MOE} if number >= (0, 5, 9) else set())
        | (WRONG_GEMM if number < (0, 5, 10) else set())
    }
    assert {each for each in found if each[0] == "warning"} == {
        ("warning", "name-never-read", name) for name in (NEVER_READ if number >= (0, 5, 10) else set())
    }
    assert {code for severity, code, _ in found if severity == "info"} <= {
        "keys-far",
        "keys-differ",
        "block-k-raised",
    }
    assert (result.release.version, result.assumed, result.unread) == (release, False, ())


# --- anything ---------------------------------------------------------------------------------------------

contents = st.one_of(
    st.binary(max_size=60),
    st.recursive(
        st.none() | st.booleans() | st.integers(-4, 600) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["1", "16", "-3", "x", "BLOCK_SIZE_M", "BLOCK_SIZE_K"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)
file_names = st.one_of(
    st.sampled_from([H200, DOWN, GEMM, LORA, "E=1.json"]),
    st.text("EN=,_ []device_name0123456789.down", max_size=30).map(lambda text: f"E={text}.json"),
)
folder_names = st.sampled_from(["triton_3_6_0", "triton_3_5_1", "triton_x", "triton_", "triton_3.6.0", "."])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    held=st.dictionaries(st.tuples(folder_names, file_names), contents, max_size=5),
    release=st.sampled_from(["0.5.7", "0.5.12", "0.5.23"]),
)
def test_any_folder_is_linted(tmp_path_factory, held, release):
    root = tmp_path_factory.mktemp("any") / "configs"
    (root / "triton_3_4_0").mkdir(parents=True)
    for (inside, name), content in held.items():
        (root / inside).mkdir(exist_ok=True)
        (root / inside / name).write_bytes(content)
    try:
        result = linted(root, release)
    except Undecided:
        assert not [name for inside, name in held if inside != "."]
        return
    assert len(result.files) == len([name for inside, name in held if inside != "."])
