"""Encoding of what changes slowly: each item once, with the releases that have it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def intervals(releases: list[str], items: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    """Return ``{"since", "before", "item"}`` for each run of releases that have an item.

    ``items`` gives the items (JSON texts) of each release. ``before`` is the first release after the run that
    lacks it, absent when the newest has it. Items come in an order that keeps that of each release as far as
    the releases agree, the newest first among equals.
    """
    ordered = merged_order([list(items[release]) for release in releases])
    sets = {release: set(items[release]) for release in releases}
    found: list[dict[str, Any]] = []
    for item in ordered:
        since: str | None = None
        for release in releases:
            has = item in sets[release]
            if has and since is None:
                since = release
            elif not has and since is not None:
                found.append({"since": since, "before": release, "item": item})
                since = None
        if since is not None:
            found.append({"since": since, "item": item})
    return found


def merged_order(sequences: list[list[str]]) -> list[str]:
    """Merge ``sequences`` into one that keeps the order of the last and fits the others in where they differ."""
    merged: list[str] = []
    for sequence in reversed(sequences):
        place = {item: index for index, item in enumerate(merged)}
        inserted: dict[int, list[str]] = {}
        at = 0
        for item in sequence:
            if item in place:
                at = place[item] + 1
            else:
                inserted.setdefault(at, []).append(item)
        result: list[str] = []
        for index in range(len(merged) + 1):
            result += inserted.get(index, [])
            result += merged[index : index + 1]
        merged = result
    return merged


def write(path: Path, generator: str, tables: Mapping[str, Iterable[Any]]) -> None:
    """Write ``tables`` as JSON, one row a line, after a key that names the generator."""
    lines = ["{", f'"generator": {json.dumps(generator)},']
    names = list(tables)
    for name in names:
        rows = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in tables[name]]
        lines += [f'"{name}": [', ",\n".join(rows), "]" if name == names[-1] else "],"]
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")
