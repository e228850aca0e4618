"""From one release to another: which releases lie between, and which of them brought a difference."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec

from sgdoctor.errors import UsageError
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release

OPTION = "--target"
NEWEST = "latest"


class Path(msgspec.Struct, frozen=True):
    """The way from the release in use to another one, newer or older.

    ``steps`` are the releases of the catalogue on it, oldest first, both ends included.
    """

    start: Release
    end: Release
    steps: tuple[str, ...]

    @property
    def upgrade(self) -> bool:
        """Whether the way leads to a newer release."""
        return self.steps[-1] == self.end.version

    def towards_end(self) -> Sequence[str]:
        """Return the releases in the order in which they would be passed, from the release in use on."""
        return self.steps if self.upgrade else self.steps[::-1]

    def since(self, at: Callable[[str], object]) -> str | None:
        """Return the release that brought what ``at`` is at the end; null: it is the same at the start.

        For an upgrade the first release of those up to the end that are all like the end; for a downgrade the
        one that took it away: the oldest that is not like the end.
        """
        final = at(self.end.version)
        passed = self.towards_end()
        last = passed[-1]
        for version in passed[-2::-1]:
            if at(version) != final:
                return last if self.upgrade else version
            last = version
        return None

    def moves(self, at: Callable[[str], str | None]) -> list[tuple[str, str | None]]:
        """Return each release that brought another value of ``at``, with the value that is reached there."""
        passed = self.towards_end()
        found = []
        for earlier, later in itertools.pairwise(passed):
            if at(earlier) != at(later):
                found.append((later if self.upgrade else earlier, at(later)))
        return found


def between(start: Release, end: Release) -> Path:
    """Return the way between two releases."""
    known = catalogue.releases()
    low, high = sorted((known.index(start.version), known.index(end.version)))
    return Path(start, end, tuple(known[low : high + 1]))


def wanted(text: str) -> Release:
    """Return the release that ``--target`` names: ``sglang=0.5.23``, ``sglang=latest``.

    Raises UsageError for what is none, and for one that the catalogue does not hold.
    """
    package, equals, version = text.partition("=")
    version = version.lstrip("=").strip().removeprefix("v")
    if package.strip() != "sglang" or not equals or not version:
        raise UsageError(f"{OPTION} {text}: write sglang=VERSION, such as sglang=0.5.20 or sglang={NEWEST}")
    return exactly(version, f"{OPTION} {text}")


def exactly(version: str, told: str) -> Release:
    """Return a release of the catalogue; raises UsageError, opened with ``told``, for any other."""
    known = catalogue.releases()
    if version == NEWEST:
        version = known[-1]
    if version not in known:
        near = catalogue.resolve(version)
        hint = f"; the nearest before it is {near.version}" if near is not None else ""
        raise UsageError(f"{told}: sgdoctor knows SGLang {known[0]} to {known[-1]}, not {version}{hint}")
    release = catalogue.resolve(version)
    assert release is not None  # noqa: S101 (a release of the catalogue)
    return release


def in_use(version: object) -> Release:
    """Return the release to take for the one in use; raises UsageError when none can be."""
    if version is None:
        raise UsageError(
            f"{OPTION} compares with the SGLang in use, and no source tells which that is: name it with "
            "--from-version"
        )
    release = catalogue.resolve(str(version))
    if release is None:
        raise UsageError(
            f"{OPTION} compares with the SGLang in use, and {version} is no release that sgdoctor knows "
            f"({catalogue.releases()[0]} and newer): name the nearest with --from-version"
        )
    return release
