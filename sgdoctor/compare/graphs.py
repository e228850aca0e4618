"""CUDA graphs that were switched off, or on, by whatever flag the release has for that.

Up to 0.5.13 ``disable_cuda_graph`` (decode) and, for prefill, ``enable_piecewise_cuda_graph`` up to 0.5.9 and
``disable_piecewise_cuda_graph`` from 0.5.10 on (srt/server_args.py). From 0.5.14 on ``cuda_graph_config``
holds a backend for each of the two, "disabled" among them (srt/model_executor/cuda_graph_config.py), and the
old flags only write into it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sgdoctor.compare import causes
from sgdoctor.compare.model import Difference
from sgdoctor.compare.values import Pair
from sgdoctor.facts import Facts
from sgdoctor.upstream import catalogue

CONFIG = "cuda_graph_config"
_PHASES = (("decode", "CUDA graphs for decode"), ("prefill", "CUDA graphs for prefill"))
# The flags that write into cuda_graph_config, beside --cuda-graph-config itself.
_ASKED_FOR = {
    "decode": ("disable_cuda_graph", "disable_decode_cuda_graph", "cuda_graph_backend_decode"),
    "prefill": (
        "disable_cuda_graph",
        "disable_prefill_cuda_graph",
        "cuda_graph_backend_prefill",
        "disable_piecewise_cuda_graph",
    ),
}
SWITCHES = ("disable_cuda_graph", "enable_piecewise_cuda_graph", "disable_piecewise_cuda_graph")


class _Graphs(msgspec.Struct, frozen=True):
    """Whether one phase may use graphs, and the setting that says so."""

    allowed: bool
    dest: str


def differences(pair: Pair) -> Iterator[Difference]:
    """Yield the phases whose CUDA graphs are switched off on one side alone."""
    for phase, words in _PHASES:
        before, after = _of(pair.before, phase), _of(pair.after, phase)
        if before is None or after is None or before.allowed == after.allowed:
            continue
        one_setting = before.dest == after.dest
        if one_setting and pair.both(f"arg.{after.dest}") is None:
            continue
        now = "no longer switched off" if after.allowed else "switched off"
        yield Difference(
            kind="graphs",
            subject=pair.option(after.dest),
            before="allowed" if before.allowed else "switched off",
            after="allowed" if after.allowed else "switched off",
            verdict="better" if after.allowed else "worse",
            message=f"{words}: {now} ({pair.option(after.dest)}).",
            together_with=_causes(pair, after.dest, phase) if one_setting else [],
        )


def _of(facts: Facts, phase: str) -> _Graphs | None:
    config = facts.value(f"arg.{CONFIG}")
    if isinstance(config, dict) and isinstance(config.get(phase), dict):
        backend = config[phase].get("backend")
        return None if backend is None else _Graphs(backend != "disabled", CONFIG)
    if CONFIG in _settings(facts):
        return None
    off, on = ("disable_cuda_graph", None) if phase == "decode" else _piecewise(facts)
    if off is not None and isinstance(facts.value(f"arg.{off}"), bool):
        return _Graphs(not facts.value(f"arg.{off}"), off)
    if on is not None and isinstance(facts.value(f"arg.{on}"), bool):
        return _Graphs(bool(facts.value(f"arg.{on}")), on)
    return None


def _piecewise(facts: Facts) -> tuple[str | None, str | None]:
    """Return the setting that switches piecewise graphs off, or that which switches them on."""
    has = _settings(facts)
    if SWITCHES[2] in has:
        return SWITCHES[2], None
    return None, SWITCHES[1] if SWITCHES[1] in has else None


def _settings(facts: Facts) -> set[str]:
    """Return which of the settings the release has; without a known release, those that the server told."""
    version = facts.value("sglang.version")
    release = catalogue.resolve(version) if version is not None else None
    names = (*SWITCHES, CONFIG)
    if release is None:
        return {name for name in names if facts.known(f"arg.{name}")}
    return {name for name in names if release.has(name)}


def _causes(pair: Pair, dest: str, phase: str) -> list[str]:
    """Return the flags asked for otherwise that switch it, else what makes SGLang do so by itself."""
    dests = (dest, *_ASKED_FOR[phase]) if dest == CONFIG else (dest,)
    asked = [f"{pair.option(each)}, asked for" for each in dests if pair.asker(each) == "flag-asked"]
    return asked or causes.of_flag(pair, dest)
