"""Put files in place, all of them or none, and take them away again."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgdoctor.errors import UsageError
from sgdoctor.fix import manifest
from sgdoctor.fix.manifest import Record, Written


def why_not(folder: Path) -> str | None:
    """Return why no file can be created in ``folder``, or where it would be created; null when one can.

    Leaves nothing behind, not even where it can be written.
    """
    existing = folder
    try:
        existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"{existing}: {error.strerror or error}"


def install(contents: Mapping[Path, bytes], records: Path, about: Mapping[str, Any]) -> Record:
    """Write ``contents`` (path and content), in their order, and record it below ``records``.

    Raises UsageError when a file cannot be written; then those before it are put back and nothing is
    recorded.
    """
    try:
        folders = tuple(dict.fromkeys(new for path in contents for new in manifest.missing(path.parent)))
        record = manifest.begin(records, contents, folders, about)
    except OSError as error:
        raise UsageError(f"{manifest.said(error, records)}; nothing was changed") from None
    try:
        manifest.make_folders(folders)
        _write(contents)
    except OSError as error:
        _give_up(record, error)
    return record


def _write(contents: Mapping[Path, bytes]) -> None:
    """Write all, then rename all: a disk that is full is full before anything has changed."""
    staged: list[tuple[Path, Path]] = []
    try:
        for path, content in contents.items():
            staged.append((manifest.stage(path, content), path))
        while staged:
            manifest.put(*staged.pop(0))
    finally:
        for left, _ in staged:
            left.unlink(missing_ok=True)


def _give_up(record: Record, why: OSError) -> None:
    """Put back what was written so far, then raise UsageError."""
    said = manifest.said(why, Path(record.manifest.files[0].path).parent)
    try:
        for file in reversed(record.manifest.files):
            _put_back(record, file)
        _remove_folders(record)
    except OSError as error:
        # The record stays, so that it can be undone when there is room again.
        text = f"{said}; putting back what was there failed, too ({manifest.said(error, record.folder)})"
        raise UsageError(f"{text}: sgdoctor fix --undo, when that is mended") from None
    shutil.rmtree(record.folder, ignore_errors=True)
    raise UsageError(f"{said}; nothing was changed") from None


def undoable(records: Path, within: Path | None = None) -> Record:
    """Return the newest repair recorded below ``records`` that is not undone, where it can be undone.

    ``within``: the folder in which all of its files must lie, since whoever wrote there wrote the manifest.
    Raises UsageError when there is nothing to undo, when a file lies elsewhere or was changed since, and when
    what a file is to be restored from is gone.
    """
    record = manifest.newest(records)
    if record is None:
        raise UsageError(f"nothing to undo: {records} has no repair that is not undone yet")
    try:
        if within is not None:
            _refuse_outside(record, within)
        _refuse_changed(record)
    except OSError as error:
        raise UsageError(f"{manifest.said(error, record.folder)}; nothing was undone") from None
    return record


def would_undo(record: Record) -> list[str]:
    """Return what `undo` is going to do with each file, last first.

    Raises UsageError for a file that cannot be read.
    """
    told = []
    for file in reversed(record.manifest.files):
        try:
            content = manifest.read(Path(file.path))
        except OSError as error:
            raise UsageError(f"{manifest.said(error, record.folder)}; nothing was undone") from None
        if content is not None and file.backup is None:
            told.append(f"remove {file.path}")
        elif file.backup is not None and (content is None or manifest.sha256(content) != file.before):
            told.append(f"restore {file.path}, as it was before")
    return told


def undo(record: Record) -> list[str]:
    """Undo a repair that `undoable` returned; return what was done.

    Files that did not exist before are removed, others get their former content, last first; none is touched
    when one was changed since, for files of one repair belong together. Raises UsageError when a file cannot
    be restored; then it can be run again.
    """
    try:
        done = [_put_back(record, file) for file in reversed(record.manifest.files)]
        _remove_staged(record)
        done += _remove_folders(record)
        record.mark_undone()
    except OSError as error:
        raise UsageError(f"{manifest.said(error, record.folder)}; nothing is lost, run it again") from None
    return [each for each in done if each] or [f"the repair of {record.manifest.date} had changed nothing"]


def _refuse_outside(record: Record, within: Path) -> None:
    """Refuse a manifest that names a place outside ``within``: it is of another folder, or was made up."""
    inside = Path(os.path.realpath(within))
    places = [Path(file.path) for file in record.manifest.files]
    # The folder itself and those above it are created with it, and stay: the record lies in it.
    places += [Path(each) for each in record.manifest.folders if not inside.is_relative_to(each)]
    for place in places:
        folder = Path(os.path.realpath(place.parent))
        if ".." in place.parts or not (folder / place.name).is_relative_to(inside):
            raise UsageError(
                f"{record.folder / manifest.NAME} names {place}, which is not in {within}: was the folder "
                "moved? Move it back to undo the repair, or remove its files yourself; nothing was undone"
            )
    for file in record.manifest.files:
        if file.backup is not None and Path(file.backup).name != file.backup:
            raise UsageError(
                f"{record.folder / manifest.NAME} restores {file.path} from {file.backup}, which is not in "
                "the same folder; nothing was undone"
            )


def _refuse_changed(record: Record) -> None:
    for file in record.manifest.files:
        content = manifest.read(Path(file.path))
        if content is not None and manifest.sha256(content) not in (file.sha256, file.before):
            backup = record.backup(file)
            before = f"what was there before is {backup}" if backup else "it did not exist before"
            raise UsageError(
                f"{file.path} was changed since sgdoctor wrote it, and nothing was undone: "
                f"move it away and run it again ({before})"
            )
        backup = record.backup(file)
        if backup is not None and not backup.is_file():
            raise UsageError(f"{backup}: no such file, so {file.path} cannot be restored; nothing was undone")


def _put_back(record: Record, file: Written) -> str:
    """Give a file its former content; return what was done, empty when it has it already."""
    path = Path(file.path)
    content = manifest.read(path)
    backup = record.backup(file)
    if backup is not None:
        before = backup.read_bytes()
        if content == before:
            return ""
        manifest.make_folders(manifest.missing(path.parent))
        manifest.write(path, before, like=path if path.exists() else backup)
        return f"restored {path}"
    if content is None:
        return ""
    path.unlink()
    manifest.sync(path.parent)
    return f"removed {path}"


def _remove_staged(record: Record) -> None:
    """Remove what a repair that was killed had begun to write."""
    for folder in {Path(file.path).parent for file in record.manifest.files}:
        for left in folder.glob(f"{manifest.STAGED}*"):
            left.unlink()


def _remove_folders(record: Record) -> list[str]:
    """Remove the folders that the repair created, where nothing lies in them."""
    removed = []
    for folder in reversed(record.manifest.folders):
        with contextlib.suppress(OSError):  # others use it by now
            Path(folder).rmdir()
            removed.append(f"removed {folder}")
    return removed
