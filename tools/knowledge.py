"""Adds releases of SGLang to sgdoctor/data/ and says what changed: ``make knowledge VERSION=0.5.24``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from tools.catalogue import DATA, load
from tools.intervals import Row
from tools.oracles import RELEASES
from tools.wheels import ROOT

Tables = Mapping[str, Sequence[Row]]
PAGE = ROOT / "docs" / "knowledge.md"
_BEGIN, _END = "<!-- by python -m tools.knowledge --page -->", "<!-- end -->"
_SHOWN = 12  # names of one kind that are written out


def report(releases: Mapping[str, Tables], version: str) -> Iterator[str]:
    """Yield, line by line, how ``version`` differs from the release before it."""
    older = [each for each in releases if Version(each) < Version(version)]
    if not older:
        yield f"SGLang {version} is the oldest release of the catalogue"
        return
    before = max(older, key=Version)
    old, new = releases[before], releases[version]
    yield f"SGLang {version}, compared with {before}:"
    yield from _pins(old, new)
    yield from _changes("flags", _flags(old), _flags(new))
    yield from _changes("ServerArgs fields", _by_name(old["fields"]), _by_name(new["fields"]))
    yield from _changes(
        "fields that SGLang may set itself", _by_name(old["rewritten"]), _by_name(new["rewritten"])
    )
    yield from _changes("fused-MoE configs", _moe(old), _moe(new))
    yield from _changes("GEMM configs", _by_name(old["gemm_configs"]), _by_name(new["gemm_configs"]))
    yield from _changes("LoRA configs", _by_name(old["lora_configs"]), _by_name(new["lora_configs"]))


def _pins(old: Tables, new: Tables) -> Iterator[str]:
    before, after = old["releases"][0], new["releases"][0]
    for name in after:
        if name != "version" and before.get(name) != after[name]:
            yield f"  {name}: {_short(before.get(name))} -> {_short(after[name])}"
    yield from _changes("requirements", _requirements(old), _requirements(new))


def _requirements(tables: Tables) -> dict[str, Any]:
    return _keyed(tables["requirements"], lambda row: " ".join(_parts(row)), "specifier")


def _parts(row: Row) -> Iterator[str]:
    yield row["name"]
    if "extra" in row:
        yield f"[{row['extra']}]"
    if "marker" in row:
        yield f"({row['marker']})"


def _flags(tables: Tables) -> dict[str, Any]:
    return {
        " ".join(sorted(row["flag"]["options"])): {
            key: value for key, value in row["flag"].items() if key not in ("options", "note")
        }
        for row in tables["flags"]
    }


def _moe(tables: Tables) -> dict[str, Any]:
    return {f"{row['folder']}/{row['name']}": True for row in tables["moe_configs"]}


def _by_name(rows: Iterable[Row]) -> dict[str, Any]:
    return {row["name"]: {key: value for key, value in row.items() if key != "name"} for row in rows}


def _keyed(rows: Iterable[Row], key: Callable[[Row], str], value: str) -> dict[str, Any]:
    return {key(row): row[value] for row in rows}


def _changes(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    gone = [name for name in old if name not in new]
    added = [name for name in new if name not in old]
    changed = [
        f"{name}: {_difference(old[name], new[name])}"
        for name in new
        if name in old and old[name] != new[name]
    ]
    yield f"  {what}: {len(new)}, {len(added)} new, {len(gone)} gone, {len(changed)} changed"
    for sign, names in (("+", added), ("-", gone), ("~", changed)):
        for name in names[:_SHOWN]:
            yield f"    {sign} {name}"
        if len(names) > _SHOWN:
            yield f"    {sign} and {len(names) - _SHOWN} more"


def _difference(old: Any, new: Any) -> str:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return f"{_short(old)} -> {_short(new)}"
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {_step(old.get(name), new.get(name))}" for name in names)


def _step(old: Any, new: Any) -> str:
    if not isinstance(old, list) or not isinstance(new, list):
        return f"{_short(old)} -> {_short(new)}"
    added = [f"+{each}" for each in new if each not in old]
    return " ".join([*added, *(f"-{each}" for each in old if each not in new)]) or "in another order"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def table(releases: Mapping[str, Tables]) -> str:
    """Return the table of docs/knowledge.md: what is known of each release."""
    heads = "SGLang|torch|Triton|Flags|Fields|Set by itself|Requirements".split("|")
    heads += ["MoE configs", "GEMM configs", "LoRA configs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for version, tables in releases.items():
        release = tables["releases"][0]
        kinds = (
            "flags",
            "fields",
            "rewritten",
            "requirements",
            "moe_configs",
            "gemm_configs",
            "lora_configs",
        )
        counts = [str(len(tables[kind])) for kind in kinds]
        triton = release["triton"].removeprefix("==")
        oracle = "*" if version in RELEASES else ""
        lines.append(f"| {' | '.join([version + oracle, release['torch'], triton, *counts])} |")
    return "\n".join(lines)


def page(text: str, releases: Mapping[str, Tables]) -> str:
    """Return the page ``text`` with its table made anew."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{table(releases)}\n\n{_END}{after}"


def main() -> int:
    """Read the releases anew, write the catalogue and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tools.knowledge", description=__doc__)
    parser.add_argument("versions", nargs="*", help="releases of SGLang on the package index")
    parser.add_argument("--page", action="store_true", help="only write the table of docs/knowledge.md")
    parser.add_argument("--sources", type=Path, help="a folder of unpacked wheels, one folder a version")
    parser.add_argument("--data", type=Path, default=DATA, help="the catalogue (default: sgdoctor/data)")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
        return 0
    if not options.versions:
        parser.error("which release?")
    command = [sys.executable, "-m", "tools.catalogue", *options.versions, f"--data={options.data}"]
    command += [f"--sources={options.sources}"] if options.sources else []
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        return done.returncode
    releases = load(options.data)
    if options.data == DATA:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), releases), encoding="utf-8")
    for version in sorted(options.versions, key=Version):
        print("\n".join(report(releases, version)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
