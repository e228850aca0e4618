"""What the SGLang release in use requires of other packages, as facts."""

from __future__ import annotations

from sgdoctor.facts import Facts
from sgdoctor.upstream import catalogue

# Distributions whose exact requirement a rule reads, beside torch, Triton and the kernel package.
_DISTRIBUTIONS = ("transformers", "flashinfer-python", "flashinfer-cubin")


def derive(facts: Facts) -> None:
    """Set pin.* from the catalogue; null: the release has no exact requirement of it.

    For a build that the catalogue does not have itself they stay unknown: what a neighbour requires says
    nothing of it.
    """
    version = facts.value("sglang.version")
    release = catalogue.resolve(version) if isinstance(version, str) else None
    if release is None or not release.exact:
        reason = "what this SGLang release requires is not known"
        for name in ("torch", "triton", "kernel", "kernel_minimum", *map(_fact, _DISTRIBUTIONS)):
            facts.set_unknown(f"pin.{name}", reason, ["sglang.version"])
        return
    found = {
        "torch": release.torch_pin,
        "triton": release.triton_pin,
        "kernel": release.kernel_pin,
        "kernel_minimum": release.kernel_minimum,
        **{_fact(name): release.pins.get(name) for name in _DISTRIBUTIONS},
    }
    for name, pinned in found.items():
        facts.derive(f"pin.{name}", pinned, ["sglang.version"])


def _fact(distribution: str) -> str:
    return distribution.replace("-", "_")
