"""The rows of sgdoctor/data/, which ``python -m tools.catalogue`` generates from SGLang's wheels.

Each file is parsed when it is first asked for. A row that is an Interval stands for a run of releases.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from sgdoctor.upstream.flag import Flag

MACHINES = ("x86_64", "aarch64")


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A run of releases: from ``since`` up to, not including, ``before`` (None: the newest known has it)."""

    since: str
    before: str | None = None


class Assertion(msgspec.Struct, frozen=True):
    """A minimum version that the server asserts at its start, and the source text of when it does."""

    package: str
    minimum: str
    condition: str


class Serve(msgspec.Struct, frozen=True):
    """What ``sglang serve`` does before the server's own parser sees the command line.

    ``positional``: a first word that is no option is the model path (0.5.16+). ``model_type``:
    ``--model-type`` is taken out first (0.5.10+). ``model_options``: the spellings of the model path that it
    looks for (``--model`` from 0.5.11 on). Without any it stops, also when a ``--config`` file has the path.
    """

    positional: bool
    model_type: bool
    model_options: tuple[str, ...]


class ReleaseRow(msgspec.Struct, frozen=True):
    """What there is once a release. ``triton`` is the specifier of its torch's own metadata."""

    version: str
    python: str
    torch: str
    triton: str
    moe_folder: str
    gemm_folder: str
    serve: Serve
    assertions: tuple[Assertion, ...]


class Requirement(Interval, frozen=True, kw_only=True):
    """A Requires-Dist line: ``name`` is normalized (PEP 503), ``extra`` None for the plain install.

    ``machines`` are those (of x86_64 and aarch64, Linux) for which the marker holds.
    """

    name: str
    specifier: str
    marker: str | None = None
    extra: str | None = None
    machines: tuple[str, ...] = MACHINES


class FlagRow(Interval, frozen=True, kw_only=True):
    """A flag."""

    flag: Flag


class FieldRow(Interval, frozen=True, kw_only=True):
    """A field of ServerArgs; ``unknown`` when its default depends on the machine."""

    name: str
    default: Any = None
    fallback: Any = None
    unknown: bool = False


class NameRow(Interval, frozen=True, kw_only=True):
    """A name: of a field that is rewritten, of a GEMM config file."""

    name: str


class ListingRow(Interval, frozen=True, kw_only=True):
    """A fused-MoE config file, in its ``triton_*`` folder."""

    folder: str
    name: str


class _ReleasesFile(msgspec.Struct, frozen=True):
    releases: tuple[ReleaseRow, ...]


class _RequirementsFile(msgspec.Struct, frozen=True):
    requirements: tuple[Requirement, ...]


class _FlagsFile(msgspec.Struct, frozen=True):
    flags: tuple[FlagRow, ...]


class FieldsFile(msgspec.Struct, frozen=True):
    """The fields, and those that SGLang may set by itself."""

    fields: tuple[FieldRow, ...]
    rewritten: tuple[NameRow, ...]


class _MoeFile(msgspec.Struct, frozen=True):
    moe_configs: tuple[ListingRow, ...]


class _GemmFile(msgspec.Struct, frozen=True):
    gemm_configs: tuple[NameRow, ...]


class _LoraFile(msgspec.Struct, frozen=True):
    lora_configs: tuple[ListingRow, ...]


_File = TypeVar("_File", bound=msgspec.Struct)


def _read(name: str, kind: type[_File]) -> _File:
    data = pkgutil.get_data("sgdoctor", f"data/{name}")  # also inside a zipapp
    if data is None:
        raise FileNotFoundError(name)
    return msgspec.json.decode(data, type=kind)


@functools.cache
def releases() -> Mapping[str, ReleaseRow]:
    """Return the releases, oldest first."""
    return {row.version: row for row in _read("releases.json", _ReleasesFile).releases}


@functools.cache
def positions() -> Mapping[str, int]:
    """Return the place of each release in their order."""
    return {version: index for index, version in enumerate(releases())}


@functools.cache
def requirements() -> tuple[Requirement, ...]:
    """Return the requirements."""
    return _read("requirements.json", _RequirementsFile).requirements


@functools.cache
def flags() -> tuple[FlagRow, ...]:
    """Return the flags."""
    return _read("flags.json", _FlagsFile).flags


@functools.cache
def fields() -> FieldsFile:
    """Return the fields of ServerArgs."""
    return _read("fields.json", FieldsFile)


@functools.cache
def moe_configs() -> tuple[ListingRow, ...]:
    """Return the fused-MoE config files."""
    return _read("moe_configs.json", _MoeFile).moe_configs


@functools.cache
def gemm_configs() -> tuple[NameRow, ...]:
    """Return the block GEMM config files."""
    return _read("gemm_configs.json", _GemmFile).gemm_configs


@functools.cache
def lora_configs() -> tuple[ListingRow, ...]:
    """Return the LoRA (csgmv) config files."""
    return _read("lora_configs.json", _LoraFile).lora_configs
