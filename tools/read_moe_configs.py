"""Which kernel configurations a release ships: for fused MoE, block-wise GEMM and LoRA."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Configs(msgspec.Struct, frozen=True):
    """The config files of one release. Folders are relative to the ``sglang`` package.

    ``moe`` has the file names of each ``triton_*`` folder in ``moe_folder``; ``gemm`` those of the block FP8
    and INT8 (from 0.5.18 also channel-wise FP8) GEMM configurations, which know no Triton version; ``lora``
    those of each ``triton_*`` folder of the csgmv kernels (from 0.5.11 on).
    """

    moe_folder: str
    moe: dict[str, tuple[str, ...]]
    gemm_folder: str
    gemm: tuple[str, ...]
    lora: dict[str, tuple[str, ...]]


def read_configs(package_dir: Path) -> Configs:
    """Read the listings below ``package_dir``, the ``sglang`` folder of a wheel."""
    moe: dict[Path, set[str]] = {}
    gemm: dict[Path, set[str]] = {}
    lora: dict[Path, set[str]] = {}
    for path in package_dir.rglob("*.json"):
        if path.name.startswith("E=") and path.parent.name.startswith("triton_"):
            moe.setdefault(path.parent, set()).add(path.name)
        elif path.name.startswith("N=") and ",K=" in path.name:
            gemm.setdefault(path.parent, set()).add(path.name)
        elif path.name.startswith("lora_") and path.parent.parent.name == "csgmv_configs":
            lora.setdefault(path.parent, set()).add(path.name)
    (root,) = {folder.parent for folder in moe}
    ((gemm_folder, gemm_names),) = gemm.items()
    return Configs(
        moe_folder=root.relative_to(package_dir).as_posix(),
        moe={folder.name: tuple(sorted(names)) for folder, names in sorted(moe.items())},
        gemm_folder=gemm_folder.relative_to(package_dir).as_posix(),
        gemm=tuple(sorted(gemm_names)),
        lora={folder.name: tuple(sorted(names)) for folder, names in sorted(lora.items())},
    )
