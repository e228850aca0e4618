"""Up and down files that would be used together, and what their BLOCK_SIZE_M mean for a release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from packaging.version import Version

from sgdoctor.configs.files import ConfigFile
from sgdoctor.configs.places import Tree
from sgdoctor.upstream import config_pairs, moe_config
from sgdoctor.upstream.config_problem import Gpu, Problem
from sgdoctor.upstream.config_table import Table
from sgdoctor.upstream.moe_config import Listing, Shape


class _Down(msgspec.Struct, frozen=True):
    """A down file."""

    path: Path
    device: str
    shape: Shape

    @property
    def up_name(self) -> str:
        return moe_config.file_name(self.device, self.shape)


def problems(
    found: Iterable[ConfigFile],
    tables: Mapping[Path, Table],
    release: Version,
    triton: str,
    trees: Iterable[Tree],
) -> Iterator[Problem]:
    """Yield pairs that differ: of one folder, and those that the lookup with ``triton`` makes of several."""
    downs = {file.path: down for file in found if (down := _down(file)) and file.path in tables}
    for down in downs.values():
        up = down.path.with_name(down.up_name)
        if up in tables:
            yield from _pair(release, down, tables[up], tables[down.path], "the up file beside it")
    for tree in trees:
        if tree.family == "moe" and tree.whole:
            yield from _across(tree, downs, tables, release, triton)


def _down(file: ConfigFile) -> _Down | None:
    name = file.name
    if name is None or not name.down or not isinstance(name.key, Shape):
        return None
    return _Down(file.path, name.device, name.key)


def _across(
    tree: Tree, downs: Mapping[Path, _Down], tables: Mapping[Path, Table], release: Version, triton: str
) -> Iterator[Problem]:
    """Yield the down files that ``triton`` would pair with an up config of another place."""
    listing = Listing.from_disk(tree.root)
    for name, down in {path.name: down for path, down in downs.items()}.items():
        found = moe_config.look_up_files(release, triton, down.up_name, name, listing)
        if found.error is not None or found.down.path is None or found.up.triton == found.down.triton:
            continue
        table = tables.get(Path(found.down.path))
        up = tables.get(Path(found.up.path)) if found.up.path is not None else {}
        if table is None or up is None:
            continue
        other = f"the up file of Triton {found.up.triton}" if up else "the built-in up config"
        used = downs[Path(found.down.path)]
        yield from _pair(release, used, up, table, f"{other}, with which Triton {triton} uses it")


def _pair(release: Version, file: _Down, up: Table, down: Table, other: str) -> Iterator[Problem]:
    shared_memory = Gpu.of_device(file.device).shared_memory
    found = config_pairs.problem(release, str(file.path), file.shape, up, down, other, shared_memory)
    if found is not None:
        yield found
