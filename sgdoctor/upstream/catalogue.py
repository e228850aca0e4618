"""What each SGLang release is like: flags, defaults, requirements, config files.

Holds the releases 0.5.7 to 0.5.23 with their post releases, as read from their wheels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

from sgdoctor.upstream import catalogue_data as data
from sgdoctor.upstream.catalogue_data import Assertion, FieldRow, Interval, Requirement, Serve
from sgdoctor.upstream.flag import Flag

__all__ = [
    "Assertion",
    "Flag",
    "Interval",
    "Release",
    "Requirement",
    "Serve",
    "flag_history",
    "infer_release",
    "releases",
    "resolve",
]

KERNEL_PACKAGES = ("sglang-kernel", "sgl-kernel")
_Row = TypeVar("_Row", bound=Interval)


class Release:
    """One release of the catalogue.

    ``exact`` is False when it stands in for a version that the catalogue does not have (``asked``): a
    development, local or later build. What is read from it then holds with lowered confidence.
    """

    def __init__(self, version: str, *, asked: str | None = None) -> None:
        self._row = data.releases()[version]
        self._position = data.positions()[version]
        self.version = version
        self.asked = asked or version
        self.exact = self.asked == version

    def __repr__(self) -> str:
        return (
            f"Release({self.version!r})" if self.exact else f"Release({self.version!r}, asked={self.asked!r})"
        )

    def _select(self, rows: Iterable[_Row]) -> list[_Row]:
        positions, here = data.positions(), self._position
        return [
            row
            for row in rows
            if positions[row.since] <= here and (row.before is None or here < positions[row.before])
        ]

    # --- flags and fields ----------------------------------------------------------------------------------

    @functools.cached_property
    def flags(self) -> list[Flag]:
        """The flags of the server's parser, in its order; several may share a ``dest``."""
        return [row.flag for row in self._select(data.flags())]

    @functools.cached_property
    def _flags_by_dest(self) -> dict[str, list[Flag]]:
        found: dict[str, list[Flag]] = {}
        for flag in self.flags:
            found.setdefault(flag.dest, []).append(flag)
        return found

    @functools.cached_property
    def _options(self) -> dict[str, Flag]:
        return {option: flag for flag in self.flags for option in (*flag.options, *flag.negations)}

    @functools.cached_property
    def _fields(self) -> dict[str, FieldRow]:
        return {row.name: row for row in self._select(data.fields().fields)}

    def flag(self, dest: str) -> Flag | None:
        """Return the flag for ``dest``, the one that is not deprecated when there are several, or None."""
        flags = self._flags_by_dest.get(dest)
        if not flags:
            return None
        return next((flag for flag in flags if not flag.deprecated), flags[0])

    def option(self, option: str) -> Flag | None:
        """Return the flag that ``option`` (``--tp-size``, ``--no-x``) spells in full, or None."""
        return self._options.get(option)

    def has(self, dest: str) -> bool:
        """Whether the release has a flag or a ServerArgs field of this name."""
        return dest in self._flags_by_dest or dest in self._fields

    def default(self, dest: str) -> Any:
        """Return what ``dest`` is without its flag, before SGLang resolves anything.

        Raises KeyError when the release has no such flag or field, or when its default depends on the
        machine.
        """
        for flag in self._flags_by_dest.get(dest, ()):
            if not flag.suppressed:
                return flag.default
        field = self._fields[dest]
        if field.unknown:
            raise KeyError(dest)
        return field.default

    def fallback(self, dest: str) -> Any:
        """Return what stands in for a ``dest`` that is null after resolution (0.5.20+), or None."""
        field = self._fields.get(dest)
        return None if field is None else field.fallback

    @functools.cached_property
    def banner_fields(self) -> list[str]:
        """The fields that the log's ``server_args=`` line and /server_info have, in their order."""
        return list(self._fields)

    @functools.cached_property
    def rewritten(self) -> frozenset[str]:
        """The fields that SGLang may set by itself after parsing, whatever was asked.

        Every other field keeps what was asked, or else its default, or else its fallback.
        """
        return frozenset(row.name for row in self._select(data.fields().rewritten))

    @property
    def serve(self) -> Serve:
        """How ``sglang serve`` finds the model path."""
        return self._row.serve

    # --- requirements --------------------------------------------------------------------------------------

    @property
    def python(self) -> str:
        """The Requires-Python specifier."""
        return self._row.python

    @functools.cached_property
    def requirements(self) -> list[Requirement]:
        """Everything that the release's metadata requires, extras included."""
        return self._select(data.requirements())

    @functools.cached_property
    def pins(self) -> dict[str, str]:
        """The versions that the plain install requires exactly, by normalized name, on Linux x86-64."""
        return {
            requirement.name: requirement.specifier.removeprefix("==")
            for requirement in self.requirements
            if requirement.extra is None
            and "x86_64" in requirement.machines
            and requirement.specifier.startswith("==")
            and "," not in requirement.specifier
        }

    @property
    def torch_pin(self) -> str:
        """The torch that the release requires."""
        return self._row.torch

    @property
    def triton_pin(self) -> str:
        """The Triton that this torch requires, without the operator."""
        return self._row.triton.lstrip("=~")

    @property
    def triton_requirement(self) -> str:
        """The Triton that this torch requires, as its metadata says: ``==3.7.1``, ``~=3.8.0``."""
        return self._row.triton

    @property
    def kernel_package(self) -> str:
        """``sgl-kernel`` up to 0.5.9, ``sglang-kernel`` from 0.5.10 on."""
        return next(name for name in KERNEL_PACKAGES if name in self.pins)

    @property
    def kernel_pin(self) -> str:
        """The version of the kernel package that the release requires."""
        return self.pins[self.kernel_package]

    @property
    def assertions(self) -> tuple[Assertion, ...]:
        """The minimum versions that the server asserts at start."""
        return self._row.assertions

    @property
    def kernel_minimum(self) -> str | None:
        """The kernel package version below which the server stops at start (on NVIDIA), or None."""
        return next((entry.minimum for entry in self.assertions if entry.package in KERNEL_PACKAGES), None)

    @property
    def flashinfer_minimum(self) -> str | None:
        """The FlashInfer version that is asserted when it is the attention backend, or None."""
        return next(
            (entry.minimum for entry in self.assertions if entry.package == "flashinfer_python"), None
        )

    # --- kernel configurations -----------------------------------------------------------------------------

    @property
    def moe_folder(self) -> str:
        """The folder of the ``triton_*`` folders of fused-MoE configs, below the ``sglang`` package."""
        return self._row.moe_folder

    @functools.cached_property
    def moe_listing(self) -> dict[str, frozenset[str]]:
        """The fused-MoE config files that the wheel ships: ``triton_3_5_1`` -> file names."""
        return self._by_folder(data.moe_configs())

    @property
    def gemm_folder(self) -> str:
        """The folder of the block FP8 and INT8 GEMM configs, below the ``sglang`` package."""
        return self._row.gemm_folder

    @functools.cached_property
    def gemm_listing(self) -> frozenset[str]:
        """The block FP8 and INT8 GEMM config files that the wheel ships."""
        return frozenset(row.name for row in self._select(data.gemm_configs()))

    @functools.cached_property
    def lora_listing(self) -> dict[str, frozenset[str]]:
        """The LoRA (csgmv) config files that the wheel ships, as ``moe_listing``; none before 0.5.11."""
        return self._by_folder(data.lora_configs())

    def _by_folder(self, rows: Iterable[data.ListingRow]) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for row in self._select(rows):
            found.setdefault(row.folder, set()).add(row.name)
        return {folder: frozenset(names) for folder, names in found.items()}


def releases() -> list[str]:
    """Return the versions that the catalogue has, oldest first."""
    return list(data.releases())


@functools.cache
def resolve(version: str) -> Release | None:
    """Return the release to go by for ``version``, or None when there is none.

    A version that the catalogue does not have (0.5.14.dev3, 0.5.13.post2, 0.5.24, a local build) gets the
    newest release not after it, with ``exact`` False: 0.5.14.dev3 was built on the way from 0.5.13.post1 to
    0.5.14. A build without tags (0.0.0.dev1+g...), one older than the oldest release and what is no version
    get None.
    """
    if version in data.releases():
        return Release(version)
    from packaging.version import InvalidVersion, Version

    try:
        wanted = Version(version)
    except InvalidVersion:
        return None
    earlier = [known for known in data.releases() if Version(known) <= wanted]
    return Release(earlier[-1], asked=version) if earlier else None


def infer_release(field_names: Iterable[str]) -> list[str]:
    """Return the releases whose ``server_args=`` line in the log has exactly these fields."""
    wanted = frozenset(field_names)
    return [version for version in releases() if frozenset(Release(version).banner_fields) == wanted]


def flag_history(option: str) -> list[Interval]:
    """Return the runs of releases whose parser has ``option`` (also ``--no-x``), oldest first."""
    positions, versions = data.positions(), releases()
    present: set[int] = set()
    for row in data.flags():
        if option in row.flag.options or option in row.flag.negations:
            end = len(versions) if row.before is None else positions[row.before]
            present.update(range(positions[row.since], end))
    found: list[Interval] = []
    for start in sorted(index for index in present if index - 1 not in present):
        end = next(index for index in range(start, len(versions) + 1) if index not in present)
        found.append(Interval(since=versions[start], before=versions[end] if end < len(versions) else None))
    return found
