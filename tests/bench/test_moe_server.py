"""The experiment with a real server, rehearsed: the stand-in takes the place of SGLang and of the tuner."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "bench/moe_server.py"


def experiment(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    places = [f"--{name}={folder / name}" for name in ("out", "work", "site")]
    command = [sys.executable, str(SCRIPT), "--rehearse", *places, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    # In two calls: the second goes on where the first stopped.
    first = experiment(folder, "--only", "before")
    assert first.returncode == 0, first.stdout + first.stderr
    second = experiment(folder)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "before: begins" not in second.stdout
    return folder


def test_the_gap_is_found_closed_and_no_longer_found(rehearsed: Path) -> None:
    summary = json.loads((rehearsed / "work/summary.json").read_text())
    assert summary["before"]["codes"] == ["CFG101"]
    assert summary["fix"]["files"] == [
        "E=256,N=256,device_name=NVIDIA_H200.json",
        "E=256,N=256,device_name=NVIDIA_H200_down.json",
    ]
    assert [Path(path).name for path in summary["after"]["config_files"]] == summary["fix"]["files"]
    assert summary["after"]["codes"] == []
    assert {line["load"] for line in summary["after"]["compared"]} == {"decode"}
    assert set(summary) == {"before", "fix", "after", "dense"}


def test_what_comes_back_names_no_path_of_the_machine(rehearsed: Path) -> None:
    with tarfile.open(rehearsed / "out/moe-server.tar.xz") as archive:
        files = {entry.name: archive.extractfile(entry).read().decode() for entry in archive.getmembers()}
    for folder in ("moe-e256-n256-l16-healthy", "dense-healthy"):
        assert f"captures/{folder}/server.log" in files
        assert f"captures/{folder}/expect.yaml" in files
    assert "--model-path /models/dense " in files["captures/dense-healthy/command.txt"]
    assert "from /usr/local/lib/python3.12/dist-packages/sglang/" in files["after/server.log"]
    named = re.compile(
        f"{re.escape(str(rehearsed / 'site'))}|{re.escape(str(rehearsed / 'work' / 'models'))}"
    )
    assert [name for name, text in files.items() if named.search(text)] == []


def test_nothing_is_measured_again_when_all_is_done(rehearsed: Path) -> None:
    said = experiment(rehearsed)
    assert (said.returncode, said.stdout) == (0, "")


def test_a_server_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    # Not rehearsed: there is no SGLang in this interpreter.
    places = [f"--{name}={tmp_path / name}" for name in ("out", "work", "site")]
    command = [sys.executable, str(SCRIPT), *places, "--only", "dense"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 3
    assert "dense: ended with 1" in said.stdout
    assert "sglang" in said.stdout
    assert "Traceback" not in said.stderr
    assert (tmp_path / "out/moe-server.tar.xz").is_file()


def test_too_little_time_left_begins_nothing(tmp_path: Path) -> None:
    places = [f"--{name}={tmp_path / name}" for name in ("out", "work", "site")]
    command = [sys.executable, str(SCRIPT), *places, "--seconds", "60"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 3
    assert "the same command goes on with it" in said.stdout
