"""The two files of a tuned fused-MoE shape: their text, the folder they go into, what the next start loads.

Read in fused_moe_triton_config.py and fused_moe.py of SGLang 0.5.9 to 0.5.23 (0.5.9 and 0.5.10:
srt/layers/moe/fused_moe_triton, then srt/layers/moe/moe_runner/triton_utils).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from sgdoctor.errors import UsageError
from sgdoctor.fix import install, manifest
from sgdoctor.fix.manifest import Record
from sgdoctor.tune.model import Job, Table, Tuning
from sgdoctor.tune.space import shared_memory_limit
from sgdoctor.upstream import moe_files
from sgdoctor.upstream.config_problem import Gpu
from sgdoctor.upstream.moe_config import (
    CONFIG_DIR_VARIABLE,
    DISCOVERS_FOLDERS,
    Found,
    Listing,
    Lookup,
    folder_of,
    look_up_files,
    shape_of,
    version_of,
)

Way = Literal["install", "output", "overlay"]

_RECORDS = "sgdoctor-fix"
_NUMBERS = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True)
class Target:
    """Where the files of a job go: ``folder`` below ``root``; ``records`` keeps what undoes it.

    ``bundled`` is the ``configs`` folder whose files an overlay gets first, ``destination`` the ``configs``
    folder that files of ``--output`` are meant for, null where it is not known.
    """

    way: Way
    root: Path
    folder: Path
    records: Path
    bundled: Path | None = None
    destination: Path | None = None

    def path(self, file: str) -> Path:
        """Return where a file goes."""
        return self.folder / file


def in_place(job: Job, root: Path) -> Target:
    """Return the folder that the deployment reads; ``root`` is its ``configs`` (the fact moe.config_root).

    Raises UsageError where a folder of this Triton's name would end the server.
    """
    root = root.absolute()
    return Target("install", root, _folder(job, root), manifest.state_folder())


def output(job: Job, directory: Path, destination: Path | None = None) -> Target:
    """Return ``DIRECTORY/triton_X_Y_Z``, to be copied into ``destination``; raises as `in_place`."""
    root = directory.absolute()
    return Target("output", root, _folder(job, root), root / _RECORDS, destination=destination)


def overlay(job: Job, directory: Path, bundled: Path) -> Target:
    """Return ``DIRECTORY/configs/triton_X_Y_Z``, for SGLANG_MOE_CONFIG_DIR=DIRECTORY.

    ``bundled`` is the ``configs`` folder that it takes the place of: the variable hides it, so that its files
    are copied (links would end at another machine's disk or a container's edge; it is 2 MB). Raises
    UsageError as `in_place` does, and when ``bundled`` is no folder.
    """
    if not bundled.is_dir():
        raise UsageError(
            f"{bundled}: no such folder, so --overlay cannot copy SGLang's own configs; --output can"
        )
    root = directory.absolute() / "configs"
    return Target("overlay", root, _folder(job, root), directory.absolute() / _RECORDS, bundled=bundled)


def _folder(job: Job, root: Path) -> Path:
    """Return the folder of the job's Triton below ``root``.

    From 0.5.12 on a lookup that does not find its file lists ``configs`` and turns every triton_* name into
    numbers: one such as triton_3_6_0+git1a2b, which the lookup itself asks for on a nightly build, ends every
    server whose shape has no file of exactly this Triton in a ValueError.
    """
    folder = folder_of(job.triton)
    if _ends_lookups(folder, job.release):
        raise UsageError(
            f"Triton {job.triton} needs the folder {folder}, and SGLang {job.release} reads folder names as "
            "numbers: it would end servers of other shapes in a ValueError. Tune with a released Triton"
        )
    return root / folder


def _ends_lookups(folder: str, release: str) -> bool:
    return Version(release) >= DISCOVERS_FOLDERS and _NUMBERS.fullmatch(version_of(folder)) is None


def entries(job: Job, table: Table, *, down: bool) -> dict[int, dict[str, int | bool]]:
    """Return the content of one file by number of tokens, ascending (of two keys as near the first wins).

    USE_TMA is written only where it is true. A missing one is false everywhere, while a false one reaches the
    kernel as an unknown keyword: in an up file of a release that does not take it out (``job.up_tma``), in a
    down file of 0.5.9 to 0.5.16 where Triton has no tensor descriptors.
    """
    made: dict[int, dict[str, int | bool]] = {}
    for tokens, pair in sorted(table.items()):
        config = pair.down if down else pair.up
        entry: dict[str, int | bool] = dict(config.to_sglang())
        if config.tma and (down or job.up_tma):
            entry["USE_TMA"] = True
        made[tokens] = entry
    return made


def text(job: Job, table: Table, *, down: bool) -> str:
    """Return the text of one file, laid out as those that SGLang ships."""
    return json.dumps(entries(job, table, down=down), indent=4) + "\n"


def contents(job: Job, table: Table, target: Target) -> dict[Path, bytes]:
    """Return both files with their keys, by path, the up file first.

    Always both, though without a down file the down projection runs on the up file's entries (0.5.9 to 0.5.15
    because the caller passes them on, from 0.5.16 on because the lookup returns them): the lookup of the down
    file goes through the folders of other Triton versions before that, and one found there, with another
    BLOCK_SIZE_M, ends the server up to 0.5.12 and runs untuned tiles from 0.5.13 on.

    The up file is first because an up file alone is harmless, a down file alone is not.
    """
    return {
        target.path(job.up_file): text(job, table, down=False).encode(),
        target.path(job.down_file): text(job, table, down=True).encode(),
    }


def writable(target: Target) -> str | None:
    """Return why nothing could be installed there and the way out; null when it can.

    Nothing is created.
    """
    why = install.why_not(target.folder)
    if why is not None:
        others = {"install": "--output DIR or --overlay DIR", "output": "another --output DIR"}
        return f"{why}: give {others.get(target.way, 'another --overlay DIR')}"
    why = install.why_not(target.records)
    return why and f"{why}, where what undoes the repair is kept: set XDG_STATE_HOME to another folder"


def put_in_place(tuning: Tuning, target: Target) -> Record:
    """Install the files of a tuning, for an overlay after the bundled ones; return the record.

    Raises UsageError when a file cannot be written; then nothing was changed, but for bundled files that an
    overlay has by then.
    """
    if target.bundled is not None:
        _copy(target.bundled, target.root, tuning.job.release)
    return install.install(contents(tuning.job, tuning.table, target), target.records, about(tuning, target))


def _copy(bundled: Path, root: Path, release: str) -> None:
    """Copy the Triton folders of ``bundled`` into ``root``; what is there already stays as it is.

    Left out is a folder that would end lookups (`_folder`).
    """
    try:
        for folder in sorted(bundled.glob("triton_*")):
            if not folder.is_dir() or _ends_lookups(folder.name, release):
                continue
            manifest.make_folders(manifest.missing(root / folder.name))
            for file in sorted(folder.iterdir()):
                copy = root / folder.name / file.name
                if file.is_file() and not copy.exists():
                    manifest.write(copy, file.read_bytes())
    except OSError as error:
        raise UsageError(f"{manifest.said(error, root)}; the overlay is not complete") from None


def about(tuning: Tuning, target: Target) -> dict[str, Any]:
    """Return what a manifest says of the tuning behind its files."""
    job = tuning.job
    return {
        "fix": "tune-moe",
        "way": target.way,
        "job": {
            "problem": asdict(job.problem),
            "release": job.release,
            "triton": job.triton,
            "device": job.device,
            "capability": list(job.capability),
            "kernel": job.kernel,
            "today": job.today_is,
        },
        "measured": dict(tuning.about),
        "gain": round(tuning.gain, 4),
        "gain_over_default": round(tuning.gain_over_default, 4),
        "tuner": tuning.tuner,
        "effort": tuning.effort,
        "seconds": round(tuning.seconds, 1),
    }


@dataclass(frozen=True)
class NextStart:
    """What a server that starts now will load, as SGLang's own lookup finds it.

    ``ours``: both projections run on the files just written. ``problems`` are what is wrong with the files
    in use; ``sentences`` tell both, and what is left to do.
    """

    lookup: Lookup
    ours: bool
    problems: tuple[str, ...]
    sentences: tuple[str, ...]


def next_start(job: Job, table: Table, target: Target) -> NextStart:
    """Ask the lookup of the job's release which files it finds below ``target.root``.

    Of files of ``--output`` nothing is told but what is to be done with them; ``ours`` and ``problems`` hold
    once they are. Raises UsageError when the folder or a file in it cannot be read.
    """
    release, shape = Version(job.release), shape_of(job.up_file)
    if shape is None:
        raise UsageError(f"{job.up_file}: no name that SGLang looks for")
    gpu = Gpu("nvidia", Version("{}.{}".format(*job.capability)), shared_memory_limit(job.capability))
    try:
        lookup = look_up_files(
            release, job.triton, job.up_file, job.down_file, Listing.from_disk(target.root)
        )
        check = moe_files.check(release, shape, lookup, gpu=gpu)
        written = {
            str(path): manifest.read(path) == new for path, new in contents(job, table, target).items()
        }
    except OSError as error:
        raise UsageError(manifest.said(error, target.root)) from None
    problems = [*check.of("error"), *check.of("warning")]
    if check.block_m_mismatch:
        problems.append(f"{job.down_file} has another BLOCK_SIZE_M than the up file in use")
    if check.error is not None:
        problems.append(f"the lookup ends the server: {check.error}")
    sides = (("up", lookup.up, target.path(job.up_file)), ("down", lookup.down, target.path(job.down_file)))
    is_ours = [found.path == str(path) and written[str(path)] for _, found, path in sides]
    told = [_told(name, found, ours=ours) for (name, found, _), ours in zip(sides, is_ours, strict=True)]
    shown = [] if target.way == "output" else told
    return NextStart(lookup, all(is_ours), tuple(problems), (*shown, *problems, *left_to_do(job, target)))


def _told(name: str, found: Found, *, ours: bool) -> str:
    if ours:
        return f"{name}: the next start loads {found.path}, the new file"
    if found.path is not None:
        return f"{name}: the next start loads {found.path}, which is not the new file"
    return f"{name}: the next start does not find the new file and runs on the built-in config"


def left_to_do(job: Job, target: Target) -> tuple[str, ...]:
    """Return what the operator has to do before a server reads the files, a sentence each."""
    restart = "Restart the server: one that runs has read its config files already."
    if target.way == "output":
        destination = target.destination or f"the configs folder of SGLang {job.release}"
        return (f"Copy the folder {target.folder} into {destination} on each host with this GPU.", restart)
    if target.way == "overlay":
        return (f"Set {CONFIG_DIR_VARIABLE}={target.root.parent} where the server starts.", restart)
    return (restart,)


def undoable(directory: Path | None = None) -> Record:
    """Return the newest repair of this host, or of an ``--output`` or ``--overlay`` DIR, for `install.undo`.

    Bundled files that an overlay got are no part of it: a server may be reading them. Raises UsageError as
    `install.undoable` does.
    """
    if directory is None:
        return install.undoable(manifest.state_folder())
    return install.undoable(directory.absolute() / _RECORDS, directory.absolute())
