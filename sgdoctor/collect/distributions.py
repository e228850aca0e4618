"""The distributions installed in a Python environment, from their metadata files; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.utils import canonicalize_name

HEAD_BYTES = 65536  # name and version stand in the first lines; a licence may make the file long

_NAME = re.compile(r"^Name:[ \t]*(\S+)", re.MULTILINE)
_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
_WHEEL_ARCH = re.compile(r"^Tag:.*linux_(?:\d+_\d+_)?(x86_64|aarch64)\s*$", re.MULTILINE)
_REQUIRES = re.compile(r"^Requires-Dist:[ \t]*(.+)$", re.MULTILINE)


class Distribution(msgspec.Struct, frozen=True):
    """One installed distribution: its own name and version, and the file that says so."""

    name: str
    version: str
    metadata: Path


class Installed(msgspec.Struct, frozen=True):
    """What is installed: by canonical name, the one that Python finds first.

    ``doubtful`` are names listed more than once in one folder, with what is said about them; ``problems`` are
    sentences about what could not be read.
    """

    distributions: dict[str, Distribution]
    doubtful: dict[str, str]
    problems: list[str]
    readable: bool


def list_installed(search: Iterable[Path]) -> Installed:
    """List the distributions in the folders of ``search``, in Python's order: the first of a name wins."""
    found: dict[str, Distribution] = {}
    doubtful: dict[str, str] = {}
    problems: list[str] = []
    readable = False
    for folder in search:
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
            continue
        readable = True
        here: dict[str, Distribution] = {}
        for entry, problem in _read_all(entries):
            if problem is not None or entry is None:
                problems.append(problem or "")
                continue
            name: str = canonicalize_name(entry.name)
            other = here.setdefault(name, entry)
            if other.version != entry.version and name not in found:
                doubtful[name] = f"{folder} lists {name} twice, as {other.version} and as {entry.version}"
        for name, entry in here.items():
            found.setdefault(name, entry)
    return Installed(found, doubtful, problems, readable)


def _read_all(entries: Iterable[Path]) -> Iterator[tuple[Distribution | None, str | None]]:
    for entry in entries:
        if entry.name.startswith("~"):  # what pip leaves of an interrupted uninstall
            continue
        if entry.suffix == ".dist-info":
            file = entry / "METADATA"
        elif entry.suffix == ".egg-info":
            file = entry / "PKG-INFO" if entry.is_dir() else entry
        else:
            continue
        try:
            with file.open("rb") as stream:
                head = stream.read(HEAD_BYTES).decode(errors="replace")
        except FileNotFoundError:
            yield None, f"{entry} has no {file.name}: left over from an uninstall"
            continue
        except OSError as error:
            yield None, f"{file}: {error.strerror or error}"
            continue
        name, version = _NAME.search(head), _VERSION.search(head)
        if name is None or version is None:
            yield None, f"{file} names no package and version"
        else:
            yield Distribution(name.group(1), version.group(1), file), None


def requirements(distribution: Distribution) -> list[str] | None:
    """Return what the distribution's own metadata requires; None when it cannot be read."""
    try:
        text = distribution.metadata.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return [line.strip() for line in _REQUIRES.findall(_header(text))]


def _header(text: str) -> str:
    """Return the metadata without the description, which may quote requirements of anything."""
    return re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]


def wheel_arch(distribution: Distribution) -> str | None:
    """Return the processor that the installed wheel was built for; None for any, or when it is not said."""
    try:
        text = (distribution.metadata.parent / "WHEEL").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _WHEEL_ARCH.search(text)
    return found.group(1) if found else None


def editable_folder(distribution: Distribution, root: Path) -> Path | None:
    """Return the source folder of an editable install (PEP 610's direct_url.json); None for any other."""
    try:
        raw = (distribution.metadata.parent / "direct_url.json").read_bytes()
        said = msgspec.json.decode(raw, type=_DirectUrl)
    except (OSError, msgspec.MsgspecError):
        return None
    url = urlsplit(said.url)
    if not said.dir_info.editable or url.scheme != "file":
        return None
    path = unquote(url.path)
    return root / path.lstrip("/") if root != Path("/") else Path(path)


class _DirInfo(msgspec.Struct, frozen=True):
    editable: bool = False


class _DirectUrl(msgspec.Struct, frozen=True):
    url: str
    dir_info: _DirInfo = _DirInfo()


def text_version(folder: Path, files: Iterable[str]) -> tuple[str, Path] | None:
    """Return the ``__version__ = "..."`` that stands in the first of ``files`` that has one, and the file."""
    for name in files:
        file = folder / name
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = _DUNDER.search(text)
        if found:
            return found.group(2), file
    return None


_DUNDER = re.compile(
    r"^\s*__version__\s*(?::[^=\n]*)?=\s*(?:[A-Za-z_]\w*\s*=\s*)*(['\"])([^'\"\n]+)\1", re.MULTILINE
)


def find_package(search: Iterable[Path], name: str) -> Path | None:
    """Return the folder of the import package ``name`` that Python would find first."""
    for folder in search:
        package = folder / name
        if (package / "__init__.py").is_file():
            return package
    return None
