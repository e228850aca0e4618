"""Installed packages on disk, as pip lays them out."""

from __future__ import annotations

import json
from pathlib import Path

# From the METADATA of the wheels on PyPI.
TORCH_REQUIRES = {
    "2.9.1": 'triton==3.5.1; platform_system == "Linux" and platform_machine == "x86_64"',
    "2.11.0": 'triton==3.6.0; platform_system == "Linux"',
    "2.14.1": 'triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"',
}


def distribution(site: Path, name: str, version: str, *requires: str, tag: str = "py3-none-any") -> Path:
    """Write the metadata of an installed wheel into ``site`` and return its folder."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (folder / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: quoted-in-the-description\n")
    (folder / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
    return folder


def sglang(site: Path, version: str) -> Path:
    """Write an installed SGLang, its version file as 0.5.12's build writes it."""
    distribution(site, "sglang", version)
    return sglang_sources(site, version)


def sglang_sources(parent: Path, version: str) -> Path:
    package = parent / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "_version.py").write_text(
        f"version: str\n__version__: str\n\n__version__ = version = '{version}'\n"
        "__version_tuple__ = version_tuple = (0, 5, 12)\n"
    )
    return package


def triton(site: Path, version: str, distribution_name: str = "triton") -> None:
    """Write an installed Triton, its first lines as in 3.6.0's ``__init__.py``."""
    distribution(site, distribution_name, version.split("+", maxsplit=1)[0])
    package = site / "triton"
    package.mkdir()
    (package / "__init__.py").write_text(f'"""isort:skip_file"""\n__version__ = \'{version}\'\n')


def torch(site: Path, version: str, cuda: str | None = "13.0") -> None:
    """Write an installed torch, its version.py as torch's build writes it."""
    distribution(site, "torch", version, TORCH_REQUIRES[version], tag="cp312-cp312-manylinux_2_28_x86_64")
    package = site / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "version.py").write_text(
        "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        f"__version__ = '{version}+cu130'\ndebug = False\n"
        f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
    )


def direct_url(folder: Path, source: Path) -> None:
    """Mark an installed distribution as an editable install of ``source`` (PEP 610)."""
    said = {"dir_info": {"editable": True}, "url": source.as_uri()}
    (folder / "direct_url.json").write_text(json.dumps(said))
