"""Small SGLangs and config folders on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sgdoctor.upstream import catalogue

TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4}


def tile(m: int = 16, **more: Any) -> dict[str, Any]:
    return {**TILE, "BLOCK_SIZE_M": m, **more}


def table(m: int = 16, **more: Any) -> dict[str, Any]:
    """Return a table without a batch far from every key."""
    return {key: tile(m, **more) for key in ("1", "16", "256", "1024")}


def write(root: Path, files: Mapping[str, Any]) -> Path:
    """Write files below ``root``: text as it is, anything else as JSON."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Path]:
    """Return what makes a site-packages with an SGLang of a release that holds only these config files.

    Their names begin with ``moe/``, ``gemm/`` or ``lora/`` for the family's folder in that release.
    """

    def make(version: str, files: Mapping[str, Any], triton: str | None = None) -> Path:
        from sgdoctor.configs.places import own_folder

        site = tmp_path / "site-packages"
        own = {
            "sglang/__init__.py": "",
            "sglang/srt/__init__.py": "",
            f"sglang-{version}.dist-info/METADATA": metadata("sglang", version),
        }
        if triton is not None:
            own["triton/__init__.py"] = f"__version__ = '{triton}'\n"
            own[f"triton-{triton}.dist-info/METADATA"] = metadata("triton", triton)
        release = catalogue.Release(version)
        for name, content in files.items():
            family, _, rest = name.partition("/")
            folder = own_folder(family, release) if family in ("moe", "gemm", "lora") else None
            own[f"sglang/{folder}/{rest}" if folder else name] = content
        return write(site, own)

    return make
