"""The release by whose flags a launch command is read: the catalogue's, or the installed build itself."""

from __future__ import annotations

from argparse import ArgumentError
from pathlib import Path

from sgdoctor.collect import distributions
from sgdoctor.facts import Facts, Known
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.flag import Flag


class InstalledRelease(Release):
    """A build that the catalogue does not have, with its own flags; all else is its neighbour's.

    ``exact`` is True, for it is about the flags.
    """

    def __init__(self, neighbour: str, asked: str, flags: list[Flag]) -> None:
        super().__init__(neighbour, asked=asked)
        self.flags = flags
        self.exact = True


def in_use(facts: Facts) -> Release | None:
    """Return the release whose flags the deployment takes, or None when it is not known.

    A build that the catalogue does not have is read from its own source where that is on this disk; where it
    cannot be read, that becomes a note and the catalogue's neighbour stands in.
    """
    version = facts.value("sglang.version")
    release = catalogue.resolve(version) if version else None
    if release is not None and release.exact:
        return release
    folder = _package(facts, version)
    if folder is None:
        return release
    from sgdoctor.upstream.flags import parser_for
    from sgdoctor.upstream.installed_flags import flags_of
    from sgdoctor.upstream.source_fields import SourceError

    neighbour = release.version if release is not None else catalogue.releases()[-1]
    try:
        flags = flags_of(folder)
        parser_for(flags)
    except (SourceError, ArgumentError, ValueError, TypeError) as error:  # argparse refuses odd flags
        instead = f"; those of {neighbour} stand in" if release is not None else ""
        note = f"the flags of SGLang in {folder} could not be read from its source ({error}){instead}"
        if note not in facts.notes:
            facts.notes.append(note)
        return release
    return InstalledRelease(neighbour, version or "the installed SGLang", flags)


def _package(facts: Facts, version: str | None) -> Path | None:
    """Return the sglang folder on this disk that ``version`` was read from.

    None where the version was told by something else (``--assume``, a server elsewhere, a log), or the folder
    is by now another version's, as one named in a snapshot may be.
    """
    path, told = facts.get("sglang.path"), facts.get("sglang.version")
    if not isinstance(path, Known) or not isinstance(path.value, str) or not _from_packages(path):
        return None
    if isinstance(told, Known) and not _from_packages(told):
        return None
    folder = Path(path.value)
    try:
        if not (folder / "__init__.py").is_file():
            return None
    except OSError:
        return None
    said = distributions.text_version(folder, ("_version.py", "version.py"))
    return folder if said is None or said[0] == version else None


def _from_packages(fact: Known) -> bool:
    return any(each.source == "packages" for each in fact.provenance)
