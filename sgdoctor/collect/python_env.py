"""Where a Python environment keeps its packages: asked of its interpreter, or read off its folders."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from sgdoctor.collect import child
from sgdoctor.errors import UsageError

ASK_SECONDS = 10.0

# -E keeps the doctor's own PYTHON* variables out; the empty entry is the current folder. site's .pth files
# have been read by then, so that editable installs stand in the path. Runs on any Python, 2.7 included.
_ASK = (
    "import sys; sys.path[:] = [p for p in sys.path if p]\n"
    "import json, platform\n"
    "print('\\nsgdoctor:' + json.dumps([sys.path, platform.python_version(), platform.machine()]))\n"
)
_SITE = re.compile(r"^python(\d+\.\d+)$")


class PythonEnvironment(msgspec.Struct, frozen=True):
    """A Python environment to examine.

    ``search`` are its folders on this machine in the order in which Python searches them. ``interpreter`` is
    set when it can be run from here; ``root`` when the paths belong to another mount namespace
    (/proc/PID/root). ``python_path`` are those that PYTHONPATH named: the interpreter needs them there again.
    """

    place: str
    search: tuple[Path, ...]
    python: str | None = None
    arch: str | None = None
    interpreter: str | None = None
    root: Path = Path("/")
    problems: tuple[str, ...] = ()
    python_path: tuple[Path, ...] = ()


def locate(
    target: str, *, python_path: Iterable[str] = (), timeout: float = ASK_SECONDS
) -> PythonEnvironment:
    """Find the package folders of ``target``: an interpreter, a virtual environment or site-packages.

    ``python_path`` are the folders of the server's PYTHONPATH. Raises UsageError when ``target`` is none of
    these.
    """
    extra = tuple(Path(folder) for folder in python_path)
    return msgspec.structs.replace(_locate(target, extra, timeout), python_path=extra)


def _locate(target: str, extra: tuple[Path, ...], timeout: float) -> PythonEnvironment:
    path = Path(target).expanduser()
    if os.sep not in target and not path.is_dir():
        found = shutil.which(target)
        if found is None:
            raise UsageError(f"--python {target}: no such program on PATH")
        path = Path(found)
    if path.is_dir():
        return _of_folder(path, extra, timeout)
    if not path.exists():
        raise UsageError(f"--python {target}: no such file or folder")
    if not os.access(path, os.X_OK):
        raise UsageError(f"--python {target}: neither an interpreter nor a folder of packages")
    asked = _ask(path, extra, timeout)
    if asked.search:
        return asked
    prefix = path.absolute().parent.parent
    return _read_off(prefix, Path("/"), str(path), None, extra, asked.problems)


def under_root(
    interpreter: str, root: Path, *, version: str | None = None, python_path: Iterable[str] = ()
) -> PythonEnvironment:
    """Find the package folders of an interpreter of another mount namespace, without running it."""
    prefix = Path(os.path.normpath(interpreter)).parent.parent
    extra = tuple(_inside(root, folder) for folder in python_path)
    return _read_off(prefix, root, interpreter, version, extra, ())


def default(environ: Mapping[str, str], own_prefix: str) -> PythonEnvironment | None:
    """Return the environment that an operator's ``python3`` means, the folders of PYTHONPATH included."""
    python = default_python(environ, own_prefix)
    return None if python is None else locate(python, python_path=_python_path(environ))


def _python_path(environ: Mapping[str, str]) -> list[str]:
    given = environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(folder).absolute()) for folder in given if folder]


def default_python(environ: Mapping[str, str], own_prefix: str) -> str | None:
    """Return the interpreter that an operator's ``python3`` means, never the doctor's own by accident.

    The active virtual or conda environment, else ``python3`` or ``python`` of PATH. The doctor's own
    environment (``own_prefix``) counts only when SGLang is installed in it too, or on PYTHONPATH.
    """
    extra = tuple(map(Path, _python_path(environ)))
    folders = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    candidates = [str(Path(folder) / "bin" / "python") for folder in folders]
    for folder in environ.get("PATH", "").split(os.pathsep):
        candidates += [str(Path(folder) / name) for name in ("python3", "python")] if folder else []
    for candidate in candidates:
        if not (os.path.isfile(candidate) and os.access(candidate, os.X_OK)):  # noqa: PTH113
            continue
        prefix = Path(candidate).parent.parent
        own = prefix.resolve() == Path(own_prefix).resolve()
        if not own or has_sglang(_read_off(prefix, Path("/"), candidate, None, extra, ())):
            return candidate
    return None


def has_sglang(environment: PythonEnvironment) -> bool:
    """Whether SGLang is installed there, by its metadata or its folder."""
    return any(
        (folder / "sglang" / "__init__.py").is_file() or any(folder.glob("sglang-*.dist-info"))
        for folder in environment.search
    )


def _of_folder(path: Path, extra: tuple[Path, ...], timeout: float) -> PythonEnvironment:
    interpreter = path / "bin" / "python"
    if (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir() or interpreter.exists():
        problems: tuple[str, ...] = ()
        if interpreter.exists():
            asked = _ask(interpreter, extra, timeout)
            if asked.search:
                return msgspec.structs.replace(asked, place=str(path))
            problems = asked.problems
        return _read_off(path.absolute(), Path("/"), str(path), None, extra, problems)
    named = path.name in ("site-packages", "dist-packages")
    if named or any(path.glob("*.dist-info")) or any(path.glob("*.egg-info")):
        version = _SITE.match(path.absolute().parent.name)
        search = (*extra, *with_pth((path.absolute(),)))
        return PythonEnvironment(str(path), search, _full(version))
    raise UsageError(f"--python {path}: neither a virtual environment nor a folder of installed packages")


def _full(found: re.Match[str] | None) -> str | None:
    return found.group(1) if found else None


def _ask(interpreter: Path, extra: tuple[Path, ...], timeout: float) -> PythonEnvironment:
    ended = child.run([str(interpreter), "-E", "-c", _ASK], timeout)
    place = str(interpreter)
    line = next((line for line in ended.stdout.splitlines() if line.startswith("sgdoctor:")), None)
    if line is None:
        why = ended.failure or f"{place} does not run as Python does (exit status {ended.status})"
        return PythonEnvironment(place, (), problems=(f"{why}; its folders were read instead",))
    try:
        search, python, arch = msgspec.json.decode(
            line.removeprefix("sgdoctor:"), type=tuple[list[str], str, str]
        )
    except msgspec.MsgspecError as error:
        return PythonEnvironment(place, (), problems=(f"{place}: {error}",))
    folders = tuple(path for path in (*extra, *map(Path, search)) if path.is_dir())
    return PythonEnvironment(place, folders, python, arch, interpreter=str(interpreter.absolute()))


def _read_off(
    prefix: Path,
    root: Path,
    place: str,
    version: str | None,
    extra: tuple[Path, ...],
    problems: tuple[str, ...],
) -> PythonEnvironment:
    """Read the package folders off the layout below ``prefix``, a path inside ``root``."""
    settings = _venv_settings(_inside(root, str(prefix)) / "pyvenv.cfg")
    found = settings.get("version") or settings.get("version_info")
    version = version or (".".join(found.split(".")[:2]) if found else None)
    folders, version, problem = _site_folders(prefix, root, version)
    if settings.get("include-system-site-packages", "").lower() == "true" and "home" in settings:
        folders += _site_folders(Path(settings["home"]).parent, root, version)[0]
    return PythonEnvironment(
        place,
        (*extra, *with_pth(folders, root)),
        version,
        root=root,
        problems=(*problems, *([problem] if problem else [])),
    )


def _venv_settings(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _site_folders(
    prefix: Path, root: Path, version: str | None
) -> tuple[tuple[Path, ...], str | None, str | None]:
    """Return the package folders below ``prefix``, the Python they belong to, and what is wrong."""
    bases = ["/usr/local", "/usr"] if str(prefix) in ("/usr", "/") else [str(prefix)]
    found: dict[str, list[Path]] = {}
    for base in bases:
        for library in ("lib", "lib64"):
            top = _inside(root, base) / library
            for folder in sorted(top.glob("python3*")):
                name = folder.name.removeprefix("python")
                parts = [folder / "dist-packages", folder / "site-packages"]
                found.setdefault(name, []).extend(part for part in parts if part.is_dir())
    shared = found.pop("3", [])  # Debian's /usr/lib/python3/dist-packages
    versions = [name for name, folders in found.items() if folders]
    if version is None and len(versions) > 1:
        versions = [v for v in versions if any(any(f.glob("sglang-*.dist-info")) for f in found[v])]
        if len(versions) != 1:
            return (), None, f"several Pythons below {prefix}: which one was used is not known"
    version = version or (versions[0] if versions else None)
    folders = [*found.get(".".join((version or "").split(".")[:2]), []), *shared]
    return tuple(dict.fromkeys(folders)), version, None if folders else f"no package folder below {prefix}"


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/") if root != Path("/") else Path(path)


def with_pth(folders: Iterable[Path], root: Path = Path("/")) -> tuple[Path, ...]:
    """Return ``folders`` and those that their .pth files add (editable installs), as Python's site does."""
    search: list[Path] = []
    for folder in folders:
        search.append(folder)
        for file in sorted(folder.glob("*.pth")):
            try:
                lines = file.read_text(errors="replace").splitlines()
            except OSError:
                continue
            for line in lines:
                entry = line.strip()
                if not entry or entry.startswith(("#", "import ", "import\t")):
                    continue
                path = _inside(root, entry) if entry.startswith("/") else folder / entry
                if path.is_dir():
                    search.append(path)
    return tuple(dict.fromkeys(search))
