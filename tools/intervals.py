"""Encoding of what changes slowly: each row once, with the run of releases that have it."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


class _Entry:
    """A row, as JSON, of the releases from ``since`` up to, not including, ``before`` (None: the newest)."""

    def __init__(self, text: str, since: str) -> None:
        self.text = text
        self.since = since
        self.before: str | None = None


def encode(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Encode the rows of each release (oldest first), which are distinct within a release.

    A row of the result has ``since``, ``before`` unless the newest release has it, and the row itself. They
    stand in an order in which those of any one release are in that release's own order: a row that changed
    its place between two releases stands there twice.
    """
    entries: list[_Entry] = []
    for release, items in rows.items():
        active = {entry.text: index for index, entry in enumerate(entries) if entry.before is None}
        texts = [json.dumps(item, ensure_ascii=False) for item in items]
        kept = _longest_increasing([active[text] for text in texts if text in active])
        for index in active.values():
            if index not in kept:
                entries[index].before = release
        entries = list(
            _merge(entries, texts, {text: index for text, index in active.items() if index in kept}, release)
        )
    return [
        {
            "since": entry.since,
            **({} if entry.before is None else {"before": entry.before}),
            **json.loads(entry.text),
        }
        for entry in entries
    ]


def decode(encoded: Iterable[Row], releases: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of each release: what ``encode`` was given."""
    place = {release: index for index, release in enumerate(releases)}
    found: dict[str, list[Row]] = {release: [] for release in releases}
    for entry in encoded:
        row = {key: value for key, value in entry.items() if key not in ("since", "before")}
        end = place[entry["before"]] if "before" in entry else len(releases)
        for release in releases[place[entry["since"]] : end]:
            found[release].append(row)
    return found


def _merge(entries: list[_Entry], texts: list[str], kept: dict[str, int], release: str) -> Iterator[_Entry]:
    """Yield ``entries`` and new ones for the ``texts`` that are not kept, each after the text before it."""
    new: dict[int, list[_Entry]] = {}
    place = 0
    for text in texts:
        if text in kept:
            place = kept[text] + 1
        else:
            new.setdefault(place, []).append(_Entry(text, release))
    for index in range(len(entries) + 1):
        yield from new.get(index, [])
        yield from entries[index : index + 1]


def _longest_increasing(numbers: Sequence[int]) -> frozenset[int]:
    """Return the members of a longest increasing subsequence of distinct ``numbers``."""
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for number in numbers:
        at = bisect.bisect_left(tails, number)
        before[number] = tails[at - 1] if at else None
        tails[at : at + 1] = [number]
    found: set[int] = set()
    last = tails[-1] if tails else None
    while last is not None:
        found.add(last)
        last = before[last]
    return frozenset(found)
