"""What differs without a word in the launch command: defaults, and what SGLang makes of the same flags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sgdoctor.facts import Facts
from sgdoctor.report.model import Change
from sgdoctor.report.words import literal
from sgdoctor.target import command as commands
from sgdoctor.target import meaning
from sgdoctor.target.change import new_change
from sgdoctor.target.flags import release, when
from sgdoctor.target.walk import Walk
from sgdoctor.upstream.catalogue import Release

Gate = Callable[[Facts], bool]

_MACHINE = object()  # a default that depends on the machine


def _given(*names: str) -> Gate:
    return lambda facts: any(facts.value(name) not in (None, False, "null") for name in names)


# Defaults that an operator notices: where they matter, and why. All others are told with -v.
NOTICED: dict[str, tuple[Gate, str]] = {
    # 0.5.14, srt/server_args.py: pages in host memory and in storage lie in another order.
    "hicache_mem_layout": (
        _given("asked.enable_hierarchical_cache"),
        "the order of pages in the hierarchical cache's host memory and storage",
    ),
    # 0.5.12, prefetch_stop_policy in srt/mem_cache/hiradix_cache.py: best_effort ends a prefetch at once.
    "hicache_storage_prefetch_policy": (
        _given("asked.hicache_storage_backend"),
        "how long a request waits for its prefetch from storage",
    ),
    # 0.5.9, mamba2_state_dtype in srt/configs/mamba_utils.py: null is what config.json says, else float32.
    "mamba_ssm_dtype": (
        lambda facts: facts.value("model.is_hybrid") is True,
        "the type of the layers' state; not set: what config.json says",
    ),
    # 0.5.10, srt/layers/quantization/fp4_utils.py
    "fp4_gemm_runner_backend": (
        lambda facts: "fp4" in str(facts.value("model.quantization")),
        "which kernel multiplies the FP4 weights",
    ),
}


def changes(walk: Walk) -> list[Change]:
    """Return the defaults that differ for flags not written, and the settings that come out otherwise."""
    if walk.command is None:
        return []
    written = _written(walk)
    found = list(_defaults(walk, written))
    told = {change.subject for change in found}
    return [*found, *(change for change in _outcomes(walk) if change.subject not in told)]


def _written(walk: Walk) -> set[str]:
    """Return the destinations that the command fills, before or after."""
    assert walk.command is not None  # noqa: S101 (asked before)
    found: set[str] = set()
    for at in (walk.path.start, walk.path.end):
        for each in commands.read(walk.command, at).written:
            understood = meaning.of(each, at)
            found |= {understood.dest} if understood.dest else set()
            flag = at.option(each.option)
            found |= {flag.dest} if flag is not None else set()
    return found


def _defaults(walk: Walk, written: Iterable[str]) -> Iterator[Change]:
    start, end = walk.path.start, walk.path.end
    shared = _ordinary(start) & _ordinary(end)
    for dest in sorted(shared - set(written)):
        before, after = _default(start, dest), _default(end, dest)
        if before == after or _MACHINE in (before, after):
            continue
        flag = end.flag(dest)
        since = walk.path.since(lambda version, name=dest: literal(_default(release(version), name)))  # type: ignore[misc]
        option = flag.option if flag is not None else f"--{dest.replace('_', '-')}"
        shown, reason = _noticed(walk, dest)
        told = f" ({reason})" if reason else ""
        yield new_change(
            "flag-default",
            option,
            literal(before),
            literal(after),
            since,
            f"Without {option}{told} it is {_shown(after)}{when(walk.path, since)}, it was {_shown(before)}.",
            do=f"write {option} {literal(before)} to keep what it was"
            if shown and _can_be_written(before)
            else None,
            minor=not shown,
        )


def _ordinary(at: Release) -> set[str]:
    """Return the destinations of flags that are not deprecated."""
    return {flag.dest for flag in at.flags if not flag.deprecated}


def _default(at: Release, dest: str) -> Any:
    """Return what stands for a flag that is not written: its default, or what SGLang puts in its place."""
    if not at.has(dest):
        return None
    try:
        default = at.default(dest)
    except KeyError:
        return _MACHINE
    return at.fallback(dest) if default is None else default


def _noticed(walk: Walk, dest: str) -> tuple[bool, str]:
    """Whether a default matters to this deployment, and why."""
    name = f"arg.{dest}"
    before, after = walk.at(walk.path.start.version).facts, walk.end.facts
    if before.known(name) and after.known(name) and before.value(name) == after.value(name):
        return False, ""
    if dest in NOTICED:
        gate, reason = NOTICED[dest]
        return gate(walk.start.facts) or gate(walk.end.facts), reason
    read = {fact for rule in walk.rules for fact in rule.names}
    return bool({name, f"asked.{dest}"} & read), ""


def _outcomes(walk: Walk) -> Iterator[Change]:
    """Yield the settings that both releases have and that come out otherwise for the same command."""
    before, after = walk.at(walk.path.start.version).facts, walk.end.facts
    for name, _ in after.items():  # noqa: PERF102 (not a dict)
        dest = name.removeprefix("arg.")
        flag = walk.path.end.flag(dest) if name.startswith("arg.") else None
        earlier = walk.path.start.flag(dest)
        if flag is None or earlier is None or flag.deprecated or earlier.deprecated:
            continue
        if not (before.known(name) and after.known(name)) or before.value(name) == after.value(name):
            continue
        since = walk.since(lambda stage, fact=name: literal(stage.facts.value(fact)))  # type: ignore[misc]
        old, new = before.value(name), after.value(name)
        yield new_change(
            "setting",
            flag.option,
            literal(old),
            literal(new),
            since,
            f"With this command {flag.option} comes out as {_shown(new)}{when(walk.path, since)}, it was "
            f"{_shown(old)}.",
        )


def _shown(value: Any) -> str:
    return (
        "not set" if value is None else "off" if value is False else "on" if value is True else literal(value)
    )


def _can_be_written(value: Any) -> bool:
    return value is not None and not isinstance(value, bool)
