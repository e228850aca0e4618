"""Generates sgdoctor/data/ from SGLang's wheels. See tools/README.md.

``python -m tools.catalogue 0.5.24`` adds a release to the catalogue, ``python -m tools.catalogue --all``
reads every release anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from tools.intervals import Row, decode, encode
from tools.read_release import read_release
from tools.wheels import ROOT, sources

GENERATOR = "python -m tools.catalogue"
DATA = ROOT / "sgdoctor" / "data"
# file -> its tables; all but ``releases`` are encoded as intervals
FILES = {
    "releases.json": ("releases",),
    "requirements.json": ("requirements",),
    "flags.json": ("flags",),
    "fields.json": ("fields", "rewritten"),
    "moe_configs.json": ("moe_configs",),
    "gemm_configs.json": ("gemm_configs",),
    "lora_configs.json": ("lora_configs",),
}
Tables = Mapping[str, Sequence[Row]]


def render(releases: Mapping[str, Tables]) -> dict[str, str]:
    """Return file name -> text of the catalogue of ``releases``, oldest first."""
    return {
        name: _file({table: _rows(table, releases) for table in tables}) for name, tables in FILES.items()
    }


def _rows(table: str, releases: Mapping[str, Tables]) -> list[Row]:
    rows = {release: tables[table] for release, tables in releases.items()}
    return [row for found in rows.values() for row in found] if table == "releases" else encode(rows)


def _file(tables: Tables) -> str:
    """Return ``tables`` as JSON, one row a line, after a key that names the generator."""
    parts = [f'"generator": {json.dumps(GENERATOR)}']
    for name, rows in tables.items():
        lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
        parts.append(f'"{name}": [\n' + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def load(data: Path = DATA) -> dict[str, dict[str, list[Row]]]:
    """Return release -> table -> rows of a catalogue: what ``render`` was given."""
    tables = {
        table: rows
        for name in FILES
        for table, rows in json.loads((data / name).read_text(encoding="utf-8")).items()
        if table != "generator"
    }
    releases = [row["version"] for row in tables["releases"]]
    decoded = {table: decode(rows, releases) for table, rows in tables.items() if table != "releases"}
    return {
        row["version"]: {
            "releases": [row],
            **{table: rows[row["version"]] for table, rows in decoded.items()},
        }
        for row in tables["releases"]
    }


def main() -> int:
    """Write the files of the catalogue."""
    parser = argparse.ArgumentParser(prog=GENERATOR, description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("versions", nargs="*", help="releases to read and to add, or to read anew")
    parser.add_argument("--all", action="store_true", help="read every release of the catalogue anew")
    parser.add_argument("--sources", type=Path, help="a folder of unpacked wheels, one folder a version")
    parser.add_argument("--data", type=Path, default=DATA, help="the catalogue (default: sgdoctor/data)")
    options = parser.parse_args()
    releases: dict[str, Tables] = dict(load(options.data))
    for version in [*(releases if options.all else ()), *options.versions]:
        print(f"reading {version}", file=sys.stderr)
        source = options.sources / version if options.sources else sources(version)
        releases[version] = read_release(version, source)
    ordered = {version: releases[version] for version in sorted(releases, key=Version)}
    for name, text in render(ordered).items():
        (options.data / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text) / 1000:.0f} KB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
