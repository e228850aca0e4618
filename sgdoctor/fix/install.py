"""Put files in place, all of them or none, and take them away again."""

from __future__ import annotations

import contextlib
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


def undo(records: Path) -> list[str]:
    """Undo the newest repair recorded below ``records`` that is not undone; return what was done.

    Files that did not exist before are removed, others get their former content, last first. Raises
    UsageError when there is nothing to undo, when a file was changed since (then none is touched: files of
    one repair belong together) and when a file cannot be restored (then it can be run again).
    """
    record = manifest.newest(records)
    if record is None:
        raise UsageError(f"nothing to undo: {records} has no repair that is not undone yet")
    try:
        _refuse_changed(record)
        done = [_put_back(record, file) for file in reversed(record.manifest.files)]
        _remove_staged(record)
        done += _remove_folders(record)
        record.mark_undone()
    except OSError as error:
        raise UsageError(f"{manifest.said(error, record.folder)}; nothing is lost, run it again") from None
    return [each for each in done if each] or [f"the repair of {record.manifest.date} had changed nothing"]


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
        manifest.write(path, before)
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
