"""What sgdoctor.pyz runs: it unpacks itself once, for compiled modules cannot be imported from an archive.

The words between @ are filled in by tools/zipapp.py. Nothing here is newer than Python 3.6, so that a Python
that it was not built for is told so.
"""

import importlib.machinery
import os
import stat
import sys
from pathlib import Path

SUFFIX = "@SUFFIX@"  # of the compiled modules; it names the Python, the processor and the C library
BUILT_FOR = "@BUILT_FOR@"
GLIBC = "@GLIBC@"  # the oldest that the compiled modules can do with; empty: no matter
DIGEST = "@DIGEST@"  # SHA-256 of what is unpacked

USAGE = 2


def main() -> int:
    """Unpack where need be, then run sgdoctor."""
    reason = unsuited()
    if reason:
        return complain(reason)
    archive = Path(__file__).resolve().parent
    try:
        folder = cached(archive) or temporary(archive)
    except OSError as error:
        return complain(f"cannot be unpacked ({error}); set TMPDIR to a folder with 50 MB to spare")
    sys.path[:] = [str(folder), *(place for place in sys.path if Path(place).resolve() != archive)]
    from sgdoctor.cli import main as sgdoctor

    return sgdoctor()


def complain(reason: str) -> int:
    """Say in one line why sgdoctor does not start."""
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    return USAGE


def unsuited() -> str:
    """Return why this Python cannot load the compiled modules, or nothing."""
    this = f"{sys.implementation.name} {sys.version.split()[0]}"
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    if SUFFIX not in importlib.machinery.EXTENSION_SUFFIXES:
        return (
            f"built for {BUILT_FOR} (*{SUFFIX}) and runs with no other Python; this is {this} (*{suffix}); "
            "for this one: make zipapp VENV=.venv-pyz PYTHON=python%d.%d" % sys.version_info[:2]
        )
    found = glibc()
    if GLIBC and found and numbers(found) < numbers(GLIBC):
        return f"built for glibc {GLIBC} or newer; this is {this} on glibc {found}"
    return ""


def glibc() -> str:
    """Return the version of the C library, nothing where it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        return ""
    return version if name == "glibc" else ""


def numbers(version: str) -> "list[int]":
    """Return the parts of a version that are numbers."""
    return [int(part) for part in version.split(".") if part.isdigit()]


def cached(archive: Path) -> "Path | None":
    """Return the folder in the user's cache, unpacked if it is not yet; None where that cannot be."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        parent = cache / "sgdoctor"
        ready = parent / f"pyz-{DIGEST}"
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not trusted(parent):
            return None
        if not ready.is_dir():
            unpack(archive, parent, ready)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return ready


def trusted(folder: Path) -> bool:
    """Return whether only this user can write into ``folder``, and code in it can be run."""
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return folder.is_absolute() and ours and not os.statvfs(str(folder)).f_flag & os.ST_NOEXEC


def temporary(archive: Path) -> Path:
    """Unpack for this run alone."""
    import atexit
    import shutil
    import tempfile

    parent = Path(tempfile.mkdtemp(prefix="sgdoctor-"))
    atexit.register(shutil.rmtree, str(parent), ignore_errors=True)
    unpack(archive, parent, parent / "site")
    return parent / "site"


def unpack(archive: Path, parent: Path, ready: Path) -> None:
    """Unpack to ``ready``: whole or not at all, also when several start at once."""
    import shutil
    import tempfile
    import zipfile

    before = os.umask(0o077)
    work = Path(tempfile.mkdtemp(prefix="unpacking-", dir=str(parent)))
    try:
        with zipfile.ZipFile(str(archive)) as content:
            names = [name for name in content.namelist() if name.startswith("site/")]
            content.extractall(str(work), names)
        (work / "site").rename(ready)
    except OSError:
        if not ready.is_dir():  # else another was faster
            raise
    finally:
        os.umask(before)
        shutil.rmtree(str(work), ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
