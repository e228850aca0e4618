"""Where kernel configuration files lie: in an SGLang, in a folder in place of its own, or by themselves."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sgdoctor.configs.names import FAMILIES, Family, family_of
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.upstream import catalogue, lora_config
from sgdoctor.upstream.catalogue import Release

if TYPE_CHECKING:
    from sgdoctor.collect.python_env import PythonEnvironment

_TRITON = "triton_"
_ROOTS: dict[str, Family] = {"configs": "moe", "csgmv_configs": "lora"}


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a family's lookup searches; ``whole``: it is given with everything that lies in it.

    The fused-MoE and LoRA families have ``triton_*`` folders in it, the GEMM family the files themselves.
    """

    family: Family
    root: Path
    whole: bool = True


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a PATH came to: the folders to look into, or single files.

    ``package`` is the ``sglang`` folder, where PATH has one, ``version`` and ``triton`` what it says of
    itself and of the Triton beside it.
    """

    path: Path
    trees: tuple[Tree, ...] = ()
    files: tuple[Path, ...] = ()
    package: Path | None = None
    version: str | None = None
    triton: str | None = None
    notes: tuple[str, ...] = ()


def find(target: str | None) -> Place:
    """Find the config folders of ``target``: by default of the SGLang that ``python3`` would run.

    A target is an interpreter, a virtual environment, site-packages, an unpacked wheel, a checkout or the
    ``sglang`` folder itself; a folder of ``triton_*`` folders, one of these, a folder of files; a file.
    Raises UsageError for anything else, Undecided when there is no SGLang to look at.
    """
    if target is None:
        found = _default()
        return _read(Path(found.place), found, None)
    path = Path(target).expanduser()
    try:
        if path.is_dir():
            return _of_folder(path)
        if path.suffix == ".json" and path.exists():
            return Place(path=path, files=(path,))
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror or error}") from None
    if not path.exists() and shutil.which(target) is None:
        raise UsageError(f"{target}: no such file, folder or program")
    return _installed(target)


def asked_release(version: str) -> Release:
    """Return the release of ``--sglang VERSION``; raises UsageError when sgdoctor knows none for it."""
    release = catalogue.resolve(version)
    if release is None:
        known = catalogue.releases()
        raise UsageError(f"--sglang {version}: no release that sgdoctor knows ({known[0]} to {known[-1]})")
    return release


def _default() -> PythonEnvironment:
    from sgdoctor.collect import python_env

    found = python_env.default(os.environ, sys.prefix)
    if found is None or not python_env.has_sglang(found):
        raise Undecided(
            "nothing to look at: python3 on PATH has no SGLang. Name one: an interpreter, a virtual "
            "environment, an unpacked wheel or a folder of config files"
        )
    return found


def _of_folder(path: Path) -> Place:
    package = _package(path)
    if package is not None:
        from sgdoctor.collect.python_env import PythonEnvironment, with_pth

        return _read(path, PythonEnvironment(str(path), with_pth((package.parent,))), package)
    loose = _loose(path)
    return loose if loose is not None else _installed(str(path))


def _package(path: Path) -> Path | None:
    """Return the ``sglang`` folder that ``path`` is or holds as an unpacked wheel or a checkout does."""
    for candidate in (path, path / "sglang", path / "python" / "sglang"):
        if (candidate / "__init__.py").is_file() and (candidate / "srt").is_dir():
            return candidate.absolute()
    return None


def _installed(target: str) -> Place:
    from sgdoctor.collect import python_env

    try:
        found = python_env.locate(target)
    except UsageError as error:
        said = str(error).removeprefix("--python ")
        more = ", nor of kernel config files" if Path(target).is_dir() else ""
        raise UsageError(f"{said}{more}") from None
    return _read(Path(target), found, None)


def _read(path: Path, environment: PythonEnvironment, package: Path | None) -> Place:
    from sgdoctor.collect import packages
    from sgdoctor.facts import Facts

    facts = Facts()
    packages.read_packages(facts, environment)
    where = package or _path(facts.value("sglang.path"))
    if where is None:
        raise Undecided(f"{path}: SGLang is not installed there")
    version = facts.value("sglang.version")
    release = catalogue.resolve(version) if version else None
    return Place(
        path=path,
        trees=tuple(trees(where, release)),
        package=where,
        version=version,
        triton=facts.value("triton.version"),
        notes=tuple(facts.notes),
    )


def _path(value: object) -> Path | None:
    return Path(value) if isinstance(value, str) else None


def trees(package: Path, release: Release | None) -> list[Tree]:
    """Return the folders of a package that its release reads, of an unknown release the newest there are."""
    found = []
    for family in FAMILIES:
        folders = folders_of(family) if release is None else [own_folder(family, release)]
        existing = [package / folder for folder in folders if folder and (package / folder).is_dir()]
        found += [Tree(family=family, root=root) for root in existing[:1]]
    return found


def own_folder(family: Family, release: Release) -> str | None:
    """Return the folder of a family below the package; None where the release has no such family."""
    if family == "moe":
        return release.moe_folder
    if family == "gemm":
        return release.gemm_folder
    from packaging.version import Version

    return lora_config.folder(Version(release.version))


def folders_of(family: Family) -> list[str]:
    """Return every folder in which a release looked for the family, the newest release's first."""
    known = (catalogue.resolve(version) for version in reversed(catalogue.releases()))
    folders = (own_folder(family, release) for release in known if release is not None)
    return list(dict.fromkeys(folder for folder in folders if folder))


def _loose(path: Path) -> Place | None:
    """Return what a folder outside of a package holds, None when these are no config files."""
    if path.name.startswith(_TRITON):
        return _triton_folder(path)
    if _has_triton(path):
        return Place(path=path, trees=tuple(_roots(path)))
    inner = [path / name for name in _ROOTS if _has_triton(path / name)]
    if inner:
        return Place(path=path, trees=tuple(tree for root in inner for tree in _roots(root)))
    names = _json_names(path)
    families = {family for name in names if (family := family_of(name)) is not None}
    if families == {"gemm"}:
        return Place(path=path, trees=(Tree(family="gemm", root=path),))
    if families:
        return Place(path=path, files=tuple(path / name for name in sorted(names) if family_of(name)))
    return None


def _triton_folder(path: Path) -> Place:
    """Return one Triton version's folder: of both families when it has files of both."""
    families = _families([path], _ROOTS.get(path.absolute().parent.name, "moe"))
    return Place(path=path, trees=tuple(Tree(family=family, root=path, whole=False) for family in families))


def _roots(root: Path) -> Iterable[Tree]:
    """Return a folder of ``triton_*`` folders as the families' whose files are in these."""
    folders = [folder for folder in root.iterdir() if folder.name.startswith(_TRITON)]
    return [Tree(family=family, root=root) for family in _families(folders, _ROOTS.get(root.name, "moe"))]


def _families(folders: Iterable[Path], otherwise: Family) -> list[Family]:
    """Return the families that have files in ``folders``, of those with a folder for each Triton."""
    found = {family_of(name) for folder in folders for name in _json_names(folder)}
    return [family for family in FAMILIES if family in found and family != "gemm"] or [otherwise]


def _has_triton(path: Path) -> bool:
    return path.is_dir() and any(each.name.startswith(_TRITON) for each in path.iterdir())


def _json_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [each.name for each in folder.iterdir() if each.name.endswith(".json")]
