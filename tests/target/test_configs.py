"""Which config files the experts' kernel loses and gains. The files are those of the wheels."""

from __future__ import annotations

import shutil
from pathlib import Path

from sgdoctor.target import folders, path

from .conftest import Move, told

H200_512 = "E=256,N=512,device_name=NVIDIA_H200.json"
H200_768 = "E=128,N=768,device_name=NVIDIA_H200.json"


def test_a_file_that_a_newer_release_ships(move: Move) -> None:
    """triton_3_7_1/E=256,N=512,device_name=NVIDIA_H200.json came with 0.5.18."""
    up, down = told(move("0.5.23", start="0.5.17", model="moe-e256-i512"), "config-gained")
    assert (up.subject, up.before, up.after) == (
        "up config",
        "the built-in config",
        f"triton_3_7_1/{H200_512}",
    )
    assert (down.subject, down.release, up.release) == ("down config", "0.5.18", "0.5.18")


def test_a_file_that_an_older_release_does_not_have(move: Move) -> None:
    up, down = told(move("0.5.17", start="0.5.18", model="moe-e256-i512"), "config-lost")
    assert (up.severity, up.before, up.after) == (
        "warning",
        f"triton_3_7_1/{H200_512}",
        "the built-in config",
    )
    assert up.release == down.release == "0.5.18"
    assert up.do == "tune it on this GPU with Triton 3.6.0"


def test_another_file_for_the_same_shape(move: Move) -> None:
    """triton_3_6_0 got a file in 0.5.16; the one of triton_3_2_0 was used before."""
    [change] = told(move("0.5.16", start="0.5.12", model="moe-e128-n768"), "config-other")
    assert (change.before, change.after) == (f"triton_3_2_0/{H200_768}", f"triton_3_6_0/{H200_768}")
    assert change.release == "0.5.16"


def test_what_is_told_file_by_file_is_not_told_as_a_rule(move: Move) -> None:
    walk = move("0.5.17", start="0.5.18", model="moe-e256-i512")
    assert walk.end.outcome("CFG101") == "fail"
    assert not [each for each in told(walk, "rule-entered") if each.subject.startswith("CFG10")]


def test_the_folder_moved_in_0_5_11(move: Move) -> None:
    [change] = told(move("0.5.12", start="0.5.9", model="moe-e128-n768"), "config-folder")
    assert change.release == "0.5.11"
    assert change.before == "srt/layers/moe/fused_moe_triton/configs"
    assert change.after == "srt/layers/moe/moe_runner/triton_utils/configs"
    assert told(move("0.5.12", start="0.5.9", model="dense"), "config-folder") == []


def installed(site: Path, version: str) -> Path:
    """Write as much of an installed SGLang as the config lookup needs, and return its package's folder."""
    package = site / "sglang"
    release = path.exactly(version, "")
    for folder, names in release.moe_listing.items():
        for name in list(names)[:2]:
            file = package / release.moe_folder / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("{}")
    (package / release.gemm_folder).mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text(f"__version__ = '{version}'\n")
    for name, number in (("sglang", version), ("triton", release.triton_pin)):
        metadata = site / f"{name}-{number}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n\n")
    (site / "triton").mkdir()
    (site / "triton" / "__init__.py").write_text(f"__version__ = '{release.triton_pin}'\n")
    return package


def test_files_put_into_the_old_folder_by_hand_are_no_longer_read(move: Move, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    package = installed(site, "0.5.9")
    old = package / "srt/layers/moe/fused_moe_triton/configs"
    mine = old / "triton_3_5_1" / H200_512
    mine.parent.mkdir(exist_ok=True)
    mine.write_text('{"1": {}}')
    (old / H200_512).write_text("{}")  # beside the folders: read by no release
    gemm = package / "srt/layers/quantization/configs/N=1,K=2,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"
    gemm.write_text("{}")

    walk = move("0.5.16", model="moe-e256-i512", python=str(site))
    moe, linear = told(walk, "config-unread")
    assert (moe.severity, moe.release) == ("warning", "0.5.11")
    assert f"triton_3_5_1/{H200_512}" in moe.message
    assert moe.do == "copy them to srt/layers/moe/moe_runner/triton_utils/configs after the upgrade"
    assert (linear.severity, linear.release) == ("warning", "0.5.16")
    assert gemm.name in linear.message
    # the folder of the installation is not taken for that of the other release
    [lost] = [each for each in told(walk, "config-lost") if each.subject == "up config"]
    assert lost.after == "the built-in config"


def test_files_put_into_a_folder_that_stays_are_worth_a_word(move: Move, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    package = installed(site, "0.5.12")
    folder = package / "srt/layers/moe/moe_runner/triton_utils/configs/triton_3_6_0"
    folder.mkdir(exist_ok=True)
    (folder / H200_512).write_text('{"1": {}}')
    [change] = told(move("0.5.13", model="moe-e256-i512", python=str(site)), "config-unread")
    assert (change.severity, change.release) == ("info", None)
    assert change.do == "take them along to a new environment or image"


def test_what_a_release_ships_is_nobodys_own(sglang_wheel, tmp_path: Path) -> None:
    release = path.exactly("0.5.12", "")
    shutil.copytree(
        sglang_wheel("0.5.12") / "sglang" / release.moe_folder, tmp_path / "sglang" / release.moe_folder
    )
    from sgdoctor.facts import Facts

    facts = Facts()
    facts.set("sglang.path", str(tmp_path / "sglang"), source="packages", place="here")
    assert folders.own_files(facts, release, folders.MOE) == []
