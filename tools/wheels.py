"""SGLang's wheels: downloading one, and unpacking what the readers need."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"

_NEEDED = (".py", ".json", "/METADATA")
_DOWNLOAD_TIMEOUT = 600  # seconds


class DownloadError(Exception):
    """pip gave no wheel, with what it said."""


def download(version: str, folder: Path = CACHE / "wheels") -> Path:
    """Return the wheel of ``version`` in ``folder``, from pip's package index when it is not there yet.

    Wheels from 0.5.11 on are tagged for CPython 3.11 on Linux; their Python sources are for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(folder.glob(f"sglang-{version}-*.whl"))
    if found:
        return found[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]
    command += ["--platform=manylinux_2_34_x86_64", f"--dest={folder}", f"sglang=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT, check=False)
    found = sorted(folder.glob(f"sglang-{version}-*.whl"))
    if done.returncode or not found:
        raise DownloadError(f"{' '.join(command)}\n{done.stderr.strip()}")
    return found[0]


def unpack(wheel: Path, folder: Path = CACHE / "sources") -> Path:
    """Unpack the sources, JSON files and metadata of ``wheel`` and return where: ``folder``/<version>."""
    version = wheel.name.split("-")[1]
    target = folder / version
    if (target / "sglang").is_dir():
        return target
    partial = folder / f"{version}.partial"
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("sglang") and name.endswith(_NEEDED)]
        archive.extractall(partial, names)
    partial.rename(target)
    return target


def sources(version: str) -> Path:
    """Return the unpacked wheel of ``version``: the folder that holds sglang/ and sglang-*.dist-info/."""
    cached = CACHE / "sources" / version
    with _alone(version):
        return cached if (cached / "sglang").is_dir() else unpack(download(version))


@contextlib.contextmanager
def _alone(version: str) -> Iterator[None]:
    """Hold off other processes: tests run in several, and each may want a wheel that is not there yet."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
