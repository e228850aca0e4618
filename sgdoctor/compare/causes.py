"""Which changes are known to have a part in another: from SGLang's source, or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from sgdoctor.compare.values import MISSING, Pair, became, same, shown
from sgdoctor.facts import Facts, Known
from sgdoctor.upstream import arguments, piecewise
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.catalogue import Release

# What SGLang computes these from, read in 0.5.7, 0.5.12, 0.5.16 and 0.5.23:
# srt/model_executor/model_runner_kv_cache_mixin.py, later pool_configurator.py beside it and
# srt/mem_cache/kv_cache_configurator.py. The limit of running requests is divided among the DP workers,
# speculative decoding sets 48 of its own, and the state cache of a hybrid model may allow fewer. The KV cache
# is what the weights leave of the GPU's memory, in units of a token's size.
_DECIDE = {
    "kv.max_running_requests": (
        "arg.max_running_requests",
        "arg.dp_size",
        "arg.attn_dp_size",
        "arg.speculative_algorithm",
        "arg.max_mamba_cache_size",
        "arg.mamba_full_memory_ratio",
        "arg.mamba_ssm_dtype",
    ),
    "kv.tokens": (
        "arg.max_total_tokens",
        "arg.mem_fraction_static",
        "arg.kv_cache_dtype",
        "arg.quantization",
        "arg.tp_size",
        "arg.pp_size",
        "arg.speculative_algorithm",
        "model.path",
        "gpu.memory_mib",
        "gpu.name",
        "memory.weights_gb",
    ),
    "kv.context_length": ("arg.context_length", "arg.json_model_override_args", "model.path"),
}


def of_measure(pair: Pair, name: str) -> list[str]:
    """Return the changes that are among what SGLang computes a measure from."""
    return [pair.told(each) for each in _DECIDE.get(name, ()) if pair.differs(each)]


def of_flag(pair: Pair, dest: str) -> list[str]:
    """Return the changes from which SGLang makes the two values of a flag, where both can be predicted."""
    if dest == "disable_piecewise_cuda_graph":
        return _of_piecewise(pair)
    inputs: list[str] = []
    for facts, release in zip((pair.before, pair.after), pair.releases, strict=True):
        used = _predicted_from(facts, release, dest)
        if used is None:
            return []
        inputs += used
    return _different(pair, inputs)


def of_derived(pair: Pair, name: str) -> list[str]:
    """Return the changes among the facts that a derived one rests on in both recordings."""
    roots = [each for facts in (pair.before, pair.after) for each in facts.roots(name)]
    return _different(pair, [each for each in roots if each != name])


def _predicted_from(facts: Facts, release: Release | None, dest: str) -> list[str] | None:
    """Return the facts that say what becomes of a flag; None where that is not what the server says."""
    if release is None or dest not in arguments.REWRITES:
        return None
    try:
        value, inputs = arguments.predict(facts, dest, release)
    except Open:
        return None
    return inputs if same(value, facts.value(f"arg.{dest}")) else None


def _of_piecewise(pair: Pair) -> list[str]:
    """Return what makes these releases switch piecewise graphs off, and did not do so before."""
    before, after = (facts.get(piecewise.FACT) for facts in (pair.before, pair.after))
    if not isinstance(after, Known):
        return []
    known = before.value if isinstance(before, Known) else []
    release = Version(pair.after.value("sglang.version"))
    return [f"{each} (SGLang {release} then does without)" for each in after.value if each not in known]


def _different(pair: Pair, names: Iterable[str]) -> list[str]:
    """Return what became of those of ``names`` that differ, the release last: it may be the reason."""
    found = []
    for name in dict.fromkeys([*names, "sglang.version"]):
        if name.startswith("asked."):
            dest = name.removeprefix("asked.")
            before, after = pair.asked(dest)
            if MISSING not in (before, after) and not same(before, after):
                found.append(f"{pair.option(dest)} {became(shown(before), shown(after))}")
        elif pair.differs(name):
            found.append(pair.told(name))
    return found
