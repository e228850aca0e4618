"""The archive that runs without being installed: on its first start, its next, and where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sgdoctor
from sgdoctor.engine import rules
from tools import zipapp

ROOT = Path(__file__).parents[2]
VERSION = f"sgdoctor {sgdoctor.__version__}\n"

pytestmark = pytest.mark.slow


class Started:
    """The archive as a user of a machine starts it, with a home and a folder for temporary files."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.archive = archive
        self.home = folder / "home"
        self.temporary = folder / "temporary"
        self.elsewhere = folder / "elsewhere"
        for made in (self.home, self.temporary, self.elsewhere):
            made.mkdir()
        self.environment = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PATH": os.environ["PATH"]}

    @property
    def cache(self) -> Path:
        return self.home / ".cache" / "sgdoctor"

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-I", str(self.archive), *arguments],
            cwd=self.elsewhere,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        with self.start(*arguments, **environment) as child:
            out, err = child.communicate()
        return child.returncode, out, err


@pytest.fixture
def started(archive, tmp_path):
    return Started(archive, tmp_path)


def test_it_runs_and_is_unpacked_once(started):
    assert started.run("--version") == (0, VERSION, "")
    (unpacked,) = started.cache.iterdir()
    first = unpacked.stat()
    assert started.run("--version") == (0, VERSION, "")
    (unpacked,) = started.cache.iterdir()
    assert unpacked.stat().st_ino == first.st_ino
    assert list(started.temporary.iterdir()) == []


def test_it_brings_its_rules_and_its_compiled_dependencies(started):
    code, out, err = started.run("rules", "list")
    assert (code, err) == (0, "")
    assert all(rule.code in out for rule in rules.load(root=ROOT / "rules"))


def test_it_can_be_run_as_a_command(started):
    ran = subprocess.run(
        [started.archive, "--version"],
        env={**started.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == VERSION


def test_several_first_starts_at_once_unpack_one_folder(started):
    children = [started.start("--version") for _ in range(3)]
    assert [child.communicate() for child in children] == [(VERSION, "")] * 3
    (unpacked,) = started.cache.iterdir()
    assert unpacked.name.startswith("pyz-")


def test_the_cache_is_where_the_environment_says(started, tmp_path):
    cache = tmp_path / "caches" / "mine"
    assert started.run("--version", XDG_CACHE_HOME=str(cache)) == (0, VERSION, "")
    assert [folder.name[:4] for folder in (cache / "sgdoctor").iterdir()] == ["pyz-"]
    assert (cache / "sgdoctor").stat().st_mode & 0o777 == 0o700


def test_without_a_cache_it_is_unpacked_for_one_run_and_nothing_is_left(started, tmp_path):
    (tmp_path / "file").touch()
    assert started.run("--version", XDG_CACHE_HOME=str(tmp_path / "file")) == (0, VERSION, "")
    assert list(started.temporary.iterdir()) == []


def test_code_is_not_run_from_a_folder_into_which_others_can_write(started):
    started.cache.mkdir(parents=True)
    started.cache.chmod(0o777)
    assert started.run("--version") == (0, VERSION, "")
    assert list(started.cache.iterdir()) == []


def test_where_it_cannot_be_unpacked_at_all_it_says_so_in_a_line(started):
    ran = subprocess.run(
        ["sh", "-c", 'ulimit -f 64 && exec "$@"', "sh", sys.executable, started.archive, "--version"],
        env=started.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("sgdoctor.pyz: cannot be unpacked")
    assert "set TMPDIR" in ran.stderr
    assert list(started.cache.iterdir()) == list(started.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("built_for", "reason"),
    [
        (
            {"suffix": ".cpython-399-riscv64-linux-gnu.so", "built_for": "cpython 3.99 on linux-riscv64"},
            "built for cpython 3.99 on linux-riscv64 (*.cpython-399-riscv64-linux-gnu.so) and runs with no",
        ),
        ({"glibc": "99.1"}, "built for glibc 99.1 or newer; this is"),
    ],
)
def test_another_python_is_told_so_in_a_line(built_for, reason, tmp_path):
    file = tmp_path / "sgdoctor.pyz"
    with zipfile.ZipFile(file, "w") as content:
        content.writestr(
            "__main__.py", zipapp.bootstrap(**{"sha256": "0" * 64, "glibc": "2.17", **built_for})
        )
    ran = subprocess.run([sys.executable, file, "check"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"sgdoctor.pyz: {reason}")
    if "suffix" in built_for:
        this = f"python{sys.version_info.major}.{sys.version_info.minor}"
        assert ran.stderr.endswith(f"; for this one: make zipapp VENV=.venv-pyz PYTHON={this}\n")
    assert ran.stderr.count("\n") == 1
