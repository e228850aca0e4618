"""What to tune: from the facts of each deployment to its job, or to why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from sgdoctor.errors import DoctorError, Undecided
from sgdoctor.facts import Facts, Unknown
from sgdoctor.fix import moe_installed, moe_problem, moe_today
from sgdoctor.gather import Gathered
from sgdoctor.tune.model import Job
from sgdoctor.tune.space import BATCH_SIZES

OLDEST, NEWEST = "0.5.9", "0.5.23"

# Batch sizes beyond the tuner's own that a server reaches when it prefills in chunks of this size.
LONG_CHUNKS = (8192, 16384)

_GPU = "run it on the machine with the GPU, or name it: --assume 'gpu.name=NVIDIA H200'"

# What settles a fact that is missing, for the last part of a refusal.
_SETTLES = {
    "sglang.version": "name the Python that has SGLang with --python PATH",
    "triton.version": "name the Python that has Triton with --python PATH",
    "gpu.name": _GPU,
    "gpu.vendor": _GPU,
    "gpu.compute_capability": _GPU,
    "model": "--model DIR names the model's folder or its config.json",
    "arg": "give the launch command behind --, or --launch FILE",
    "asked": "give the launch command behind --, or --launch FILE",
    "launch": "give the launch command behind --, or --launch FILE",
    "moe": "give the launch command behind -- and --model DIR",
}


class NothingMissing(Exception):  # noqa: N818 (says what was found)
    """The server has the files already."""


@dataclass(frozen=True)
class Planned:
    """One job and what belongs to it.

    ``deployments`` are those that miss its files, ``why`` the finding in a sentence. ``root`` is the folder
    whose triton_* folders the servers read, ``package`` their sglang folder, ``python`` the interpreter that
    has torch and Triton, ``python_path`` what it needs in PYTHONPATH. ``model`` is the folder or config.json
    that was read, spread over ``tp`` GPUs of which ``ep`` have experts of their own.
    """

    deployments: tuple[str, ...]
    why: str
    job: Job
    root: Path
    package: Path
    python: str | None
    python_path: tuple[Path, ...] = ()
    model: Path | None = None
    tp: int = 1
    ep: int = 1


@dataclass(frozen=True)
class Plan:
    """What to tune, and a sentence for each deployment with nothing to tune: none missing, or refused."""

    planned: tuple[Planned, ...]
    complete: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def plan(gathered: Sequence[Gathered], *, again: bool = False) -> Plan:
    """Return the jobs of all deployments; the same missing files are planned once.

    ``again`` plans a deployment whose files are there, too. Raises the refusal (Undecided, or UsageError for
    a broken file) when it is that of the only deployment.
    """
    planned: dict[tuple[Path, str], Planned] = {}
    complete, refused = [], []
    for each in gathered:
        try:
            one = of_deployment(each, again=again)
        except NothingMissing as said:
            complete.append(f"{each.name}: {said}")
            continue
        except DoctorError as error:
            if len(gathered) == 1:
                raise
            refused.append(f"{each.name}: {error}")
            continue
        key = one.root, f"{one.job.triton}/{one.job.up_file}"
        same = planned.get(key)
        planned[key] = replace(same, deployments=same.deployments + one.deployments) if same else one
    if refused and not planned and not complete:
        raise Undecided("nothing can be tuned: " + "; ".join(refused))
    return Plan(tuple(planned.values()), tuple(complete), tuple(refused))


def of_deployment(each: Gathered, *, again: bool = False) -> Planned:
    """Return what to tune for one deployment.

    Raises NothingMissing when the server has its files, Undecided for what cannot be tuned, UsageError for a
    broken file.
    """
    facts = each.facts
    moe_installed.complete(each)
    _serves_with_triton(facts)
    why = _missing(facts, again=again)
    version = _release(facts)
    here = moe_installed.find(each, version)
    problem = moe_problem.of(facts)
    capability = _capability(facts)
    tokens = (*BATCH_SIZES, *(size for size in LONG_CHUNKS if size <= _largest_chunk(facts)))
    builtin = moe_today.default(problem, tokens, capability, version)
    source, today_is = moe_today.source(facts)
    job = Job(
        problem=problem,
        capability=capability,
        device=_need(facts, "gpu.name"),
        release=str(version),
        triton=_need(facts, "triton.version"),
        kernel=str(here.kernel),
        up_file=_need(facts, "moe.up.expected_file"),
        down_file=_need(facts, "moe.down.expected_file"),
        today=moe_today.today(facts, here.root, builtin, version),
        source=source,
        today_is=today_is,
        default=builtin,
        up_tma=version >= moe_today.UP_TMA,
        batch_sizes=tokens,
    )
    return Planned(
        deployments=(each.name,),
        why=why,
        job=job,
        root=here.root,
        package=here.package,
        python=here.python,
        python_path=here.python_path,
        model=_model(each),
        tp=int(facts.value("arg.tp_size") or facts.value("asked.tp_size") or 1),
        ep=int(facts.value("arg.ep_size") or facts.value("asked.ep_size") or 1),
    )


def _model(each: Gathered) -> Path | None:
    """Return the folder or config.json that the model's facts were read from."""
    read = (look.place for look in each.looked if look.source == "model" and look.state != "nothing")
    return next((Path(place) for place in read), None)


def _serves_with_triton(facts: Facts) -> None:
    """Refuse a deployment whose experts read no file, with the reason."""
    if facts.value("model.is_moe") is False:
        raise Undecided("the model has no routed experts: there is no fused-MoE configuration to tune")
    _need(facts, "model.is_moe")
    if facts.value("gpu.vendor", "nvidia") != "nvidia":
        name = facts.value("gpu.name", "this GPU")
        raise Undecided(f"{name} is not one of NVIDIA's: the tuner compiles and times on those alone")
    if facts.value("arg.enable_deterministic_inference") or facts.value(
        "asked.enable_deterministic_inference"
    ):
        raise Undecided(
            "deterministic inference is on: SGLang reads no config file then; tune without "
            "--enable-deterministic-inference, or leave it (sgdoctor explain CFG110)"
        )
    runner = _need(facts, "moe.runner", "which runner serves the experts is not known")
    if runner != "triton":
        raise Undecided(
            f"{runner} serves these experts, not SGLang's Triton kernel: tuning would change nothing"
        )


def _missing(facts: Facts, *, again: bool) -> str:
    """Return the finding in a sentence; raises NothingMissing when both files are there and right."""
    up_file = _need(facts, "moe.up.expected_file")
    up = _need(facts, "moe.up.source")
    error = facts.value("moe.lookup_error")
    if error is not None:
        raise Undecided(
            f"the config lookup ends the server: {error}; mend that first (sgdoctor explain CFG107)"
        )
    triton = facts.value("triton.version")
    if up == "default":
        return f"no Triton folder that this server reads has {up_file}: it runs on the built-in default"
    if up == "fallback":
        other = facts.value("moe.up.triton")
        return f"{up_file} is there for Triton {other} alone; this server has Triton {triton}"
    down = facts.value("moe.down.source")
    wrong = _wrong(facts)
    if wrong is not None:
        return wrong
    if down == "exact" and not again:
        raise NothingMissing(
            f"nothing is missing: {up_file} and its _down file are there for Triton {triton}; --retune tunes "
            "them anew"
        )
    if down == "exact":
        return f"{up_file} and its _down file are there for Triton {triton}; tuned anew as --retune asks"
    return f"{up_file} is there for Triton {triton}, its _down file is not"


def _wrong(facts: Facts) -> str | None:
    """Return what is wrong with the files in use, which new ones mend."""
    if facts.value("moe.block_m_mismatch"):
        return f"{facts.value('moe.up.expected_file')} and its _down file differ in BLOCK_SIZE_M"
    problems = facts.value("moe.config_problems") or []
    return str(problems[0]) if problems else None


def _release(facts: Facts) -> Version:
    text = _need(facts, "sglang.version")
    try:
        version = Version(text)
    except InvalidVersion:
        raise Undecided(f"SGLang {text} is no version: which kernel it has is not known") from None
    if not Version(OLDEST) <= Version(version.base_version) <= Version(NEWEST):
        raise Undecided(f"SGLang {text} is installed: the tuner knows the kernels of {OLDEST} to {NEWEST}")
    return version


def _capability(facts: Facts) -> tuple[int, int]:
    major, _, minor = str(_need(facts, "gpu.compute_capability")).partition(".")
    return int(major), int(minor or 0)


def _largest_chunk(facts: Facts) -> int:
    """Return how many tokens one forward may have, 0 where that is not known: no key is added then.

    With DP attention every group sends its chunk to the experts.
    """
    chunk = facts.value("arg.chunked_prefill_size") or facts.value("asked.chunked_prefill_size") or 0
    if chunk < 0:  # chunked prefill is off
        return int(facts.value("arg.max_prefill_tokens") or 0)
    groups = facts.value("arg.dp_size", 1) if facts.value("arg.enable_dp_attention") else 1
    return int(chunk) * int(groups or 1)


def _need(facts: Facts, name: str, said: str = "") -> str:
    """Return a fact that must be known; raises Undecided with what is missing and how to give it."""
    fact = facts.get(name)
    if not isinstance(fact, Unknown) and fact.value is not None:
        return fact.value  # type: ignore[no-any-return]
    reason = fact.reason if isinstance(fact, Unknown) else "not installed"
    missing = list(dict.fromkeys(_roots(facts, name)))
    ways = dict.fromkeys(
        _SETTLES.get(each, _SETTLES.get(each.partition(".")[0], "name more sources")) for each in missing
    )
    raise Undecided(f"{said or f'{name} is not known'}: {reason}; {'; '.join(ways)}")


def _roots(facts: Facts, name: str) -> list[str]:
    """Return the facts whose want leaves ``name`` unknown, itself where nothing else is named."""
    fact = facts.get(name)
    if not isinstance(fact, Unknown):
        return []
    found = [root for missing in fact.missing if missing != name for root in _roots(facts, missing)]
    return found or [name]
