"""What a flag means where the release is not known: what it means in all that the catalogue holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgdoctor.upstream import catalogue

if TYPE_CHECKING:
    from sgdoctor.upstream.catalogue import Release
    from sgdoctor.upstream.flag import Flag


def same_everywhere(option: str, dest: str) -> bool:
    """Whether ``option`` is spelled in full, fills ``dest`` and reads its value alike in all releases."""
    shapes = set()
    for release in _releases():
        flag = release.option(option)
        if flag is None or flag.dest != dest:
            return False
        shapes.add(_shape(flag))
    return len(shapes) == 1


def reachable(option: str) -> set[str]:
    """Return the destinations that ``option``, in full or as an abbreviation, fills in some release."""
    return {
        flag.dest
        for release in _releases()
        for flag in release.flags
        if any(name.startswith(option) for name in (*flag.options, *flag.negations))
    }


def _releases() -> list[Release]:
    found = (catalogue.resolve(version) for version in catalogue.releases())
    return [release for release in found if release is not None]


def _shape(flag: Flag) -> tuple[object, ...]:
    action = "store_true" if flag.action == "deprecated_true" else flag.action
    value = "int" if flag.type == "human_readable_int" else flag.type
    return action, value, str(flag.nargs) if flag.takes_value else "0"
