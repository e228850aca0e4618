"""All that the catalogue takes from one release: the rows of its tables."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sgdoctor.upstream.source_fields import Field, ServerArgsSource, known
from sgdoctor.upstream.source_flags import read_flags
from tools.intervals import Row
from tools.read_moe_configs import read_configs
from tools.read_pins import read_pins, requirement_row, triton_of_torch
from tools.read_rewrites import read_rewrites
from tools.read_serve import read_serve


def read_release(version: str, source: Path) -> dict[str, list[Row]]:
    """Return table name -> rows of the unpacked wheel in ``source``, in the release's own order."""
    package = source / "sglang"
    fields = ServerArgsSource(package).fields()
    pins, configs = read_pins(source), read_configs(package)
    release = {
        "version": version,
        "python": pins.python,
        "torch": pins.torch,
        "triton": triton_of_torch(pins.torch),
        "moe_folder": configs.moe_folder,
        "gemm_folder": configs.gemm_folder,
        "serve": msgspec.to_builtins(read_serve(package)),
        "assertions": msgspec.to_builtins(pins.assertions),
    }
    resolvable = [field.name for field in fields if (field.meta or {}).get("resolvable")]
    rewritten = read_rewrites(package, [field.name for field in fields], resolvable)
    return {
        "releases": [release],
        "requirements": [requirement_row(line) for line in pins.requirements],
        "flags": [{"flag": msgspec.to_builtins(flag)} for flag in read_flags(package)],
        "fields": [_field_row(field) for field in fields],
        "rewritten": [{"name": name} for name in sorted(rewritten)],
        "moe_configs": [
            {"folder": folder, "name": name} for folder, names in configs.moe.items() for name in names
        ],
        "gemm_configs": [{"name": name} for name in configs.gemm],
        "lora_configs": [
            {"folder": folder, "name": name} for folder, names in configs.lora.items() for name in names
        ],
    }


def _field_row(field: Field) -> Row:
    row: Row = {"name": field.name}
    if not known(field.default):
        row["unknown"] = True
    elif field.default is not None:
        row["default"] = field.default
    if field.fallback is not None:
        row["fallback"] = field.fallback
    return row
