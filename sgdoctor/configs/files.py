"""The configuration files of a place, with what their names say, and what lies where SGLang never looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from packaging.version import Version

from sgdoctor.configs import names, places
from sgdoctor.configs.names import Family, Name, Unreachable
from sgdoctor.configs.places import Place, Tree
from sgdoctor.errors import UsageError
from sgdoctor.upstream import lora_config
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.config_problem import Problem, Severity
from sgdoctor.upstream.moe_config import DISCOVERS_FOLDERS, folder_of, version_of

_TRITON = "triton_"


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that lies where its family's lookup searches.

    ``triton`` is the version that its folder is named after. ``name`` is null for a name that SGLang never
    looks for; ``why`` says why.
    """

    family: Family
    path: Path
    triton: str | None = None
    name: Name | None = None
    why: str | None = None


def collect(place: Place) -> list[ConfigFile]:
    """Return the config files of a place, in the order of their families, folders and names.

    Raises UsageError for a folder that cannot be read and for a single file of no family.
    """
    found: list[ConfigFile] = []
    try:
        for tree in place.trees:
            paths = [path for folder in _folders(tree) for path in _json(folder)]
            found += [_described(path, tree.family) for path in paths if _belongs(path, tree, place)]
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror or error}") from None
    for path in place.files:
        family = names.family_of(path.name)
        if family is None:
            raise UsageError(f"{path}: no kernel config: the name of one begins with E=, N= or lora_")
        found.append(_described(path, family))
    return found


def shipped(version: str) -> list[ConfigFile]:
    """Return the config files that a release ships, from the catalogue: fused MoE, GEMM and LoRA.

    Raises UsageError for a version that sgdoctor knows no release for.
    """
    release = places.asked_release(version)
    moe, gemm = Path(release.moe_folder), Path(release.gemm_folder)
    paths = [moe / folder / name for folder, listed in release.moe_listing.items() for name in listed]
    found = [_described(path, "moe") for path in sorted(paths)]
    found += [_described(gemm / name, "gemm") for name in sorted(release.gemm_listing)]
    lora = lora_config.folder(Version(release.version))
    if lora is not None:
        paths = [
            Path(lora) / folder / name for folder, listed in release.lora_listing.items() for name in listed
        ]
        found += [_described(path, "lora") for path in sorted(paths)]
    return found


def wanted(file: ConfigFile, *, device: str | None, triton: str | None, family: str | None) -> bool:
    """Whether a file is of the family, of this Triton and of a device with these words in its name."""
    if family is not None and file.family != family:
        return False
    if triton is not None and file.triton != version_of(folder_of(triton)):
        return False
    if device is None:
        return True
    own = _plain(file.name.device) if file.name is not None else ""
    return all(word in own for word in _plain(device)) or "_".join(_plain(device)) in "_".join(own)


def _plain(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _folders(tree: Tree) -> list[Path]:
    if tree.family == "gemm" or not tree.whole:
        return [tree.root]
    entries = sorted(each for each in tree.root.iterdir() if each.name.startswith(_TRITON))
    return [each for each in entries if each.is_dir()]


def _json(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.name.endswith(".json"))


def _belongs(path: Path, tree: Tree, place: Place) -> bool:
    """Whether a file is this tree's, where folders of several families are the same one."""
    sharing = [each.family for each in place.trees if each.root == tree.root]
    family = names.family_of(path.name)
    return family == tree.family or (family not in sharing and tree.family == sharing[0])


def _described(path: Path, family: Family) -> ConfigFile:
    folder = path.absolute().parent.name
    triton = version_of(folder) if folder.startswith(_TRITON) and family != "gemm" else None
    try:
        name = names.parse(path.name, family)
    except Unreachable as reason:
        return ConfigFile(family=family, path=path, triton=triton, why=str(reason))
    return ConfigFile(family=family, path=path, triton=triton, name=name)


def misplaced(place: Place, release: Release) -> Iterator[Problem]:
    """Yield what lies where the release never looks, and folders whose names end its lookup."""
    for tree in place.trees:
        if tree.whole:
            yield from _beside(tree)
            if tree.family == "moe":
                yield from _odd_folders(tree, Version(release.version))
    if place.package is not None:
        yield from _elsewhere(place.package, release)


def _problem(code: str, severity: Severity, path: Path, text: str) -> Problem:
    return Problem(code=code, severity=severity, file=str(path), text=text)


def _beside(tree: Tree) -> Iterator[Problem]:
    """Yield files of the family that are at another depth than the lookup searches."""
    depth = 1 if tree.family == "gemm" else 2
    where = "the folder itself" if depth == 1 else "its triton_X_Y_Z folders"
    for path in sorted(tree.root.rglob("*.json")):
        inside = path.relative_to(tree.root).parts
        if len(inside) == depth and (depth == 1 or inside[0].startswith(_TRITON)):
            continue
        if names.family_of(path.name) == tree.family:
            yield _problem("misplaced", "warning", path, f"is never read: SGLang looks into {where} only")


def _odd_folders(tree: Tree, release: Version) -> Iterator[Problem]:
    for path in sorted(tree.root.iterdir()):
        if not path.name.startswith(_TRITON):
            continue
        version = version_of(path.name)
        if not all(_is_number(part) for part in version.split(".")):
            yield _odd_folder(path, version, release)
        elif folder_of(version) != path.name:
            text = f"is never read: SGLang looks for Triton {version} in {folder_of(version)}"
            yield _problem("misplaced", "warning", path, text)


def _odd_folder(path: Path, version: str, release: Version) -> Problem:
    if release < DISCOVERS_FOLDERS:
        text = f"is read by a Triton that calls itself {version} alone"
        return _problem("misplaced", "warning", path, text)
    text = (
        f"ends every lookup that does not find its file at once, also that of the _down files: SGLang sorts "
        f"the folders as numbers, and {version!r} is none (ValueError)"
    )
    return _problem("folder-ends-lookup", "error", path, text)


def _is_number(part: str) -> bool:
    try:
        int(part)
    except ValueError:
        return False
    return True


def _elsewhere(package: Path, release: Release) -> Iterator[Problem]:
    """Yield the folders of other releases in which config files are left."""
    for family in names.FAMILIES:
        own = places.own_folder(family, release)
        for folder in places.folders_of(family):
            if folder == own:
                continue
            left = [
                each for each in (package / folder).rglob("*.json") if names.family_of(each.name) == family
            ]
            if left:
                count = f"{len(left)} config files" if len(left) > 1 else left[0].name
                reads = f"SGLang {release.version} looks into {own}" if own else "this release reads none"
                yield _problem("misplaced", "warning", package / folder, f"has {count}, never read: {reads}")
