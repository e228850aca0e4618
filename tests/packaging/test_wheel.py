"""What is installed from a wheel that was made from the sdist: all of it, and it finds its rules and data."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sgdoctor.engine import rules

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def files(folder: Path) -> set[str]:
    """Return the files of the checkout that belong to a distribution."""
    found = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(ROOT).as_posix() for file in found}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the bin folder of an environment that has the wheel and what it requires, and nothing else."""
    environment = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    return environment / "bin"


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_the_package_with_its_data_and_its_rules_and_nothing_else(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = files(ROOT / "sgdoctor")
    expected |= {name.replace("rules/", "sgdoctor/_rules/", 1) for name in files(ROOT / "rules")}
    assert packed == expected
    assert "sgdoctor/py.typed" in packed
    assert "sgdoctor/data/samples/moe-no-config/server.log" in packed


def test_the_sdist_has_what_the_tests_and_the_docs_are_made_from(sdist):
    with tarfile.open(sdist) as content:
        names = [name.partition("/")[2] for name in content.getnames()]
    assert len(names) == len(set(names))
    for folder in ("sgdoctor", "rules", "tests", "tools", "docs"):
        assert files(ROOT / folder) <= set(names), folder
    assert {"README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"} <= set(names)
    assert not [name for name in names if name.startswith((".venv", "dist", ".git/"))]


def test_an_installed_sgdoctor_finds_all_its_rules(installed, tmp_path):
    listed = run(installed / "sgdoctor", "rules", "list", "--format", "json", cwd=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    told = json.loads(listed.stdout)
    assert [each["code"] for each in told] == [rule.code for rule in rules.load(root=ROOT / "rules")]
    assert all(Path(each["file"]).is_relative_to(installed.parent) for each in told)


def test_an_installed_sgdoctor_explains_a_rule(installed, tmp_path):
    page = run(installed / "sgdoctor", "explain", "moe-config-missing", cwd=tmp_path)
    assert page.returncode == 0
    assert page.stdout.startswith("CFG101  warning")


def test_an_installed_sgdoctor_has_its_sample(installed, tmp_path):
    checked = run(installed / "sgdoctor", "check", "--sample", "moe-no-config", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "CFG101" in checked.stdout


def test_types_of_an_installed_sgdoctor_can_be_checked(installed, tmp_path):
    """Type checkers read a package only if it has py.typed."""
    where = "import sgdoctor, pathlib; print(pathlib.Path(sgdoctor.__file__).with_name('py.typed').exists())"
    assert run(installed / "python", "-I", "-c", where, cwd=tmp_path).stdout == "True\n"
