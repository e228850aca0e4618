"""Make dist/sgdoctor.pyz: sgdoctor and all that it needs in one file, for this Python and this platform.

Run as ``python -m tools.zipapp [--output FILE] [SOURCE]`` in the checkout; SOURCE is a wheel or a checkout,
this one by default. The archive runs with ``python3 sgdoctor.pyz check`` and installs nothing.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib.machinery
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipapp
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOOTSTRAP = Path(__file__).with_name("zipapp_main.py")

_GLIBC_TAG = re.compile(r"^Tag: \S*manylinux(?:_(\d+)_(\d+)|\d+)_\w+$", re.MULTILINE)
_OLDEST_GLIBC = (2, 17)  # manylinux2014; what is older is no longer met


def build(output: Path, source: Path = ROOT) -> None:
    """Write the archive; raises CalledProcessError when pip fails."""
    with tempfile.TemporaryDirectory() as scratch:
        content = Path(scratch)
        site = content / "site"
        install(source, site)
        glibc = ".".join(str(number) for number in required_glibc(site))
        (content / "__main__.py").write_text(bootstrap(digest(site), glibc), encoding="utf-8")
        output.parent.mkdir(parents=True, exist_ok=True)
        part = output.with_name(f".{output.name}.part")
        zipapp.create_archive(content, part, interpreter="/usr/bin/env python3", compressed=True)
        part.chmod(0o755)
        part.replace(output)


def install(source: Path, site: Path) -> None:
    """Install ``source`` and what it requires into the folder ``site``, byte-compiled, without scripts."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    shutil.rmtree(site / "bin", ignore_errors=True)
    for name in ("RECORD", "direct_url.json"):  # they tell of this machine
        for file in site.glob(f"*.dist-info/{name}"):
            file.unlink()
    never_stale = py_compile.PycInvalidationMode.UNCHECKED_HASH  # unpacking changes the files' times
    compiled = compileall.compile_dir(site, quiet=1, invalidation_mode=never_stale, stripdir=str(site))
    assert compiled, "a file of a dependency cannot be compiled"


def digest(folder: Path) -> str:
    """Return the SHA-256 of the names and the contents of all files in ``folder``."""
    found = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        found.update(f"{file.relative_to(folder).as_posix()}\n{len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def required_glibc(site: Path) -> tuple[int, int]:
    """Return the oldest glibc that all compiled modules in ``site`` can do with, by their wheels' tags."""
    needed = [_OLDEST_GLIBC]
    for file in site.glob("*.dist-info/WHEEL"):
        tags = list(_glibc_tags(file.read_text(encoding="utf-8")))
        needed += [min(tags)] if tags else []
    return max(needed)


def _glibc_tags(wheel: str) -> Iterator[tuple[int, int]]:
    for found in _GLIBC_TAG.finditer(wheel):
        major, minor = found.groups()
        yield (int(major), int(minor)) if major else _OLDEST_GLIBC


def bootstrap(sha256: str, glibc: str, suffix: str | None = None, built_for: str | None = None) -> str:
    """Return the archive's __main__.py; ``suffix`` and ``built_for`` are by default those of this Python."""
    filled = BOOTSTRAP.read_text(encoding="utf-8")
    version = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    values = {
        "SUFFIX": suffix or importlib.machinery.EXTENSION_SUFFIXES[0],
        "BUILT_FOR": built_for or f"{version} on {sysconfig.get_platform()}",
        "GLIBC": glibc,
        "DIGEST": sha256,
    }
    for name, value in values.items():
        filled = filled.replace(f'"@{name}@"', f'"{value}"')
    return filled


def main() -> int:
    """Build the archive; return pip's exit code where it fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.zipapp", description="Make dist/sgdoctor.pyz.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "sgdoctor.pyz", metavar="FILE")
    parser.add_argument("source", type=Path, nargs="?", default=ROOT, metavar="SOURCE")
    given = parser.parse_args()
    try:
        build(given.output, given.source)
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"{os.path.relpath(given.output)}: {given.output.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
