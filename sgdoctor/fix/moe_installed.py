"""The installation that a deployment runs on: its kernel, its config folder, an interpreter for the tuner."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts
from sgdoctor.gather import Gathered
from sgdoctor.tune import kernel
from sgdoctor.upstream import catalogue, known_gpus

if TYPE_CHECKING:
    from sgdoctor.collect.python_env import PythonEnvironment


@dataclass(frozen=True)
class Installed:
    """``root`` is the folder whose triton_* folders are searched; ``python`` is null where none can run.

    ``python_path`` are the folders that PYTHONPATH must name where it runs.
    """

    package: Path
    kernel: Path
    root: Path
    python: str | None
    python_path: tuple[Path, ...] = ()


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
    return Installed(package, file, _root(facts, package), *_interpreter(each, package))


def _elsewhere(each: Gathered, release: Version) -> Path:
    """Return the SGLang of the environment named, or python3's, where the server's own path is not here.

    Raises Undecided when it is not the same release with the same Triton.
    """
    from sgdoctor.collect import packages

    facts = each.facts
    where = f" at {facts.value('sglang.path')}" if facts.value("sglang.path") else ""
    wanted = f"SGLang {release} with Triton {facts.value('triton.version')}"
    found = _environment(each)
    there = Facts()
    if found is not None:
        packages.read_packages(there, found)
    path, version, triton = (
        there.value(name) for name in ("sglang.path", "sglang.version", "triton.version")
    )
    has = ""
    if found is not None and path is not None:
        if (version, triton) == (str(release), facts.value("triton.version")):
            each.python, each.python_path = found.place, found.python_path
            return Path(path)
        has = f"; {found.place} has {version} with {triton}"
    raise Undecided(
        f"{wanted} is not on this machine{where}{has}, and the tuner needs its kernel: run it where the "
        "server runs (in its container), or name the installation with --python PATH"
    )


def _environment(each: Gathered) -> PythonEnvironment | None:
    from sgdoctor.collect import python_env

    if each.python is None:
        return python_env.default(os.environ, sys.prefix)
    return python_env.locate(each.python, python_path=map(str, each.python_path))


def _root(facts: Facts, package: Path) -> Path:
    root = facts.value("moe.config_root")
    if isinstance(root, str) and Path(root).is_dir():
        return Path(root)
    if facts.value("env.SGLANG_MOE_CONFIG_DIR") is not None and isinstance(root, str):
        return Path(root)
    release = catalogue.resolve(str(facts.value("sglang.version")))
    return package / release.moe_folder if release is not None else package


def _interpreter(each: Gathered, package: Path) -> tuple[str | None, tuple[Path, ...]]:
    """Return an interpreter that can be run, and its PYTHONPATH: the one read, that beside the package.

    Without either it is python3's.
    """
    from sgdoctor.collect import python_env

    places: list[tuple[str, tuple[Path, ...]]] = (
        [] if each.python is None else [(each.python, each.python_path)]
    )
    if package.parent.name in ("site-packages", "dist-packages"):
        places.append((str(package.parents[3]), ()))  # the prefix of lib/python3.X/site-packages/sglang
    for place, path in places:
        try:
            found = python_env.locate(place, python_path=map(str, path))
        except UsageError:
            continue
        if found.interpreter is not None:
            return found.interpreter, path
    here = python_env.default(os.environ, sys.prefix)
    return (None, ()) if here is None else (here.interpreter, here.python_path)
