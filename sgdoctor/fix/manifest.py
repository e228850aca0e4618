"""What a repair wrote, where it is recorded: one folder a repair, with its manifest and what it replaced."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sgdoctor import __version__
from sgdoctor.errors import UsageError

FORMAT = "sgdoctor-fix"
VERSION = 1
NAME = "manifest.json"
STAGED = ".sgdoctor-"  # how names begin of files that are not complete yet

# SGLang may run as another user than the one who repairs it: files and folders that anybody can read.
_FILE_MODE = 0o644
_FOLDER_MODE = 0o755


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One file: the SHA-256 of its content after the repair and before it (null: it did not exist).

    ``backup`` is the name under which the record's folder keeps what was there before.
    """

    path: str
    sha256: str
    before: str | None = None
    backup: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One repair. ``folders`` are those it created, outermost first; ``date`` and ``undone`` are UTC.

    It is written before the files are: after a kill at any moment it names all that may have been changed.
    ``about`` is what the repair says of itself, for a tuned configuration the job, the GPU and the gain.
    """

    format: str
    version: int
    date: str
    sgdoctor: str
    files: tuple[Written, ...]
    folders: tuple[str, ...] = ()
    about: Mapping[str, Any] = msgspec.field(default_factory=dict)
    undone: str | None = None


class Record(msgspec.Struct, frozen=True):
    """A manifest and the folder that holds it."""

    folder: Path
    manifest: Manifest

    def backup(self, file: Written) -> Path | None:
        """Return where the content is that ``file`` had before."""
        return self.folder / file.backup if file.backup else None

    def mark_undone(self) -> None:
        """Write down that this repair was undone; raises OSError."""
        marked = msgspec.structs.replace(self.manifest, undone=_now().isoformat(timespec="seconds"))
        write(self.folder / NAME, _encoded(marked))


def state_folder() -> Path:
    """Return where repairs of this host are recorded: $XDG_STATE_HOME/sgdoctor/fix, by default in ~."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():  # the specification has others ignored
        return given / "sgdoctor" / "fix"
    try:
        return Path.home() / ".local" / "state" / "sgdoctor" / "fix"
    except RuntimeError:
        raise UsageError("no home folder to record the repair in: set XDG_STATE_HOME") from None


def begin(
    records: Path, contents: Mapping[Path, bytes], folders: tuple[Path, ...], about: Mapping[str, Any]
) -> Record:
    """Save what ``contents`` (path and new content) will replace, then write the manifest.

    ``folders`` are those that do not exist yet, outermost first. Raises OSError; then nothing is recorded.
    """
    make_folders(missing(records))
    folder = _new_folder(records)
    sync(records)
    try:
        files = [_saved(folder, number, *each) for number, each in enumerate(contents.items(), 1)]
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            date=_now().isoformat(timespec="seconds"),
            sgdoctor=__version__,
            files=tuple(files),
            folders=tuple(map(str, folders)),
            about=about,
        )
        write(folder / NAME, _encoded(manifest))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Record(folder, manifest)


def _saved(folder: Path, number: int, path: Path, content: bytes) -> Written:
    """Keep in ``folder`` what ``content`` will replace."""
    before = read(path)
    if before is None:
        return Written(path=str(path), sha256=sha256(content))
    backup = f"{number}-{path.name}"
    write(folder / backup, before, like=path)  # who may not read the one may not read the other
    return Written(path=str(path), sha256=sha256(content), before=sha256(before), backup=backup)


def newest(records: Path) -> Record | None:
    """Return the newest repair that was not undone, null when there is none.

    A folder without a manifest is a repair that ended before it changed anything, or that is just beginning:
    it is passed over, and stays. Raises UsageError for a manifest that cannot be read.
    """
    try:
        names = sorted((path.name for path in records.iterdir() if path.is_dir()), reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{records}: {error.strerror or error}") from None
    for name in names:
        manifest = _load(records / name / NAME)
        if manifest is not None and manifest.undone is None:
            return Record(records / name, manifest)
    return None


def _load(path: Path) -> Manifest | None:
    way_out = f"move {path.parent} away to undo what was done before it"
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no manifest of a repair: {error}; {way_out}") from None
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        what = f"{manifest.format} {manifest.version}"
        raise UsageError(f"{path} is {what}, this sgdoctor reads {FORMAT} {VERSION}; {way_out}")
    if any("\0" in each for each in _paths(manifest)):
        raise UsageError(f"{path} is no manifest of a repair: a path has a NUL character; {way_out}")
    return manifest


def _paths(manifest: Manifest) -> list[str]:
    files = [part for file in manifest.files for part in (file.path, file.backup) if part is not None]
    return [*files, *manifest.folders]


def write(path: Path, content: bytes, *, like: Path | None = None) -> None:
    """Write a file, all of it or nothing; raises OSError. ``like`` as in `stage`."""
    put(stage(path, content, like=like), path)


def stage(path: Path, content: bytes, *, like: Path | None = None) -> Path:
    """Write ``content`` to a neighbour of ``path``, to the disk; return it. Raises OSError.

    It gets the owner, as far as the system lets it, and the mode of ``like``, by default of ``path``.
    """
    descriptor, name = tempfile.mkstemp(prefix=STAGED, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _adopt(Path(name), like or path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def put(staged: Path, path: Path) -> None:
    """Give a staged file its name; raises OSError, and the staged file is gone."""
    try:
        os.replace(staged, path)  # noqa: PTH105
    except OSError:
        staged.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(folder: Path) -> None:
    """Bring what was renamed and removed in ``folder`` to the disk, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: Path) -> bytes | None:
    """Return a file's content, null when there is no such file; raises OSError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sha256(content: bytes) -> str:
    """Return the hash of ``content`` in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def said(error: OSError, otherwise: Path) -> str:
    """Return where and why something failed; of a file that is not complete yet, its folder."""
    path = Path(error.filename or otherwise)
    where = path.parent if path.name.startswith(STAGED) else path
    return f"{where}: {error.strerror or error}"


def missing(folder: Path) -> tuple[Path, ...]:
    """Return ``folder`` and those above it that do not exist, outermost first."""
    chain = [folder, *folder.parents]
    return tuple(reversed([each for each in chain if not each.exists()]))


def make_folders(folders: tuple[Path, ...]) -> None:
    """Create folders, outermost first; raises OSError."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        folder.chmod(_FOLDER_MODE)


def _new_folder(records: Path) -> Path:
    """Create a folder named after this moment, so that names sort by time."""
    while True:
        folder = records / _now().strftime("%Y%m%dT%H%M%S.%fZ")
        try:
            folder.mkdir()
        except FileExistsError:
            continue  # another repair in this very microsecond
        return folder


def _adopt(staged: Path, like: Path) -> None:
    """Give a staged file the owner and the mode of ``like``, or those of a new file where there is none."""
    try:
        model = like.stat()
    except OSError:
        staged.chmod(_FILE_MODE)
        return
    mode = stat.S_IMODE(model.st_mode)
    try:
        os.chown(staged, model.st_uid, model.st_gid)
    except OSError:
        mode &= 0o777  # set-uid means something else for another owner
    staged.chmod(mode)


def _encoded(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
