"""Which fused-MoE kernel configs a deployment loses, gains or reads from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder

from sgdoctor.engine.model import Severity
from sgdoctor.facts import Facts
from sgdoctor.report.model import Change, ChangeKind
from sgdoctor.target.flags import release, when
from sgdoctor.target.path import Path
from sgdoctor.target.walk import Stage, Walk
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.moe_config import CONFIG_DIR_VARIABLE, folder_of

_FILE = "moe.{}.expected_file"
_SOURCE = "moe.{}.source"
_TRITON = "moe.{}.triton"
_FOUND = ("exact", "fallback")
_SHOWN = 4  # files that are still named one by one


def changes(walk: Walk) -> list[Change]:
    """Return what is different about the config files that the experts' kernel reads."""
    found = [change for change in (_runner(walk), *_files(walk)) if change is not None]
    return [*found, *_folder(walk)]


# --- the runner and the files it reads ---------------------------------------------------------------------


def _runner(walk: Walk) -> Change | None:
    before, after = (stage.facts.value("moe.runner") for stage in (walk.start, walk.end))
    if before is None or after is None or before == after:
        return None
    since = walk.since(lambda stage: stage.facts.value("moe.runner"))
    text = f"The experts run on {after}{when(walk.path, since)}, not on {before} any more."
    if before == "triton":
        text += " Fused-MoE config files are no longer read."
    return _change("moe-runner", "MoE runner", before, after, since, text)


def _files(walk: Walk) -> Iterator[Change | None]:
    for projection in ("up", "down"):
        before, after = (_Used(stage.facts, projection) for stage in (walk.start, walk.end))
        if not (before.known and after.known) or before.key == after.key:
            continue
        since = walk.since(lambda stage, which=projection: _Used(stage.facts, which).key)  # type: ignore[misc]
        yield _file(walk.path, before, after, since)


class _Used:
    """The config of one projection at one release: the name that is looked for, and what is used."""

    def __init__(self, facts: Facts, projection: str) -> None:
        self.projection = projection
        self.file = facts.value(_FILE.format(projection))
        self.source = facts.value(_SOURCE.format(projection))
        self.triton = facts.value(_TRITON.format(projection))
        self.own_triton = facts.value("triton.version")
        self.error = facts.value("moe.lookup_error")
        self.matters = facts.value("moe.config_matters")

    @property
    def known(self) -> bool:
        """Whether a file would be read, and what is used is known."""
        return self.matters is True and None not in (self.file, self.source)

    @property
    def key(self) -> tuple[object, ...]:
        """What must be the same for the same file to be used."""
        return (self.known, self.file, self.source in _FOUND, self.triton, self.source == "error")

    @property
    def place(self) -> str:
        """The file in use, or what stands for it."""
        if self.source in _FOUND and self.triton is not None:
            return f"{folder_of(self.triton)}/{self.file}"
        if self.source == "up":
            return "the up projection's config"
        return "none, the lookup fails" if self.source == "error" else "the built-in config"


def _file(path: Path, before: _Used, after: _Used, since: str | None) -> Change:
    name, told = f"{after.projection} config", when(path, since)
    severity: Severity = "info"
    kind: ChangeKind = "config-other"
    do = None
    if after.source == "error":
        kind, severity = "config-lost", "error"
        text = f"The lookup of the {name} fails{told}: {after.error or 'no reason known'}."
    elif before.source in _FOUND and after.source not in _FOUND:
        kind, severity = "config-lost", "warning"
        text = (
            f"The {name} is lost{told}: {before.place} was used, {after.file} is not there for Triton "
            f"{after.own_triton}; {after.place} takes its place."
        )
        do = "tune it for that Triton, or take the file along"
    elif before.source not in _FOUND and after.source in _FOUND:
        kind = "config-gained"
        text = f"A tuned {name} is found{told}: {after.place}, where {before.place} was used."
    elif after.source in _FOUND:
        severity = "info"
        text = f"The {name} is {after.place}{told}, it was {before.place}."
        if after.source == "fallback":
            text += f" It was tuned with another Triton than {after.own_triton}."
    else:
        kind = "config-name"
        text = f"The {name} that is looked for is {after.file}{told}, it was {before.file}; none is there."
    return _change(kind, name, before.place, after.place, since, text, severity, do)


# --- the folder --------------------------------------------------------------------------------------------


def _folder(walk: Walk) -> Iterator[Change]:
    """Yield that the folder moved, and which files of the operator's own stay behind."""
    path = walk.path
    facts = walk.start.facts
    if facts.value("model.is_moe") is False or facts.value(f"env.{CONFIG_DIR_VARIABLE}") is not None:
        return
    old, new = path.start.moe_folder, path.end.moe_folder
    own = own_files(facts, path.start)
    since = path.since(lambda version: release(version).moe_folder)
    if old != new:
        text = f"Config files are read from {new}{when(path, since)}, not from {old}."
        yield _change("config-folder", "config folder", old, new, since, text, minor=not _reads(walk.end))
    if own:
        yield _left_behind(own, old, new, since, path, wanted=_wanted(walk))


def own_files(facts: Facts, at: catalogue.Release) -> list[str]:
    """Return the config files of the installation on this disk that its release does not ship.

    ``triton_3_5_1/E=...json``; those beside the Triton folders are read by no release and are left out.
    """
    place = facts.value("sglang.path")
    if not isinstance(place, str):
        return []
    root = Folder(place) / at.moe_folder
    try:
        files = sorted(root.glob("triton_*/E=*.json"))
    except OSError:
        return []
    return [
        f"{file.parent.name}/{file.name}"
        for file in files
        if file.name not in at.moe_listing.get(file.parent.name, ())
    ]


def _wanted(walk: Walk) -> set[str]:
    """Return the names that this deployment looks for, before or after."""
    names = (
        stage.facts.value(_FILE.format(projection))
        for stage in (walk.start, walk.end)
        for projection in ("up", "down")
    )
    return {name for name in names if name is not None}


def _left_behind(
    own: list[str], old: str, new: str, since: str | None, path: Path, *, wanted: set[str]
) -> Change:
    mine = [each for each in own if each.partition("/")[2] in wanted]
    told = mine or own
    listed = ", ".join(told[:_SHOWN]) + (f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else "")
    if old != new:
        text = f"{listed}: put there by hand, and no longer read{when(path, since)}: SGLang looks into {new}."
        return _change(
            "config-unread",
            "own config files",
            old,
            new,
            since,
            text,
            "warning" if mine else "info",
            f"copy them to {new} after the upgrade, into the folder of the Triton they were tuned with",
        )
    text = f"{listed}: put there by hand, not of the release; only an upgrade in place keeps them."
    do = "take them along to a new environment or image"
    return _change("config-unread", "own config files", old, None, None, text, "info", do)


def _reads(stage: Stage) -> bool:
    return stage.facts.value("moe.config_matters") is True


def _change(  # noqa: PLR0913 (the fields of a change)
    kind: ChangeKind,
    subject: str,
    before: str | None,
    after: str | None,
    since: str | None,
    message: str,
    severity: Severity = "info",
    do: str | None = None,
    *,
    minor: bool = False,
) -> Change:
    return Change(
        kind=kind,
        subject=subject,
        before=before,
        after=after,
        release=since,
        severity=severity,
        message=message,
        do=do,
        minor=minor,
    )
