"""Configuration files held to what SGLang's kernels need of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from packaging.version import Version

from sgdoctor.configs import files, pairs, places
from sgdoctor.configs.files import ConfigFile
from sgdoctor.configs.places import Place
from sgdoctor.errors import Undecided
from sgdoctor.upstream import catalogue, config_checks, config_table
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.config_problem import SEVERITIES, Gpu, Problem, Severity
from sgdoctor.upstream.config_table import BrokenFile, Table
from sgdoctor.upstream.gemm_config import Weight
from sgdoctor.upstream.lora_config import Adapter
from sgdoctor.upstream.moe_config import Shape


class Linted(msgspec.Struct, frozen=True, kw_only=True):
    """What a lint came to, worst problems first. ``files`` of a problem are paths.

    ``assumed``: neither PATH nor the operator said which release reads the files; the newest known was taken.
    ``unread`` are files that could not be read, with the reason.
    """

    place: Place
    release: Release
    assumed: bool
    files: tuple[ConfigFile, ...]
    problems: tuple[Problem, ...]
    unread: tuple[str, ...] = ()

    def count(self, severity: Severity) -> int:
        """Return how many problems are of this severity."""
        return sum(problem.severity == severity for problem in self.problems)

    @property
    def worst(self) -> Severity | None:
        """The worst severity, null when there is no problem."""
        return next((severity for severity in SEVERITIES if self.count(severity)), None)


def release_for(place: Place, asked: str | None) -> tuple[Release, bool]:
    """Return the release to judge by, and whether it was only assumed.

    Raises UsageError when ``asked`` is no version that sgdoctor knows a release for.
    """
    if asked is not None:
        return places.asked_release(asked), False
    own = catalogue.resolve(place.version) if place.version else None
    if own is not None:
        return own, False
    return Release(catalogue.releases()[-1]), True


def lint(place: Place, asked: str | None = None) -> Linted:
    """Check every config file of ``place`` as the release ``asked``, by default its own, would use it.

    Raises Undecided when there are none, UsageError for a folder that cannot be read.
    """
    release, assumed = release_for(place, asked)
    found = files.collect(place)
    problems = list(files.misplaced(place, release))
    if not found and not problems:
        raise Undecided(f"{place.path}: no kernel config files there")
    tables: dict[Path, Table] = {}
    unread: list[str] = []
    for file in found:
        table = _read(file.path, problems, unread)
        if table is not None:
            tables[file.path] = table
        problems += _of_file(file, table, Version(release.version))
    triton = place.triton or release.triton_pin
    problems += pairs.problems(found, tables, Version(release.version), triton, place.trees)
    ordered = sorted(problems, key=lambda problem: (SEVERITIES.index(problem.severity), problem.code))
    return Linted(
        place=place,
        release=release,
        assumed=assumed,
        files=tuple(found),
        problems=tuple(ordered),
        unread=tuple(unread),
    )


def _read(path: Path, problems: list[Problem], unread: list[str]) -> Table | None:
    """Return a file's table; what is wrong with it, or why it cannot be read, is added to the lists."""
    try:
        return config_table.read(path)
    except BrokenFile as broken:
        text = f"{broken.text}; SGLang ends in {broken.raised.partition(':')[0]}"
        problems.append(Problem(code=broken.code, severity="error", file=str(path), text=text))
    except OSError as error:
        unread.append(f"{path}: {error.strerror or error}")
    return None


def _of_file(file: ConfigFile, table: Table | None, release: Version) -> Iterator[Problem]:
    if file.name is None:
        text = file.why or ""
        yield Problem(code="name-never-read", severity="warning", file=str(file.path), text=text)
        return
    if table is None:
        return
    gpu, key, path = Gpu.of_device(file.name.device), file.name.key, str(file.path)
    if isinstance(key, Shape):
        yield from config_checks.moe(release, path, table, key, down=file.name.down, gpu=gpu)
    elif isinstance(key, Weight):
        yield from config_checks.gemm(release, path, table, key, gpu=gpu)
    elif isinstance(key, Adapter):
        yield from config_checks.lora(path, table)
