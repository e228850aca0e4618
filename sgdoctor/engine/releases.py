"""Release ranges: `>=A,<B` with B the next release that differs, or one bound alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from sgdoctor.engine.expr_tree import parse_version

if TYPE_CHECKING:
    from packaging.version import Version

FORM = ">=0.5.10,<0.5.14"

_RANGE = re.compile(r"(?:>=\s*(?P<first>[0-9][^\s,<>=]*))?\s*,?\s*(?:<\s*(?P<end>[0-9][^\s,<>=]*))?\Z")


class Range(msgspec.Struct, frozen=True):
    """The releases from ``first`` on, up to but without ``end``. Post releases follow their release."""

    first: str | None
    end: str | None

    def contains(self, text: str) -> bool | None:
        """Whether the release is in the range; None: ``text`` does not say which release it is.

        A build between releases (0.5.14.dev3, 0.5.14rc1) counts as the release it is named after, which a
        build that names none (0.0.0.dev1) cannot.
        """
        version = parse_version(text)
        if version is None or not any(version.release):
            return None
        if version.is_prerelease:
            version = _version(version.base_version)
        return (self.first is None or version >= _version(self.first)) and (
            self.end is None or version < _version(self.end)
        )


def _version(text: str) -> Version:
    from packaging.version import Version

    return Version(text)


def parse(text: str) -> Range:
    """Return the range that ``text`` is; raises ValueError with the way out when it is none."""
    found = _RANGE.match(text.strip())
    if found is None or not any(found.groups()) or ("," in text) is not all(found.groups()):
        raise ValueError(f"write releases as {FORM}: post releases fall out of `<=`, `>`, `==` and `~=`")
    bounds = [bound and parse_version(bound) for bound in found.groups()]
    if None in [version for version, bound in zip(bounds, found.groups(), strict=True) if bound]:
        raise ValueError(f"write releases as {FORM}: a bound is not a version")
    first, end = bounds
    if first and end and first >= end:
        raise ValueError("no release is in this range; the second bound is the next release that differs")
    return Range(*found.groups())


def between_releases(text: str) -> bool:
    """Whether this is a development build or a release candidate."""
    version = parse_version(text)
    return version is not None and version.is_prerelease
