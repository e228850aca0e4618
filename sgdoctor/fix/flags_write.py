"""Write a launch script that was repaired; what stands there afterwards differs in its text alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sgdoctor.errors import UsageError
from sgdoctor.fix import install, manifest
from sgdoctor.fix.flags_plan import Plan
from sgdoctor.fix.manifest import Record

_KINDS = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a directory"))


def refuse_no_file(path: Path) -> None:
    """Raise UsageError for what is no file that could be changed, before a FIFO or a device is waited for.

    A symbolic link is followed: what it leads to counts. What cannot be looked at is left to who reads it.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        what = next((words for of_kind, words in _KINDS if of_kind(mode)), "a device")
        raise UsageError(f"{path} is {what}: --flags changes a file; save the script as one and name that")


def write(found: Plan) -> Record:
    """Write the repaired file, all of it or nothing, and record what was there; return the record.

    Raises UsageError when the file was changed meanwhile, is not to be written or cannot be.
    """
    assert found.repaired is not None  # noqa: S101 (the caller asks before)
    path = Path(os.path.realpath(found.path))
    try:
        before = path.read_bytes()
        _refuse(found.path, path)
    except OSError as error:
        raise UsageError(f"{found.path}: {error.strerror or error}; nothing was written") from None
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    if before != mark + found.text.encode():
        raise UsageError(
            f"{found.path} was changed while it was looked at; nothing was written, run it again"
        )
    about = {"flags": {"file": str(path), "codes": list(found.codes)}}
    return install.install({path: mark + found.repaired.encode()}, manifest.state_folder(), about)


def _refuse(named: Path, path: Path) -> None:
    """Raise UsageError for a file that is protected, or that a new file in its place would not equal."""
    now, user = path.stat(), os.geteuid()
    groups = {os.getegid(), *os.getgroups()}
    if user and (now.st_uid != user or now.st_gid not in groups):
        raise UsageError(
            f"{named} belongs to user {now.st_uid} and group {now.st_gid}, which a new file of user {user} "
            f"would not: nothing was written; run it as user {now.st_uid} in group {now.st_gid}"
        )
    if not now.st_mode & 0o222 or not os.access(path, os.W_OK):
        mode = f"{stat.S_IMODE(now.st_mode):o}"
        raise UsageError(
            f"{named} is write-protected (mode {mode}): nothing was written; chmod u+w {named}, then again"
        )
    if now.st_nlink > 1:
        raise UsageError(
            f"{named} has {now.st_nlink} names (hard links), and one alone would get the new text: nothing "
            "was written; name a copy, or change it by hand"
        )
