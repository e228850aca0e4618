"""Which fused-MoE config file a deployment would use, and why: the folders in the order of the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgdoctor import gather
from sgdoctor.configs import lint
from sgdoctor.configs.places import Place
from sgdoctor.errors import UsageError
from sgdoctor.facts import NOT_ASKED, Facts, Unknown
from sgdoctor.sources import Sources
from sgdoctor.upstream import catalogue, moe_places
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.config_problem import SEVERITIES, Severity
from sgdoctor.upstream.moe_config import CONFIG_DIR_VARIABLE, Listing, folder_of

# What has to be known one after the other; the first that is not says why.
_STEPS = ("sglang.version", "moe.local_experts", "moe.up.expected_file", "triton.version", "moe.up.source")


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A Triton version's folder: whether it has the files, and whether this release looks into it."""

    triton: str
    up: bool
    down: bool
    searched: bool = True


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The lookup of one deployment.

    ``undecided`` is why no file names can be given, ``unread`` why the experts read no file although there
    may be one. ``up`` and ``down`` are where the configs come from (exact, fallback, up, default, error).
    """

    title: tuple[str, ...]
    undecided: str | None = None
    unread: str | None = None
    root: str = ""
    up_file: str = ""
    down_file: str = ""
    up: str = ""
    down: str = ""
    up_triton: str | None = None
    down_triton: str | None = None
    folders: tuple[Folder, ...] = ()
    error: str | None = None
    problems: tuple[tuple[Severity, str], ...] = ()  # of the files in use


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: a model and GPUs, and how it is launched (flags, a command or a script)."""

    model: str
    gpu: str
    flags: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    launch: str | None = None
    sglang: str | None = None
    triton: str | None = None


def explain(question: Question, place: Place | None) -> list[Explained]:
    """Explain the lookup of every server that the command or script starts, by what lies in ``place``.

    Without a place the files are those that the release ships. Raises UsageError for what the operator must
    mend.
    """
    sources = Sources(
        model=question.model,
        gpu=question.gpu,
        command=_command(question),
        launch=question.launch,
        assume=tuple(_assumed(question, place)),
    )
    found = gather.named(sources, {}, lambda _what: None, here=False)
    return [_explained(each.facts, question) for each in found]


def _command(question: Question) -> tuple[str, ...]:
    if question.command or question.launch:
        if question.flags:
            raise UsageError("give the server's flags either as options or in the launch command")
        return question.command
    path = Path(question.model)
    model = path.absolute().parent if path.is_file() else path
    return ("python3", "-m", "sglang.launch_server", "--model-path", str(model), *question.flags)


def _assumed(question: Question, place: Place | None) -> list[str]:
    """Return what PATH, --sglang and --triton say, as assumptions."""
    nowhere = Place(path=Path())
    release, assumed = lint.release_for(place or nowhere, question.sglang)
    if assumed:
        raise UsageError("which SGLang reads these files is not known: name it with --sglang")
    version = question.sglang or (place.version if place else None) or release.version
    triton = question.triton or (place.triton if place else None) or release.triton_pin
    found = [f"sglang.version={version}", f"triton.version={triton}"]
    if place is not None and place.package is not None:
        found.append(f"sglang.path={place.package}")
    elif place is not None:
        found.append(f"env.{CONFIG_DIR_VARIABLE}={_replacing(place)}")
    return found


def _replacing(place: Place) -> Path:
    """Return what SGLANG_MOE_CONFIG_DIR would have to be for the files of ``place`` to be read."""
    for tree in place.trees:
        if tree.family == "moe" and tree.whole and tree.root.name == "configs":
            return tree.root.absolute().parent
    raise UsageError(
        f"{place.path}: SGLang reads fused-MoE configs from a folder called configs that holds triton_X_Y_Z "
        "folders: name that one, or an SGLang"
    )


def _explained(facts: Facts, question: Question) -> Explained:
    title = tuple(_title(facts, question))
    if facts.value("model.is_moe") is False:
        return Explained(title=title, unread="The model has no routed experts: no fused-MoE config is read.")
    undecided = _undecided(facts)
    if undecided is not None:
        return Explained(title=title, undecided=undecided, unread=_unread(facts))
    return Explained(
        title=title,
        unread=_unread(facts),
        root=facts.value("moe.config_root", ""),
        up_file=facts.value("moe.up.expected_file"),
        down_file=facts.value("moe.down.expected_file"),
        up=facts.value("moe.up.source"),
        down=facts.value("moe.down.source", ""),
        up_triton=facts.value("moe.up.triton"),
        down_triton=facts.value("moe.down.triton"),
        folders=tuple(_folders(facts)),
        error=facts.value("moe.lookup_error"),
        problems=tuple(_problems(facts)),
    )


def _problems(facts: Facts) -> Iterator[tuple[Severity, str]]:
    for severity, name in zip(SEVERITIES, ("problems", "warnings", "remarks"), strict=True):
        for text in facts.value(f"moe.config_{name}", []):
            yield severity, text


def _title(facts: Facts, question: Question) -> list[str]:
    name = facts.value("model.name")
    gpu, _, count = question.gpu.partition(":")
    parts = [str(name or question.model), f"SGLang {facts.value('sglang.version')}"]
    parts.append(f"Triton {facts.value('triton.version')}")
    parts.append(f"{count or 1} x {facts.value('gpu.name', gpu)}")
    for flag in ("tp", "ep"):
        size = facts.value(f"arg.{flag}_size")
        if size is not None and (size > 1 or flag == "tp"):
            parts.append(f"{flag.upper()} {size}")
    return parts


def _undecided(facts: Facts) -> str | None:
    for name in _STEPS:
        fact = facts.get(name)
        if isinstance(fact, Unknown):
            return f"{name} is not known" if fact.reason == NOT_ASKED else fact.reason
    return None


def _unread(facts: Facts) -> str | None:
    """Return why the experts read no config file, None where they do."""
    runner = facts.get("moe.runner")
    if isinstance(runner, Unknown):
        return (
            f"What runs the experts is not known ({runner.reason}); only the Triton runner reads these files."
        )
    if runner.value != "triton":
        chosen = "as asked" if _asked_runner(facts) else "which SGLang chooses here by itself"
        return (
            f"The experts run on {runner.value}, {chosen}: it reads none of these files. With "
            "--moe-runner-backend triton the lookup would be this."
        )
    if facts.value("moe.config_matters") is False:
        return (
            "With --enable-deterministic-inference SGLang looks for no file and runs on its built-in config."
        )
    return None


def _asked_runner(facts: Facts) -> bool:
    asked: Any = facts.value("asked.moe_runner_backend")
    return asked not in (None, "auto")


def _folders(facts: Facts) -> list[Folder]:
    """Return the folders that are searched, in their order, then the others that have one of the files."""
    release = catalogue.resolve(facts.value("sglang.version"))
    listing = _listing(facts, release)
    order: Sequence[str] = facts.value("moe.directories", [])
    up, down = facts.value("moe.up.expected_file"), facts.value("moe.down.expected_file")
    found = [_folder(listing, triton, up, down) for triton in order]
    tried = {folder_of(triton) for triton in order}
    for name in sorted(listing.entries or {}, reverse=True):
        folder = _folder(listing, name.removeprefix("triton_").replace("_", "."), up, down)
        if name not in tried and (folder.up or folder.down):
            found.append(msgspec.structs.replace(folder, searched=False))
    return found


def _listing(facts: Facts, release: catalogue.Release | None) -> Listing:
    empty = Listing("", None)
    if release is None:
        return empty
    try:
        return moe_places.listing(facts, release, None)[0]
    except Open:
        return empty


def _folder(listing: Listing, triton: str, up: str, down: str) -> Folder:
    return Folder(triton=triton, up=listing.has(triton, up), down=listing.has(triton, down))
