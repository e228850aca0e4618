"""What another machine has, from a file (`--environment`): packages, GPUs, host, or a snapshot of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from sgdoctor import redact, snapshot
from sgdoctor.collect import gpus, packages
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known, Provenance
from sgdoctor.input_file import read_json

MAX_BYTES = 16 * 2**20
SOURCE = "environment"

# The facts of a snapshot that describe a machine, not a server.
_OF_A_MACHINE = ("package.", "packages.", "sglang.", "triton.", "torch.", "gpu", "host.", "env.")
# torch's local version says what it was built for: 2.11.0+cu130, +cpu, +rocm6.4.
_BUILD = re.compile(r"\+(?:cu(\d{2,3})|cpu|rocm[\d.]+)\Z")
_FIELD = re.compile(r"`([^`]+)`")


class _Gpu(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    compute_capability: str | None
    memory_mib: int | None
    index: int | None = None


class _Host(msgspec.Struct, forbid_unknown_fields=True):
    driver: str | msgspec.UnsetType | None = msgspec.UNSET
    cuda: str | msgspec.UnsetType | None = msgspec.UNSET
    shm_mib: int | msgspec.UnsetType = msgspec.UNSET
    python: str | msgspec.UnsetType = msgspec.UNSET
    arch: str | msgspec.UnsetType = msgspec.UNSET
    container: str | msgspec.UnsetType | None = msgspec.UNSET


class _Environment(msgspec.Struct, forbid_unknown_fields=True):
    packages: dict[str, Any] = {}
    gpus: list[_Gpu] | msgspec.UnsetType = msgspec.UNSET
    env: dict[str, Any] = {}
    host: _Host | msgspec.UnsetType = msgspec.UNSET
    complete: bool = False


def read_environment_file(facts: Facts, path: Path) -> None:
    """Set the facts of the machine that ``path`` describes.

    Either a JSON mapping of ``packages`` (name to version, null: not installed), ``gpus``, ``host``, ``env``
    and ``complete``, where every part may be missing, or a snapshot, of which the facts about the machine
    are taken. Packages that are not listed are unknown unless ``complete`` is true. Raises UsageError naming
    file, key and reason.
    """
    given: object = read_json(path, MAX_BYTES, "no description of an environment")
    if snapshot.is_snapshot(given):
        _read_snapshot(facts, path)
    else:
        read_environment(facts, given, str(path))


def read_environment(facts: Facts, given: object, place: str) -> None:
    """Set the facts of a decoded description of an environment; see `read_environment_file`."""
    try:
        said = msgspec.convert(given, _Environment)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {_explained(str(error))}") from None
    if not said.packages and not said.env and said.gpus is msgspec.UNSET and said.host is msgspec.UNSET:
        raise UsageError(f"{place}: describes nothing: give packages, gpus, host or env")
    if said.packages or said.complete:
        _set_packages(facts, said, place)
    if not isinstance(said.gpus, msgspec.UnsetType):
        _set_gpus(facts, said.gpus, place)
    if not isinstance(said.host, msgspec.UnsetType):
        _set_host(facts, said.host, place)
    _set_variables(facts, said.env, place)


def _explained(error: str) -> str:
    """Turn "Object missing required field `name` - at `$.gpus[0]`" into a key and a reason."""
    reason, _, path = error.partition(" - at ")
    key = path.strip("`").removeprefix("$").removeprefix(".")
    field = _FIELD.search(reason)
    if reason.startswith("Object contains unknown field") and field:
        return f"{'.'.join(filter(None, (key, field.group(1))))}: no such key"
    if reason.startswith("Object missing required field") and field:
        return f"{'.'.join(filter(None, (key, field.group(1))))}: missing"
    reason = reason.replace("Expected `object`", "expected a mapping").replace("Expected", "expected")
    return f"{key or 'the file'}: {reason.replace('`', '')}"


def _version(value: object, key: str, place: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f'{place}: {key}: a version is text ("3.6.0"), not {value!r}')
    try:
        Version(value)
    except InvalidVersion:
        raise UsageError(f"{place}: {key}: {value!r} is no version") from None
    return value


def _set_packages(facts: Facts, said: _Environment, place: str) -> None:
    listed: dict[str, str | None] = {}
    for name, version in said.packages.items():
        key = canonicalize_name(name)
        if key in listed:
            raise UsageError(f"{place}: packages.{name}: {key} is listed twice")
        listed[key] = None if version is None else _version(version, f"packages.{name}", place)
    facts.set("packages.complete", said.complete, source=SOURCE, place=place)
    for name, value in listed.items():
        facts.set(packages.fact_name(name), value, source=SOURCE, place=place)
    if said.complete:
        packages.set_absent(facts, {packages.fact_name(name) for name in listed}, SOURCE, place)
    if listed.get("sglang") is not None:
        facts.set("sglang.version", listed["sglang"], source=SOURCE, place=place)
    elif "sglang" in listed or said.complete:
        facts.set_unknown("sglang.version", f"{place} says that SGLang is not installed")
    for name in ("triton", "torch"):
        if name in listed or said.complete:
            facts.set(f"{name}.version", listed.get(name), source=SOURCE, place=place)
    build = _BUILD.search(listed.get("torch") or "")
    if build:
        cuda = f"{build.group(1)[:-1]}.{build.group(1)[-1]}" if build.group(1) else None
        facts.set("torch.cuda", cuda, source=SOURCE, place=place)


def _set_gpus(facts: Facts, said: list[_Gpu], place: str) -> None:
    seen: list[gpus.Gpu] = []
    for number, gpu in enumerate(said):
        key = f"gpus[{number}]"
        if gpu.compute_capability is not None and not re.fullmatch(r"\d+\.\d+", gpu.compute_capability):
            raise UsageError(
                f'{place}: {key}.compute_capability: {gpu.compute_capability!r} is not like "9.0"'
            )
        if gpu.memory_mib is not None and gpu.memory_mib <= 0:
            raise UsageError(f"{place}: {key}.memory_mib: {gpu.memory_mib} is no size in MiB")
        index = number if gpu.index is None else gpu.index
        if any(other.index == index for other in seen):
            raise UsageError(f"{place}: {key}.index: {index} is given twice")
        seen.append(gpus.Gpu(index, gpu.name, gpu.compute_capability, gpu.memory_mib))
    gpus.set_gpus(facts, tuple(seen), source=SOURCE, place=place)


def _set_host(facts: Facts, said: _Host, place: str) -> None:
    for name in said.__struct_fields__:
        value = getattr(said, name)
        if value is msgspec.UNSET:
            continue
        if value is not None and name in ("driver", "cuda", "python"):
            value = _version(value, f"host.{name}", place)
        facts.set(f"host.{name}", value, source=SOURCE, place=place)


def _set_variables(facts: Facts, said: dict[str, Any], place: str) -> None:
    for name, value in said.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{place}: env.{name}: a variable is text or null, not {value!r}")
    allowed = redact.environment({name: value or "" for name, value in said.items()})
    for name, value in said.items():
        if name not in allowed:
            facts.notes.append(f"{place}: env.{name} is no variable that sgdoctor reads; it was left out")
        else:
            facts.set(f"env.{name}", value and allowed[name], source=SOURCE, place=place)


def _read_snapshot(facts: Facts, path: Path) -> None:
    saved = snapshot.load(path, Facts(facts.vocabulary))
    taken = 0
    for name, fact in saved.items():
        if not name.startswith(_OF_A_MACHINE):
            continue
        if isinstance(fact, Known):
            taken += 1
            places = [Provenance(SOURCE, f"{path}: {read.place}") for read in fact.provenance]
            snapshot.put(facts, name, fact.value, places, str(path), count=fact.count)
        else:
            facts.set_unknown(name, fact.reason, fact.missing)
    if not taken:
        raise UsageError(f"{path}: a snapshot that says nothing about packages, GPUs or the host")
