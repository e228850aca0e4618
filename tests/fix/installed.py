"""A virtual environment with the kernel and config files of a real release; its torch is a folder."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from sgdoctor.upstream import catalogue
from tests.collect import layouts

TORCH = {"3.6.0": "2.11.0", "3.5.1": "2.9.1", "3.8.0": "2.14.1"}


@dataclass(frozen=True)
class Installation:
    """``prefix`` is the environment, ``package`` its sglang folder, ``root`` that of the triton_* folders."""

    prefix: Path
    package: Path
    root: Path

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")

    def folder(self, triton: str) -> Path:
        return self.root / f"triton_{triton.replace('.', '_')}"


def install(prefix: Path, wheel: Path, version: str, triton: str = "3.6.0") -> Installation:
    """Lay out ``prefix`` with what a repair reads and writes of the unpacked ``wheel``."""
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    site = prefix / library
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(sys.executable)
    (prefix / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    package = layouts.sglang(site, version)
    layouts.triton(site, triton)
    layouts.torch(site, TORCH[triton])
    source = wheel / "sglang"
    release = catalogue.resolve(version)
    assert release is not None
    for kernel in source.rglob("fused_moe_triton_kernels.py"):
        target = package / kernel.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernel, target)
    root = package / release.moe_folder
    shutil.copytree(source / release.moe_folder, root)
    return Installation(prefix, package, root)
