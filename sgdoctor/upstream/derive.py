"""What follows from what was read: the release's requirements, the GPUs, the model, how the experts run."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import InvalidVersion, Version

from sgdoctor.facts import Facts, Known
from sgdoctor.upstream import architectures, catalogue, expert_weights, known_gpus, moe_facts, pins
from sgdoctor.upstream.asked_view import Open, View
from sgdoctor.upstream.moe_places import OnHost

_UNTAGGED = re.compile(r"g[0-9a-f]{7,}")


def machine(facts: Facts) -> None:
    """Derive what the release and the GPUs say by themselves; it needs no flags."""
    _release(facts)
    pins.derive(facts)
    _gpus(facts)


def other_device(facts: Facts) -> None:
    """Take the GPUs out of the facts of a server that was told to run on something else (--device cpu).

    Rules about NVIDIA's GPUs then do not apply. The flag goes before what torch finds: get_device in
    srt/utils/common.py is asked only where --device is not given (srt/server_args.py of 0.5.7, 0.5.12 and
    0.5.18, arg_groups/serving_hook.py of 0.5.20 and 0.5.23).
    """
    told = next((name for name in ("arg.device", "asked.device") if facts.value(name) is not None), None)
    if told is None or str(facts.value(told)).partition(":")[0] == "cuda":
        return
    device = facts.value(told)
    for name in ("gpus", "gpu.count", "gpu.name", "gpu.memory_mib"):
        facts.drop(name)
        facts.set_unknown(name, f"the server runs on {device}", [told])
    for name, value in (
        ("gpu.vendor", "other"),
        ("gpu.compute_capability", None),
        ("gpu.shared_memory_bytes", None),
    ):
        facts.drop(name)
        facts.put(name, Known(value, (), (told,)))


def derive(facts: Facts, on_host: OnHost | None = None) -> None:
    """Derive what the model and the flags in effect say: model.* and moe.*.

    ``on_host`` maps a path inside the server's container to one of this machine, None when it is not mounted;
    leave it out for a server without a container.
    """
    _model(facts)
    moe_facts.derive(facts, on_host)


def _release(facts: Facts) -> None:
    """Derive whether the catalogue holds the release, and whether it is a build between releases."""
    text = facts.value("sglang.version")
    try:
        version = Version(text)
    except (InvalidVersion, TypeError):
        reason = "SGLang's version is not known" if text is None else f"{text} is no version"
        for name in ("sglang.known", "sglang.development"):
            facts.set_unknown(name, reason, ["sglang.version"])
        return
    between = version.is_prerelease or bool(version.local and _UNTAGGED.search(version.local))
    known = not between and version.base_version in catalogue.releases()
    facts.derive("sglang.known", known, ["sglang.version"])
    facts.derive("sglang.development", between, ["sglang.version"])


def _gpus(facts: Facts) -> None:
    """Derive gpu.* from the list of GPUs, or from the name of one, where it was not set with the list."""
    records = facts.value("gpus")
    if records:
        if not _named_alone(facts):
            facts.derive("gpu.count", len(records), ["gpus"])
        for name in ("name", "compute_capability", "memory_mib"):
            values = [record.get(name) for record in records]
            if any(value != values[0] for value in values):
                facts.set_unknown(f"gpu.{name}", "the GPUs differ", ["gpus"])
            elif values[0] is not None or name == "compute_capability":
                facts.derive(f"gpu.{name}", values[0], ["gpus"])
    name = facts.value("gpu.name")
    if isinstance(name, str):
        facts.derive("gpu.vendor", _vendor(name), ["gpu.name"])
    if facts.known("gpu.compute_capability"):
        _shared_memory(facts, facts.value("gpu.compute_capability"))


def _named_alone(facts: Facts) -> bool:
    """Whether the list of GPUs is that of --gpu NAME, which says what they are and not how many."""
    gpus = facts.get("gpus")
    return isinstance(gpus, Known) and any(where.place == "--gpu" for where in gpus.provenance)


def _vendor(name: str) -> str:
    if "NVIDIA" in name or name.startswith(("GeForce", "Quadro", "Tesla")):
        return "nvidia"
    return "amd" if name.startswith("AMD") else "other"


def _shared_memory(facts: Facts, capability: str | None) -> None:
    name, needs = "gpu.shared_memory_bytes", ["gpu.compute_capability"]
    kib = None if capability is None else known_gpus.SHARED_KIB.get(capability)
    if capability is not None and kib is None:
        facts.set_unknown(name, f"not known for compute capability {capability}", needs)
    else:
        facts.derive(name, None if kib is None else kib * 1024, needs)


def _model(facts: Facts) -> None:
    for name in ("arg.model_path", "asked.model_path"):
        path = facts.value(name)
        if isinstance(path, str):
            facts.derive("model.path", path, [name])
    architecture = facts.value("model.architecture")
    if architecture in architectures.ALWAYS_MOE or architecture in architectures.DENSE:
        moe = architecture in architectures.ALWAYS_MOE
        facts.derive("model.is_moe", moe, ["model.architecture"])
    elif facts.known("moe.up.expected_file"):
        facts.derive("model.is_moe", True, ["moe.up.expected_file"])
    _quantization(facts)


def _quantization(facts: Facts) -> None:
    """Derive model.quantization: --quantization over what the checkpoint is stored in."""
    version = facts.value("sglang.version")
    release = catalogue.resolve(version) if version is not None else None
    view = View(facts, release, {}) if release is not None else None
    value: Any = facts.value("model.checkpoint_quantization")
    checkpoint_known = facts.known("model.checkpoint_quantization")
    try:
        requested = view.effective("quantization") if view is not None else _written(facts)
    except Open as undecided:
        if value is None:
            reason = "whether --quantization is given is not known"
            facts.set_unknown("model.quantization", reason, undecided.missing)
            return
        requested = None
    if requested is not None:
        stored = expert_weights.Stored(value, facts.value("model.expert_weights"))
        try:
            method = expert_weights.in_use(str(requested), stored).method
        except Open as undecided:
            facts.set_unknown("model.quantization", str(undecided))
            return
        inputs = view.inputs if view is not None else ["asked.quantization"]
        facts.derive("model.quantization", method, inputs)
    elif checkpoint_known:
        facts.derive("model.quantization", value, ["model.checkpoint_quantization"])
    else:
        facts.set_unknown("model.quantization", "config.json was not read", ["model.checkpoint_quantization"])


def _written(facts: Facts) -> Any:
    for name in ("arg.quantization", "asked.quantization"):
        if facts.known(name):
            return facts.value(name)
    raise Open("what --quantization is is not known", ("arg.quantization",))
