"""Where config files are found: everything an operator may name as PATH."""

from __future__ import annotations

import os

import pytest
from packaging.version import Version

from sgdoctor.configs import files, places
from sgdoctor.errors import UsageError
from sgdoctor.upstream import catalogue
from tests.configs.conftest import table, write

H200 = "E=128,N=768,device_name=NVIDIA_H200.json"
GEMM = "N=512,K=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
LORA = "lora_shrink,K=512,R=8,S=1,device=NVIDIA_H200.json"
ALL = {f"moe/triton_3_6_0/{H200}": {}, f"gemm/{GEMM}": {}, f"lora/triton_3_6_0/{LORA}": {}}


def found(path):
    return [(file.family, file.triton, file.path.name) for file in files.collect(places.find(str(path)))]


EVERY = [("moe", "3.6.0", H200), ("gemm", None, GEMM), ("lora", "3.6.0", LORA)]


def test_an_installed_sglang(installed):
    site = installed("0.5.12", ALL, triton="3.6.0")
    place = places.find(str(site))
    assert (place.version, place.triton) == ("0.5.12", "3.6.0")
    assert place.package == site / "sglang"
    assert found(site) == EVERY
    assert found(site / "sglang") == EVERY


def test_a_virtual_environment_and_its_interpreter(installed, tmp_path):
    site = installed("0.5.23", ALL)
    venv = tmp_path / "venv"
    library = venv / "lib" / "python3.11"
    library.mkdir(parents=True)
    site.rename(library / "site-packages")
    (venv / "pyvenv.cfg").write_text("version = 3.11.4\n")
    assert found(venv) == EVERY


def test_a_checkout(installed, tmp_path):
    (tmp_path / "checkout").mkdir()
    installed("0.5.16", ALL).rename(tmp_path / "checkout" / "python")
    assert found(tmp_path / "checkout") == EVERY


def test_the_folder_of_every_release_is_known():
    for version in catalogue.releases():
        release = catalogue.Release(version)
        assert places.own_folder("moe", release) == release.moe_folder
        assert (places.own_folder("lora", release) is None) == (Version(version) < Version("0.5.11"))
    assert places.folders_of("gemm")[0] == "kernels/ops/gemm/configs"


def test_a_folder_in_place_of_sglangs_own(tmp_path):
    write(tmp_path / "dir", {f"configs/triton_3_6_0/{H200}": {}, f"configs/triton_3_5_1/{H200}": {}})
    expected = [("moe", "3.5.1", H200), ("moe", "3.6.0", H200)]
    assert found(tmp_path / "dir") == expected
    assert found(tmp_path / "dir" / "configs") == expected
    assert found(tmp_path / "dir" / "configs" / "triton_3_6_0") == expected[1:]


def test_links_are_followed(tmp_path):
    write(tmp_path, {f"elsewhere/{H200}": {}})
    (tmp_path / "configs").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "configs" / "triton_3_6_0")  # noqa: PTH211 (a folder)
    assert found(tmp_path / "configs") == [("moe", "3.6.0", H200)]


def test_folders_of_files_and_single_files(tmp_path):
    write(tmp_path / "gemm", {GEMM: {}, "README.md": ""})
    assert found(tmp_path / "gemm") == [("gemm", None, GEMM)]
    assert found(tmp_path / "gemm" / GEMM) == [("gemm", None, GEMM)]
    write(tmp_path / "tuned", {H200: {}, LORA: {}, "notes.json": {}})
    assert found(tmp_path / "tuned") == [("moe", None, H200), ("lora", None, LORA)]
    write(tmp_path / "csgmv_configs", {f"triton_3_5_1/{LORA}": {}})
    assert found(tmp_path / "csgmv_configs") == [("lora", "3.5.1", LORA)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "nothing: no such file, folder or program"),
        (
            "empty",
            "neither a virtual environment nor a folder of installed packages, nor of kernel config files",
        ),
        ("notes.json", "the name of one begins with E=, N= or lora_"),
        ("text.txt", "neither an interpreter nor a folder of packages"),
        ("bad\0name", "no such file, folder or program"),
    ],
)
def test_what_has_no_config_files_is_said(tmp_path, name, said):
    write(tmp_path, {"notes.json": {}, "text.txt": ""})
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError) as error:
        files.collect(places.find(str(tmp_path / name)))
    assert said in str(error.value)


# --- what lies where SGLang never looks -------------------------------------------------------------------


def misplaced(path, release):
    place = places.find(str(path))
    return {
        (problem.severity, problem.code, problem.file.removeprefix(f"{path}/"), problem.text)
        for problem in files.misplaced(place, catalogue.Release(release))
    }


def test_files_beside_the_triton_folders_and_below_them(tmp_path):
    write(tmp_path / "configs", {H200: {}, f"triton_3_6_0/old/{H200}": {}, f"triton_3_6_0/{H200}": table()})
    assert misplaced(tmp_path / "configs", "0.5.12") == {
        ("warning", "misplaced", name, "is never read: SGLang looks into its triton_X_Y_Z folders only")
        for name in (H200, f"triton_3_6_0/old/{H200}")
    }


def test_gemm_configs_know_no_triton(tmp_path):
    write(tmp_path, {f"gemm/triton_3_6_0/{GEMM}": {}, f"gemm/{GEMM}": {}})
    place = places.Place(path=tmp_path, trees=(places.Tree(family="gemm", root=tmp_path / "gemm"),))
    (problem,) = files.misplaced(place, catalogue.Release("0.5.23"))
    assert problem.text == "is never read: SGLang looks into the folder itself only"


def test_a_folder_whose_name_is_no_version_ends_the_lookup_from_0_5_12_on(tmp_path):
    write(tmp_path / "configs", {f"triton_3_6_0/{H200}": table(), "triton_3_6_0.bak/x.json": {}})
    ((severity, code, name, text),) = misplaced(tmp_path / "configs", "0.5.12")
    assert (severity, code, name) == ("error", "folder-ends-lookup", "triton_3_6_0.bak")
    assert "'3.6.0.bak' is none (ValueError)" in text
    assert misplaced(tmp_path / "configs", "0.5.11") == {
        ("warning", "misplaced", name, "is read by a Triton that calls itself 3.6.0.bak alone")
    }


def test_a_folder_named_with_dots_is_never_read(tmp_path):
    write(tmp_path / "configs", {f"triton_3.6.0/{H200}": table()})
    ((severity, code, _, text),) = misplaced(tmp_path / "configs", "0.5.23")
    assert (severity, code) == ("warning", "misplaced")
    assert text == "is never read: SGLang looks for Triton 3.6.0 in triton_3_6_0"


def test_files_left_in_an_older_releases_folder(installed):
    old = catalogue.Release("0.5.10")
    site = installed(
        "0.5.23",
        {
            f"moe/triton_3_8_0/{H200}": table(),
            f"sglang/{old.moe_folder}/triton_3_6_0/{H200}": table(),
            f"sglang/{old.gemm_folder}/{GEMM}": {},
            "sglang/srt/lora/triton_ops/csgmv_configs/triton_3_5_1/" + LORA: {},
        },
    )
    assert {
        (name, text.partition(", never read: ")[0]) for _, _, name, text in misplaced(site, "0.5.23")
    } == {
        (f"sglang/{old.moe_folder}", f"has {H200}"),
        (f"sglang/{old.gemm_folder}", f"has {GEMM}"),
        ("sglang/srt/lora/triton_ops/csgmv_configs", f"has {LORA}"),
    }
