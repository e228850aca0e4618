"""Folders of kernel configs that moved, and files of the operator's own that stay behind in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as Folder

import msgspec

from sgdoctor.engine.model import Severity
from sgdoctor.facts import Facts
from sgdoctor.report.model import Change
from sgdoctor.target.change import new_change
from sgdoctor.target.flags import release, when
from sgdoctor.target.walk import Stage, Walk
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.moe_config import CONFIG_DIR_VARIABLE

_SHOWN = 4  # files that are still named one by one
_PROJECTIONS = ("moe.up.expected_file", "moe.down.expected_file")


class Family(msgspec.Struct, frozen=True):
    """Config files of one kind: below which folder of the package they lie, and what a release ships."""

    name: str
    pattern: str
    folder: Callable[[Release], str]
    shipped: Callable[[Release, str], bool]  # a path below the folder


MOE = Family(
    "fused-MoE configs",
    "triton_*/E=*.json",
    lambda at: at.moe_folder,
    lambda at, file: file.rpartition("/")[2] in at.moe_listing.get(file.partition("/")[0], ()),
)
GEMM = Family("GEMM configs", "N=*.json", lambda at: at.gemm_folder, lambda at, file: file in at.gemm_listing)


def changes(walk: Walk) -> Iterator[Change]:
    """Yield for each family that its folder moved, and which files are left behind."""
    facts = walk.start.facts
    elsewhere = facts.value(f"env.{CONFIG_DIR_VARIABLE}") is not None
    for family in (MOE, GEMM):
        if family is MOE and (elsewhere or facts.value("model.is_moe") is False):
            continue
        old, new = family.folder(walk.path.start), family.folder(walk.path.end)
        since = walk.path.since(lambda version, kind=family: kind.folder(release(version)))  # type: ignore[misc]
        own = own_files(facts, walk.path.start, family)
        if own:
            yield _left_behind(family, own, walk, since)
        if old != new:
            text = f"{_begun(family.name)} are read from {new}{when(walk.path, since)}, not from {old}."
            minor = family is GEMM or not _reads_moe(walk.end)
            yield new_change("config-folder", family.name, old, new, since, text, minor=minor)


def own_files(facts: Facts, at: Release, family: Family) -> list[str]:
    """Return the files of an installation on this disk that its release does not ship, by their folder.

    Fused-MoE files beside the Triton folders, which no release reads, are none of them.
    """
    place = facts.value("sglang.path")
    if not isinstance(place, str):
        return []
    root = Folder(place) / family.folder(at)
    try:
        files = sorted(str(file.relative_to(root)) for file in root.glob(family.pattern))
    except OSError:
        return []
    return [file for file in files if not family.shipped(at, file)]


def _left_behind(family: Family, own: list[str], walk: Walk, since: str | None) -> Change:
    wanted = {stage.facts.value(name) for stage in (walk.start, walk.end) for name in _PROJECTIONS}
    mine = [each for each in own if each.rpartition("/")[2] in wanted]
    old, new = family.folder(walk.path.start), family.folder(walk.path.end)
    told = _listed(mine or own)
    if old == new:
        text = f"Put there by hand, not part of the release: {told} in {old}; pip leaves them there."
        do = "take them along to a new environment or image"
        return new_change("config-unread", family.name, old, old, None, text, do=do)
    text = f"Put there by hand and no longer read{when(walk.path, since)}: {told} in {old}."
    do = f"copy them to {new} after the {'upgrade' if walk.path.upgrade else 'downgrade'}"
    severity: Severity = "warning" if mine or family is GEMM else "info"
    return new_change("config-unread", family.name, old, new, since, text, severity, do=do)


def _listed(files: list[str]) -> str:
    rest = len(files) - _SHOWN
    return ", ".join(files[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _reads_moe(stage: Stage) -> bool:
    return stage.facts.value("moe.config_matters") is True


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]
