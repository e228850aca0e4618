"""Which kernel configs a deployment loses, gains or reads from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from sgdoctor.engine.model import Severity
from sgdoctor.facts import Facts
from sgdoctor.report.model import Change, ChangeKind
from sgdoctor.target import folders
from sgdoctor.target.change import new_change
from sgdoctor.target.flags import release, when
from sgdoctor.target.path import Path
from sgdoctor.target.walk import Walk
from sgdoctor.upstream.moe_config import folder_of

_FILE = "moe.{}.expected_file"
_SOURCE = "moe.{}.source"
_TRITON = "moe.{}.triton"
_FOUND = ("exact", "fallback")


def changes(walk: Walk) -> list[Change]:
    """Return what is different about the config files that the experts' kernel reads."""
    found = [change for change in (_runner(walk), *_files(walk)) if change is not None]
    return [*found, *_gemm(walk), *folders.changes(walk)]


def _runner(walk: Walk) -> Change | None:
    before, after = (stage.facts.value("moe.runner") for stage in (walk.start, walk.end))
    if before is None or after is None or before == after:
        return None
    since = walk.since(lambda stage: stage.facts.value("moe.runner"))
    text = f"The experts run on {after}{when(walk.path, since)}, not on {before} any more."
    if before == "triton":
        text += " Fused-MoE config files are no longer read."
    return new_change("moe-runner", "MoE runner", before, after, since, text)


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
        found = self.source in _FOUND
        return (self.known, self.file, found, self.triton if found else None, self.source == "error")

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
        kind, severity = "config-lost", "info" if after.source == "up" else "warning"
        text = (
            f"The {name} is lost{told}: {before.place} was used, {after.file} is not there for Triton "
            f"{after.own_triton}; {after.place} takes its place."
        )
        do = f"tune it on this GPU with Triton {after.own_triton}"
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
    return new_change(kind, name, before.place, after.place, since, text, severity, do=do)


def _gemm(walk: Walk) -> Iterator[Change]:
    """Yield the GEMM config files that the log says are missing and that the other release ships."""
    for file in walk.start.facts.value("gemm.missing_files") or ():
        name = str(file).rpartition("/")[2]
        if name in walk.path.start.gemm_listing or name not in walk.path.end.gemm_listing:
            continue
        since = walk.path.since(lambda version, wanted=name: wanted in release(version).gemm_listing)  # type: ignore[misc]
        text = f"The GEMM config {name} is there{when(walk.path, since)}; the built-in config was used."
        yield new_change("config-gained", "GEMM config", "the built-in config", name, since, text)
