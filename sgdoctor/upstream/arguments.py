"""Predicts what is in effect (arg.*) from what was asked (asked.*), defaults and SGLang's own rewrites.

SGLang changes many of its arguments at start, often without a word. A destination that the release never
rewrites keeps what argparse left in it; those with a function in rewrites_*.py are followed as far as the
facts allow; all others stay unknown.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from sgdoctor.facts import NOT_ASKED, Facts, Unknown
from sgdoctor.upstream import catalogue, rewrites_features, rewrites_model, rewrites_parallel
from sgdoctor.upstream.asked_view import FLAGS_KNOWN, Open, View
from sgdoctor.upstream.catalogue import Release
from sgdoctor.vocabulary import FactTypeError

REWRITES: dict[str, Callable[[View], Any]] = {
    **rewrites_parallel.REWRITES,
    **rewrites_features.REWRITES,
    **rewrites_model.REWRITES,
}
# Flags that no rule reads but that other predictions here rest on (piecewise.py).
ALSO = (
    "attn_cp_size",
    "cpu_offload_gb",
    "debug_cuda_graph",
    "dllm_algorithm",
    "enable_eplb",
    "enable_symm_mem",
    "expert_distribution_recorder_mode",
    "lora_paths",
)
UNSURE = "SGLang may rewrite it at start"


def effective(facts: Facts) -> None:
    """Derive every arg.* that no source told, and what follows from them; call it last.

    Where it cannot be told the fact says why. Without a known release a value is derived only when all
    releases agree on it.
    """
    _model_name(facts)
    if not _asked_at_all(facts):
        return
    releases = candidates(facts)
    names = [name for name in facts.vocabulary.specs if name.startswith("arg.")]
    for name in dict.fromkeys([*names, *(f"arg.{dest}" for dest in ALSO)]):
        if not facts.known(name):
            _derive(facts, name.removeprefix("arg."), releases, in_doubt=len(releases) > 1)
    _model_name(facts)


def _asked_at_all(facts: Facts) -> bool:
    """Whether some source told what was asked for."""
    return any(name.startswith("asked.") for name, _ in facts.items()) or facts.known(FLAGS_KNOWN)


def candidates(facts: Facts) -> list[Release]:
    """Return the release in use; all there are where it is not known, or not in the catalogue."""
    version = facts.value("sglang.version")
    release = catalogue.resolve(version) if version else None
    if release is not None:
        return [release]
    found = (catalogue.resolve(each) for each in catalogue.releases())
    return [each for each in found if each is not None]


def predict(facts: Facts, dest: str, release: Release) -> tuple[Any, list[str]]:
    """Return what ``dest`` is under ``release``, and the facts that say so. Raises Open if unsure."""
    view = View(facts, release, REWRITES)
    if not release.has(dest):
        spec = facts.vocabulary.spec(f"arg.{dest}")
        if spec is not None and spec.nullable:
            return None, ["sglang.version"]
        raise Open(f"SGLang {release.version} has no such setting")
    if dest in REWRITES:
        return REWRITES[dest](view), view.inputs
    if dest in release.rewritten:
        raise Open(UNSURE)
    return view.plain(dest), view.inputs


def _derive(facts: Facts, dest: str, releases: list[Release], *, in_doubt: bool) -> None:
    name = f"arg.{dest}"
    outcomes: list[tuple[Any, list[str]]] = []
    for release in releases:
        try:
            outcome = predict(facts, dest, release)
        except Open as undecided:
            reason, missing = str(undecided), undecided.missing
            if in_doubt and not missing:
                reason, missing = "the SGLang version is not known", ("sglang.version",)
            facts.set_unknown(name, reason, missing)
            return
        if outcomes and outcome[0] != outcomes[0][0]:
            facts.set_unknown(name, "it depends on the SGLang version", ["sglang.version"])
            return
        outcomes.append(outcome)
    value, inputs = outcomes[0]
    try:
        facts.derive(name, value, inputs)
    except FactTypeError as error:
        facts.set_unknown(name, str(error))


def exposure(facts: Facts) -> None:
    """Derive ``server.exposed``, whether other machines can reach the server, from ``arg.host``.

    A launch file that keeps others away (a container whose port is not published) has said so before, or why
    it cannot be told; then only an address that nobody reaches decides. Call it last.
    """
    name, host = "server.exposed", facts.get("arg.host")
    before = facts.get(name)
    told = isinstance(before, Unknown) and before.reason != NOT_ASKED and not before.missing
    if isinstance(host, Unknown):
        if not told:
            facts.set_unknown(name, "the address it listens on is not known", ["arg.host"])
        return
    beyond = listens_beyond(host.value)
    if beyond is None:
        facts.set_unknown(name, f"what {host.value} resolves to there is not known", ["arg.host"])
    elif not (beyond and told):
        facts.derive(name, beyond, ["arg.host"])


def listens_beyond(host: str) -> bool | None:
    """Whether a server on ``host`` listens on more than loopback; None for a name that may be anything.

    ``0.0.0.0``, ``::``, ``*`` and nothing are all interfaces.
    """
    text = host.strip().strip("[]").partition("%")[0]
    if text.lower() in ("localhost", "ip6-localhost", "localhost.localdomain"):
        return False
    if text in ("", "*"):
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return not (mapped or address).is_loopback


def _model_name(facts: Facts) -> None:
    """Derive ``model.name``: the served name, or the last part of the model path."""
    served, path = facts.value("arg.served_model_name"), facts.value("arg.model_path")
    if isinstance(served, str) and served != path:
        facts.derive("model.name", served, ["arg.served_model_name"])
    elif isinstance(path, str) and path.rstrip("/"):
        facts.derive("model.name", path.rstrip("/").rpartition("/")[2], ["arg.model_path"])
