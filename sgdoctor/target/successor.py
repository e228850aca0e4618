"""What a flag that is gone was replaced by, as the releases on the way say it themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sgdoctor.target import meaning
from sgdoctor.target.command import Written
from sgdoctor.target.path import Path
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.flag import Flag

_FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")
_BRACES = re.compile(r"\{([^{}]*)\}")
_NOTED = re.compile(r"\b[Uu]se (--[a-z0-9][a-z0-9-]*(?:=[A-Za-z0-9_.]+)?)")
_DEPRECATED = re.compile(r"^\W*deprecated\W*\s*", re.IGNORECASE)
_LONGEST_CHAIN = 4


def of(written: Written, path: Path) -> list[str]:
    """Return what to write instead (``--cp-strategy``, ``--cuda-graph-backend-prefill=disabled``).

    Upwards the last release that still had the flag names it (several: all together are meant); downwards the
    older flags that newer releases call its aliases (several: one of them is meant). Failing that, the flag
    that fills the same destination. The release at the end knows all of them.
    """
    option = written.option
    if not path.upgrade:
        return _older(written, path) or _same_destination(written, path)
    for _ in range(_LONGEST_CHAIN):
        flag = last(option, path)
        if flag is None or flag.new_flag is None:
            break
        found = named(flag.new_flag, path.end)
        if found:
            return found
        following = _FLAG.match(flag.new_flag)
        if following is None or following.group() == option:
            break
        option = following.group()
    return _same_destination(written, path)


def last(option: str, path: Path) -> Flag | None:
    """Return the flag as the last release on the way had it that knew it in full."""
    for version in reversed(path.towards_end()):
        release = catalogue.resolve(version)
        flag = release.option(option) if release is not None else None
        if flag is not None:
            return flag
    return None


def named(new_flag: str, release: Release) -> list[str]:
    """Return the flags that a deprecated one is read as, as far as ``release`` takes them."""
    return [text for text in _expanded(new_flag) if accepts(release, text)]


def noted(flag: Flag | None, release: Release) -> str | None:
    """Return the flag that a note says to use and ``release`` takes; what its value means may differ."""
    found = _NOTED.search((flag.error or flag.note or "") if flag is not None else "")
    return found.group(1) if found and accepts(release, found.group(1)) else None


def mapped(value: str, other: str, path: Path) -> str | None:
    """Return what a note of the releases on the way says that ``value`` is called by the flag ``other``."""
    for version in reversed(path.towards_end()):
        release = catalogue.resolve(version)
        for flag in release.flags if release is not None else ():
            if flag.new_flag == other and flag.note:
                found = re.search(rf"'{re.escape(value)}' maps to '([\w-]+)'", flag.note)
                if found and accepts(path.end, f"{other}={found.group(1)}"):
                    return found.group(1)
    return None


def words(flag: Flag | None) -> str | None:
    """Return the first sentence of what a release says of a deprecated flag."""
    text = (flag.error or flag.note or "") if flag is not None else ""
    sentence = _DEPRECATED.sub("", text.strip()).split(". ")[0].strip().rstrip(".")
    return sentence or None


def accepts(release: Release, text: str) -> bool:
    """Whether the release has this flag in full and, where a value is given, takes that."""
    option, equals, _ = text.partition(" <")[0].partition("=")
    if release.option(option) is None:
        return False
    return not equals or meaning.spelled(release, text).accepted


def _expanded(new_flag: str) -> Iterator[str]:
    """Iterate over what ``--cuda-graph-backend-{decode,prefill}=disabled`` stands for."""
    braces = _BRACES.search(new_flag)
    if braces is None:
        yield new_flag
        return
    for part in braces.group(1).split(","):
        yield from _expanded(new_flag[: braces.start()] + part.strip() + new_flag[braces.end() :])


def _same_destination(written: Written, path: Path) -> list[str]:
    flag = last(written.option, path)
    other = path.end.flag(flag.dest) if flag is not None else None
    if flag is None or other is None or other.deprecated or other.takes_value != flag.takes_value:
        return []
    if written.option in flag.negations:
        return list(other.negations[:1])
    return [other.option]


def _older(written: Written, path: Path) -> list[str]:
    """Return the flags of the older release that newer ones call aliases of what is written."""
    found: list[str] = []
    for version in path.steps:
        release = catalogue.resolve(version)
        for flag in release.flags if release is not None else ():
            text = _alias(flag, written)
            known = path.end.option(flag.option)
            if text is not None and text not in found and known is not None and not known.deprecated:
                found.append(text)
    return found


def _alias(flag: Flag, written: Written) -> str | None:
    """Return how to write with ``flag`` what it is an alias of: ``--dp-size 8`` for ``<dp-size>``."""
    if flag.new_flag is None or flag.error:
        return None
    option, placeholder, name = flag.new_flag.partition(" <")
    if placeholder and option == written.option and written.value:
        return f"{flag.option} --{name.rstrip('>')} {written.value}"
    return flag.option if flag.new_flag in (written.option, f"{written.option}={written.value}") else None
