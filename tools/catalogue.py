"""Generates sgdoctor/data/ from SGLang's wheels: ``python -m tools.catalogue``. See tools/README.md."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.source_eval import Unresolved
from sgdoctor.upstream.source_flags import Field, FlagReader
from tools.intervals import intervals, write
from tools.read_moe_configs import Configs, read_configs
from tools.read_pins import TRITON_OF_TORCH, Pins, read_pins
from tools.read_rewrites import read_rewrites
from tools.wheels import RELEASES, ROOT, sources

GENERATOR = "python -m tools.catalogue"
DATA = ROOT / "sgdoctor" / "data"
MACHINES = ("x86_64", "aarch64")  # platform.machine() of the Linux hosts that markers are evaluated for


class ReleaseSource(msgspec.Struct, frozen=True):
    """All that the catalogue takes from one release."""

    flags: list[Flag]
    fields: list[Field]
    rewritten: frozenset[str]
    pins: Pins
    configs: Configs


def read_release(source: Path) -> ReleaseSource:
    """Read one unpacked wheel."""
    package = source / "sglang"
    reader = FlagReader(package)
    fields = reader.fields()
    return ReleaseSource(
        flags=reader.flags(),
        fields=fields,
        rewritten=read_rewrites(package, [field.name for field in fields]),
        pins=read_pins(source),
        configs=read_configs(package),
    )


def tables(found: Mapping[str, ReleaseSource]) -> dict[str, dict[str, list[Any]]]:
    """Return file name -> table name -> rows of the whole catalogue."""
    releases = list(found)
    return {
        "releases.json": {
            "releases": [_release_row(release, source) for release, source in found.items()],
        },
        "requirements.json": {
            "requirements": _json_rows(
                releases, {r: [_requirement_row(text) for text in s.pins.requirements] for r, s in found.items()}
            )
        },
        "flags.json": {
            "flags": _flag_rows(releases, found),
        },
        "fields.json": {
            "fields": _json_rows(releases, {r: [_field_row(f) for f in s.fields] for r, s in found.items()}),
            "rewritten": _rows(releases, {r: sorted(s.rewritten) for r, s in found.items()}, "name"),
        },
        "moe_configs.json": {"files": _listing_rows(releases, {r: s.configs.moe for r, s in found.items()})},
        "gemm_configs.json": {"files": _rows(releases, {r: s.configs.gemm for r, s in found.items()}, "name")},
    }


def _release_row(release: str, source: ReleaseSource) -> dict[str, Any]:
    return {
        "version": release,
        "python": source.pins.python,
        "torch": source.pins.torch,
        "triton": TRITON_OF_TORCH[source.pins.torch],
        "moe_folder": source.configs.moe_folder,
        "gemm_folder": source.configs.gemm_folder,
        "assertions": [msgspec.to_builtins(assertion) for assertion in source.pins.assertions],
    }


def _rows(releases: list[str], items: Mapping[str, Iterable[str]], key: str) -> list[dict[str, Any]]:
    return [_row(entry, **{key: entry["item"]}) for entry in intervals(releases, items)]


def _json_rows(releases: list[str], items: Mapping[str, Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    encoded = {release: [json.dumps(item) for item in rows] for release, rows in items.items()}
    return [_row(entry, **json.loads(entry["item"])) for entry in intervals(releases, encoded)]


def _row(entry: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    before = {"before": entry["before"]} if "before" in entry else {}
    return {"since": entry["since"], **before, **more}


def _flag_rows(releases: list[str], found: Mapping[str, ReleaseSource]) -> list[dict[str, Any]]:
    encoded = {
        release: [msgspec.json.encode(flag).decode() for flag in source.flags]
        for release, source in found.items()
    }
    return [_row(entry, flag=json.loads(entry["item"])) for entry in intervals(releases, encoded)]


def _requirement_row(text: str) -> dict[str, Any]:
    requirement = Requirement(text)
    row: dict[str, Any] = {
        "name": canonicalize_name(requirement.name),
        "specifier": str(requirement.specifier),
    }
    marker = str(requirement.marker) if requirement.marker else ""
    extra = re.search(r'extra == "([^"]+)"', marker)
    if extra:
        row["extra"] = extra.group(1)
    marker = re.sub(r'( and )?extra == "[^"]+"', "", marker)
    if marker:
        row["marker"] = marker
        row["machines"] = [machine for machine in MACHINES if Marker(marker).evaluate(_environment(machine))]
    return row


def _environment(machine: str) -> dict[str, str]:
    return {"sys_platform": "linux", "platform_machine": machine, "python_version": "3.12"}


def _field_row(field: Field) -> dict[str, Any]:
    row: dict[str, Any] = {"name": field.name}
    if isinstance(field.default, Unresolved):
        row["unknown"] = True
    elif field.default is not None:
        row["default"] = field.default
    if field.fallback is not None:
        row["fallback"] = field.fallback
    return row


def _listing_rows(
    releases: list[str], listings: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> list[dict[str, Any]]:
    items = {
        release: [f"{folder}\n{name}" for folder, names in listing.items() for name in names]
        for release, listing in listings.items()
    }
    rows = []
    for entry in intervals(releases, items):
        folder, _, name = entry["item"].partition("\n")
        rows.append(_row(entry, folder=folder, name=name))
    return sorted(rows, key=lambda row: (row["folder"], row["name"]))


def main() -> int:
    """Write every file of the catalogue."""
    parser = argparse.ArgumentParser(prog=GENERATOR, description=__doc__)
    parser.add_argument("--sources", type=Path, help="a folder of unpacked wheels, one folder a version")
    parser.add_argument("--output", type=Path, default=DATA, help="where to write (default: sgdoctor/data)")
    options = parser.parse_args()
    found: dict[str, ReleaseSource] = {}
    for release in RELEASES:
        source = options.sources / release if options.sources else sources(release)
        found[release] = read_release(source)
        print(f"{release}: {len(found[release].flags)} flags", file=sys.stderr)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, content in tables(found).items():
        write(options.output / name, GENERATOR, content)
        size = (options.output / name).stat().st_size
        print(f"{name}: {size / 1000:.0f} KB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
