"""The distributions, built once for all tests: the sdist from the checkout, the others from the sdist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import zipapp

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """Return a folder with the sdist and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def sdist(dist):
    (file,) = dist.glob("*.tar.gz")
    return file


@pytest.fixture(scope="session")
def wheel(dist):
    (file,) = dist.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def archive(wheel, tmp_path_factory):
    file = tmp_path_factory.mktemp("archive") / "sgdoctor.pyz"
    zipapp.build(file, wheel)
    return file
