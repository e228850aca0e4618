"""What follows from what was read: the last step before the rules, the same for every way of collecting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from sgdoctor.facts import Conflict, Facts, Known

if TYPE_CHECKING:
    from sgdoctor.collect.launch import LaunchCommand

# Facts on which two sources must agree, or they do not describe one deployment. What SGLang may rewrite at
# start (a banner of up to 0.5.18 shows values from before that) is none of them.
_ONE_VALUE = (
    "sglang.version",
    "triton.version",
    "torch.version",
    "gpu.name",
    "gpu.count",
    "model.architecture",
    "arg.model_path",
    "arg.port",
    "arg.tp_size",
    "arg.pp_size",
)
# One of them is known where a server itself was read, live or by what it wrote.
_LIVE = ("server.url", "log.records", "metrics.running_requests")
# EnvBool in srt/environ.py, 0.5.7 to 0.5.23
_SEVERAL = 2
_TRUE = ("true", "1", "yes", "y")


def settle(facts: Facts, command: LaunchCommand | None) -> None:
    """Derive all facts that follow from those collected; ``command`` is read with the release now known."""
    from sgdoctor.collect import (
        launch,
        launch_asked,
        launch_network,
        requirements,
        server_state,
        window_facts,
    )
    from sgdoctor.upstream import (
        arguments,
        attention,
        changed,
        deaths,
        derive,
        graphs,
        heads,
        piecewise,
        placement,
        switches,
    )

    deaths.explain(facts)
    facts.derive("fleet.servers", 1, [])
    if any(facts.known(name) for name in _LIVE):
        window_facts.lack(facts)
        server_state.derive(facts)
    _installed_release(facts)
    if command is not None:
        launch_asked.interpret(facts, command)
        launch_network.collect(facts, command)
    switches.derive(facts)
    derive.machine(facts)
    if command is not None:
        launch.collect_gpus(facts, command)
    derive.other_device(facts)
    arguments.effective(facts)
    arguments.exposure(facts)
    placement.derive(facts)
    container = command.container if command is not None else None
    derive.derive(facts, container.on_host if container is not None else None)
    switches.gone(facts)
    _missing_files(facts)
    version = facts.value("sglang.version")
    requirements.derive(facts, requirements.of_release(version) if version else None)
    piecewise.derive(facts)
    attention.derive(facts)
    heads.derive(facts)
    graphs.derive(facts)
    changed.derive(facts)
    _longer_context(facts)
    _triton_build(facts)
    _conflicts(facts)


def _installed_release(facts: Facts) -> None:
    """Take the versions of SGLang, Triton and torch from the packages where nothing closer gave them."""
    for name, package in (
        ("sglang.version", "package.sglang"),
        ("triton.version", "package.triton"),
        ("torch.version", "package.torch"),
    ):
        installed = facts.get(package)
        if not facts.known(name) and isinstance(installed, Known) and installed.value is not None:
            facts.derive(name, installed.value, [package])


def _longer_context(facts: Facts) -> None:
    """Derive whether a longer context is allowed; a server that tells its own has got past the check."""
    variable, in_use = "env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "kv.context_length"
    value = facts.value(variable)
    allowed = isinstance(value, str) and value.lower() in _TRUE
    known = [name for name in (variable, in_use) if facts.known(name)]
    facts.derive("context.longer_allowed", allowed or in_use in known, known)


def _missing_files(facts: Facts) -> None:
    """Name the files for want of which the built-in config is used, the up projection's first."""
    name, up = "moe.missing_files", "moe.up.source"
    if not facts.known(up):
        facts.set_unknown(name, "the config lookup is not known", [up])
        return
    files, inputs = [], [up]
    if facts.value(up) == "default":
        files.append("moe.up.expected_file")
        if facts.value("moe.down.source") in ("default", "up"):
            files.append("moe.down.expected_file")
            inputs.append("moe.down.source")
    known = [file for file in files if facts.known(file)]
    facts.derive(name, [facts.value(file) for file in known], [*inputs, *known])


def _triton_build(facts: Facts) -> None:
    version = facts.value("triton.version")
    if version is None:
        facts.set_unknown("triton.local_build", "Triton's version is not known", ["triton.version"])
    else:
        facts.derive("triton.local_build", "+" in version, ["triton.version"])


def _conflicts(facts: Facts) -> None:
    """Keep the disagreements that matter, as a fact for the rules."""
    facts.conflicts = [each for each in facts.conflicts if each.name in _ONE_VALUE and not _same(each)]
    read = {where.source for _, fact in facts.items() if isinstance(fact, Known) for where in fact.provenance}
    if len(read) < _SEVERAL:
        facts.set_unknown("sources.conflicts", "there are no two sources to compare")
        return
    facts.derive(
        "sources.conflicts",
        [
            {
                "fact": each.name,
                "kept": str(each.kept.value),
                "kept_place": each.kept.provenance[0].place,
                "other": str(each.other.value),
                "other_place": each.other.provenance[0].place,
            }
            for each in facts.conflicts
        ],
        [],
    )


def _same(conflict: Conflict) -> bool:
    """Whether two versions are one release: a log cannot tell 0.5.12 from 0.5.12.post1, nor see +cu130."""
    if not conflict.name.endswith(".version"):
        return False
    try:
        kept, other = (Version(str(each.value)) for each in (conflict.kept, conflict.other))
    except InvalidVersion:
        return False
    return kept.base_version == other.base_version
