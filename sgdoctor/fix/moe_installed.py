"""The installation that a deployment runs on: its kernel, its config folder, an interpreter for the tuner."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts
from sgdoctor.gather import Gathered
from sgdoctor.tune import kernel
from sgdoctor.upstream import catalogue, known_gpus


@dataclass(frozen=True)
class Installed:
    """``root`` is the folder whose triton_* folders are searched; ``python`` is null where none can run."""

    package: Path
    kernel: Path
    root: Path
    python: str | None


def complete(each: Gathered) -> None:
    """Add the GPU's compute capability where the sources named left it open: a log names the GPU alone."""
    from sgdoctor.settle import settle

    facts = each.facts
    if facts.known("gpu.compute_capability"):
        return
    name = facts.value("gpu.name")
    known = next((gpu for gpu in known_gpus.GPUS if gpu.name == name), None)
    if known is not None:
        facts.derive("gpu.compute_capability", known.capability, ["gpu.name"])
        facts.derive("gpu.vendor", known.vendor, ["gpu.name"])
    else:
        from sgdoctor.collect import gpus

        gpus.read_gpus(facts, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    settle(facts, each.command)


def find(each: Gathered, release: Version) -> Installed:
    """Find the installed SGLang of ``release`` that serves this deployment.

    Raises Undecided when it is not on this machine, or not as the releases have it.
    """
    facts = each.facts
    path = facts.value("sglang.path")
    package = Path(path) if isinstance(path, str) and Path(path).is_dir() else _elsewhere(each, release)
    try:
        file = kernel.find(package)
    except kernel.KernelNotLoaded as error:
        raise Undecided(f"{error}: the SGLang installed there is no release that can be tuned") from None
    if facts.known("torch.version") and facts.value("torch.version") is None:
        raise Undecided(
            f"the environment of {package} has no torch: the tuner needs that of the server; name it with "
            "--python PATH"
        )
    return Installed(package, file, _root(facts, package), _interpreter(each, package))


def _elsewhere(each: Gathered, release: Version) -> Path:
    """Return the SGLang of the environment named, or python3's, where the server's own path is not here.

    Raises Undecided when it is not the same release with the same Triton.
    """
    from sgdoctor.collect import packages, python_env

    facts = each.facts
    where = f" at {facts.value('sglang.path')}" if facts.value("sglang.path") else ""
    wanted = f"SGLang {release} with Triton {facts.value('triton.version')}"
    python = each.python or python_env.default_python(os.environ, sys.prefix)
    there = Facts()
    if python is not None:
        packages.read_packages(there, python_env.locate(python))
    path, version, triton = (
        there.value(name) for name in ("sglang.path", "sglang.version", "triton.version")
    )
    if path is not None and (version, triton) == (str(release), facts.value("triton.version")):
        each.python = python
        return Path(path)
    has = f"; {python} has {version} with {triton}" if path is not None else ""
    raise Undecided(
        f"{wanted} is not on this machine{where}{has}, and the tuner needs its kernel: run it where the "
        "server runs (in its container), or name the installation with --python PATH"
    )


def _root(facts: Facts, package: Path) -> Path:
    root = facts.value("moe.config_root")
    if isinstance(root, str) and Path(root).is_dir():
        return Path(root)
    if facts.value("env.SGLANG_MOE_CONFIG_DIR") is not None and isinstance(root, str):
        return Path(root)
    release = catalogue.resolve(str(facts.value("sglang.version")))
    return package / release.moe_folder if release is not None else package


def _interpreter(each: Gathered, package: Path) -> str | None:
    """Return an interpreter that can be run: the one read, that beside the package, or python3's."""
    from sgdoctor.collect import python_env

    for place in filter(None, (each.python, *_beside(package))):
        try:
            found = python_env.locate(place)
        except UsageError:
            continue
        if found.interpreter is not None:
            return found.interpreter
    return python_env.default_python(os.environ, sys.prefix)


def _beside(package: Path) -> list[str]:
    """Return the prefix of lib/python3.X/site-packages/sglang."""
    return [str(package.parents[3])] if package.parent.name in ("site-packages", "dist-packages") else []
