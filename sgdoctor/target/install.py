"""The deployment with another release installed: what was read stays, packages become those that pip brings.

This is ``pip install sglang==VERSION`` in the environment that was looked at: what the release does not
require stays as it is. Only the kernel package under its other name is taken to be uninstalled.
"""

from __future__ import annotations

import re

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from sgdoctor import what_if
from sgdoctor.collect.packages import fact_name
from sgdoctor.collect.requirements import holds
from sgdoctor.facts import Facts, Known
from sgdoctor.target import cuda
from sgdoctor.upstream.catalogue import KERNEL_PACKAGES, Release, Requirement

SOURCE = "assume"

# What a launch command means to one release is read again for another.
_OF_THE_COMMAND = (
    "asked.",
    "launch.unrecognized",
    "launch.ambiguous",
    "launch.abbreviated",
    "launch.deprecated",
    "launch.invalid",
    "launch.flags_known",
)
# Facts whose reason for being unknown is worked out anew.
_DERIVED = ("arg.", "asked.", "launch.", "moe.", "pin.", "sources.")
# Which machine it is does not depend on the release, whoever tells.
_OF_THE_MACHINE = ("gpu", "host.")
# What these run on is not what the release's metadata requires.
_OWN_IMAGES = ("amd", "other")
_OTHER_BUILD = re.compile(r"rocm|cpu|xpu|git")
_VERSIONS = {"torch": "torch.version", "triton": "triton.version"}


def read_facts(facts: Facts, *, with_command: bool) -> Facts:
    """Return what was read and what was assumed, without what a server said of itself and what was derived.

    ``with_command``: the launch command is there to be read again.
    """
    kept = Facts(facts.vocabulary)
    for name, fact in facts.items():
        if with_command and name.startswith(_OF_THE_COMMAND):
            continue
        if not isinstance(fact, Known):
            if not name.startswith(_DERIVED):
                kept.put(name, fact)
        elif fact.provenance and (name.startswith(_OF_THE_MACHINE) or not what_if.observed(name, fact)):
            kept.put(name, fact)
    return kept


def assumed(facts: Facts) -> frozenset[str]:
    """Return the facts that the operator assumed."""
    return frozenset(
        name
        for name, fact in facts.items()
        if isinstance(fact, Known) and any(each.source == SOURCE for each in fact.provenance)
    )


def from_pypi(facts: Facts) -> bool:
    """Whether a deployment gets torch and the kernels as the release's metadata says, with CUDA."""
    version = str(facts.value("torch.version"))
    return facts.value("gpu.vendor") not in _OWN_IMAGES and not _OTHER_BUILD.search(version)


def put_release(facts: Facts, release: Release, place: str) -> None:
    """Make the release another one; ``place`` is what the fact names as its origin."""
    for name in ("sglang.path", "sglang.version", "package.sglang"):
        facts.drop(name)
    facts.set("sglang.version", release.version, source=SOURCE, place=place)


def forget_packages(facts: Facts, release: Release, kept: frozenset[str]) -> None:
    """Make unknown what an image that is not made from PyPI's packages brings, but for the facts ``kept``."""
    names = [fact_name(each.name) for each in release.requirements]
    for name in (*names, "torch.version", "torch.cuda", "torch.triton_requirement", "triton.version"):
        if name not in kept:
            facts.drop(name)
            facts.set_unknown(name, "the image for this GPU brings its own")


def put_packages(
    facts: Facts, release: Release, place: str, kept: frozenset[str], *, only_unknown: bool = False
) -> None:
    """Make the packages those that pip would bring for ``release``, but for the facts ``kept``.

    ``only_unknown``: what was read stays too.
    """
    install = _Install(facts, place, kept, only_unknown=only_unknown)
    arch = facts.value("host.arch", "x86_64")
    for requirement in release.requirements:
        if requirement.extra is None and _asked_for(requirement, facts.value("host.python"), arch):
            install.requirement(requirement)
    install.kernel(release)
    install.torch(release)


def _asked_for(requirement: Requirement, python: str | None, arch: str) -> bool:
    if requirement.marker is None:
        return True
    return bool(holds(Marker(requirement.marker), python, arch))


class _Install:
    def __init__(self, facts: Facts, place: str, kept: frozenset[str], *, only_unknown: bool) -> None:
        self.facts = facts
        self.place = place
        self.kept = kept
        self.only_unknown = only_unknown

    def put(self, name: str, value: str | None) -> None:
        """Set a fact, unless it was assumed or is to stay."""
        if name in self.kept or (self.only_unknown and self.facts.known(name)):
            return
        self.facts.drop(name)
        self.facts.set(name, value, source=SOURCE, place=self.place)

    def put_or_forget(self, name: str, value: str | None) -> None:
        """Set a fact; without a value it is not known any more."""
        if value is not None:
            self.put(name, value)
        elif name not in self.kept:
            self.facts.drop(name)

    def requirement(self, requirement: Requirement) -> None:
        """Install one requirement: its pin, or what is there where that satisfies it."""
        name = fact_name(requirement.name)
        version = _VERSIONS.get(requirement.name)
        if version is not None and version in self.kept:
            return
        pinned = exact(requirement.specifier)
        if pinned is not None:
            self.put(name, pinned)
            return
        installed = self.facts.value(name)
        if name in self.kept or (installed is None and not self.facts.value("packages.complete")):
            return
        if installed is None or not _satisfies(installed, requirement.specifier):
            self.facts.drop(name)
            self.facts.set_unknown(name, f"pip chooses one that is {requirement.specifier or 'the newest'}")

    def kernel(self, release: Release) -> None:
        """Take the kernel package of the other name away, as the change that tells of it says to."""
        for package in KERNEL_PACKAGES:
            name = fact_name(package)
            if package != release.kernel_package and self.facts.value(name) is not None:
                self.put(name, None)

    def torch(self, release: Release) -> None:
        """Install torch as PyPI has it, and the Triton that it brings."""
        if not {"torch.version", "package.torch"} & self.kept:
            self.put("torch.version", release.torch_pin)
            self.put("torch.triton_requirement", f"triton{release.triton_requirement}")
            self.put("torch.triton_pin", exact(release.triton_requirement))
            self.put_or_forget("torch.cuda", cuda.of_torch(release.torch_pin))
        if not {"triton.version", "package.triton"} & self.kept:
            self.put("triton.version", release.triton_pin)
            self.put("package.triton", release.triton_pin)


def exact(specifier: str) -> str | None:
    """Return the version that ``==1.2.3`` asks for, None for any other specifier."""
    only = specifier.startswith("==") and "," not in specifier and "*" not in specifier
    return specifier.removeprefix("==") if only else None


def _satisfies(version: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return True
