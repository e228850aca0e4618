"""Assumptions: `--gpu` and `--assume`, and what they make of facts that were collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known
from sgdoctor.vocabulary import FactTypeError, Vocabulary

# Where facts come from that a server on another machine would have said otherwise.
_OBSERVED = frozenset({"log", "server_info", "http", "metrics", "process"})
# What lay in a machine's folders when a snapshot of it was taken.
_FILES = "files"
# What a server said about itself that an operator had asked of it, whatever the machine.
_ASKED = frozenset(
    f"arg.{name}"
    for name in (
        "model_path served_model_name host port api_key admin_api_key tp_size pp_size dp_size ep_size nnodes "
        "dtype quantization context_length trust_remote_code load_format log_level"
    ).split()
)
_KEPT_FAMILIES = ("asked.", "launch.", "model.", "package.", "packages.", "env.")
_KEPT = frozenset({"sglang.version", "torch.version", "triton.version", "sglang.path"}) | _ASKED

# Facts that say the same in two ways: an assumption about one is one about the other.
_TWINS = {
    "sglang.version": "package.sglang",
    "triton.version": "package.triton",
    "torch.version": "package.torch",
}
_TWINS |= {package: fact for fact, package in _TWINS.items()}
_GPU = "gpu."


def apply(facts: Facts, *, gpu: str | None, assumptions: Sequence[str]) -> Facts:
    """Return the facts under the assumptions; ``facts`` themselves when there are none.

    An assumed value replaces what was read. When it contradicts something that was read, what a server said
    about itself (its log, its endpoints) no longer counts: it was said of another configuration.
    Raises UsageError for an assumption that cannot be read.
    """
    assumed = _assumed(gpu, assumptions, facts.vocabulary)
    if not assumed:
        return facts
    changed = any(facts.known(name) and facts.value(name) != value for name, value in assumed.items())
    result = Facts(facts.vocabulary)
    for name, value in assumed.items():
        place = "--gpu" if gpu and name.startswith(("gpu", "host.")) else f"--assume {name}"
        result.set(name, value, source="assume", place=place)
    gone = {_TWINS[name] for name in assumed if name in _TWINS and _TWINS[name] not in assumed}
    left_out = False
    for name, fact in facts.items():
        if name in gone or (gpu and name.startswith(_GPU)) or result.known(name):
            continue
        if changed and isinstance(fact, Known) and observed(name, fact):
            left_out = left_out or said(fact)
        else:
            result.put(name, fact)
    result.notes = list(facts.notes)
    if left_out:
        result.notes.append(
            "what the server said about itself was left out: it was said without the assumption"
        )
    if not changed:
        result.matches, result.patterns_sought = facts.matches, facts.patterns_sought
        result.conflicts = facts.conflicts
        result.series, result.excerpts = facts.series, facts.excerpts
    return result


def observed(name: str, fact: Known) -> bool:
    """Whether a fact is only what was seen of a deployment as it is, and not what had been asked for.

    That is what a server said about itself, and what lay in its folders of kernel configs.
    """
    if name in _KEPT or name.startswith(_KEPT_FAMILIES):
        return False
    seen = _OBSERVED | {_FILES}
    return all(each.source in seen for each in fact.provenance) and bool(fact.provenance)


def said(fact: Known) -> bool:
    """Whether a server said it about itself."""
    return any(each.source in _OBSERVED for each in fact.provenance)


def _assumed(gpu: str | None, assumptions: Sequence[str], names: Vocabulary) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if gpu:
        from sgdoctor.upstream import known_gpus

        values |= known_gpus.assumed(gpu)
    for assumption in assumptions:
        name, equals, text = assumption.partition("=")
        if not equals:
            raise UsageError(f"--assume {assumption}: write NAME=VALUE, such as gpu.compute_capability=12.0")
        if name not in names:
            raise UsageError(f"--assume {name}: no such fact; docs/facts.md lists them")
        values[name] = _value(name, text, names)
    return values


def _value(name: str, text: str, names: Vocabulary) -> Any:
    kind = names.specs[name].type
    value: Any = text
    if text == "null":
        value = None
    elif kind not in ("str", "version"):
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise UsageError(f"--assume {name}={text}: {name} is of type {kind}; write it as JSON") from None
    try:
        return names.check(name, value)
    except FactTypeError as error:
        raise UsageError(f"--assume {name}={text}: {error}") from None
