"""Where a deployment's fused-MoE config files lie: the package's folder, or the one that replaces it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sgdoctor.facts import Facts
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.moe_config import CONFIG_DIR_VARIABLE, Listing

OnHost = Callable[[str], str | None]

_VARIABLE = f"env.{CONFIG_DIR_VARIABLE}"
_CONFIG_FILES = "E=*.json"


def root(facts: Facts, release: Release) -> tuple[str, list[str]]:
    """Return the path of the folder that the server searches, and the facts that say so."""
    value = facts.value(_VARIABLE)
    if value is None:
        found, used = packaged(facts, release)
        return found.root, used
    return str(_replacing(value) / "configs"), [_VARIABLE]


def _replacing(value: str) -> Path:
    folder = Path(value)
    if not folder.is_absolute():
        raise Open(f"{CONFIG_DIR_VARIABLE}={value} is relative to the server's working directory")
    return folder


def listing(facts: Facts, release: Release, on_host: OnHost | None) -> tuple[Listing, list[str]]:
    """Return the folder that the server searches, and the facts that say so.

    Raises Open when that is a folder of another machine, or inside a container.
    """
    value = facts.value(_VARIABLE)
    if value is None:
        return packaged(facts, release)
    folder, used = _replacing(value), [_VARIABLE]
    if on_host is not None:
        mounted = on_host(value)
        if mounted is None:
            raise Open(f"{folder} ({CONFIG_DIR_VARIABLE}) is a folder inside the container")
        folder = Path(mounted)
    if not folder.exists():
        if on_host is not None or not _here(facts):
            raise Open(f"{folder} ({CONFIG_DIR_VARIABLE}) is not on this machine")
        used.append("sglang.path")
    return _read(folder / "configs"), used


def packaged(facts: Facts, release: Release) -> tuple[Listing, list[str]]:
    """Return the package's own folder: on this disk, or as the release ships it."""
    path = facts.value("sglang.path")
    if isinstance(path, str):
        folder = Path(path) / release.moe_folder
        if folder.is_dir():
            return _read(folder.resolve()), ["sglang.path"]
    root = f"{path or 'sglang'}/{release.moe_folder}"
    return Listing.from_catalogue(root, release.moe_listing), ["sglang.version"]


def _read(folder: Path) -> Listing:
    try:
        return Listing.from_disk(folder)
    except OSError as error:
        raise Open(f"{folder} could not be read: {error.strerror or error}") from error


def _here(facts: Facts) -> bool:
    """Whether the server runs, or will run, on this machine's own files."""
    path = facts.value("sglang.path")
    return isinstance(path, str) and Path(path).is_dir() and facts.value("host.container") is None


def misplaced(facts: Facts) -> None:
    """Derive moe.misplaced_files: beside the Triton folders, or where an older release looked."""
    name, needs = "moe.misplaced_files", ["sglang.path", "sglang.version"]
    path, version = facts.value("sglang.path"), facts.value("sglang.version")
    release = catalogue.resolve(version) if version is not None else None
    if not isinstance(path, str) or release is None or not Path(path).is_dir():
        facts.set_unknown(name, "the files of the SGLang package are not on this machine", needs)
        return
    own = release.moe_folder
    folders = {each.moe_folder for text in catalogue.releases() if (each := catalogue.resolve(text))}
    try:
        found = [file.name for file in (Path(path) / own).glob(_CONFIG_FILES)]
        for folder in sorted(folders - {own}):
            root = Path(path) / folder
            found += [str(file.relative_to(path)) for file in root.rglob(_CONFIG_FILES)]
    except OSError as error:
        facts.set_unknown(name, f"{path}: {error.strerror or error}", needs)
        return
    facts.derive(name, sorted(found), needs)
