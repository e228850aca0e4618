"""The packages of the Python environment that runs SGLang; nothing of it is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from sgdoctor import redact
from sgdoctor.collect import child, distributions, requirements
from sgdoctor.collect.distributions import Distribution, Installed
from sgdoctor.collect.python_env import PythonEnvironment
from sgdoctor.facts import Facts

IMPORT_SECONDS = 60.0

# Distributions that install the import package `triton`: the release, PyTorch's nightlies, its ROCm builds.
TRITON_DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm")

_TORCH_CUDA = re.compile(r"^cuda\s*(?::[^=\n]*)?=\s*(?:(['\"])([^'\"\n]+)\1|(None))", re.MULTILINE)


def read_packages(facts: Facts, environment: PythonEnvironment) -> None:
    """Set package.*, packages.complete, sglang.version and .path, triton.version, torch.*.

    Never raises: what could not be read is unknown with the reason, or a note.
    """
    facts.notes.extend(environment.problems)
    installed = distributions.list_installed(environment.search)
    facts.notes.extend(installed.problems)
    if not installed.readable:
        reason = f"no package folder of {environment.place} could be read"
        for name in ("packages.complete", "sglang.version", "triton.version", "torch.version"):
            facts.set_unknown(name, reason)
        return
    facts.notes.extend(installed.doubtful.values())
    place = environment.place
    for name, entry in sorted(installed.distributions.items()):
        _set_version(facts, fact_name(name), entry.version, str(entry.metadata), installed.doubtful.get(name))
    set_absent(facts, {fact_name(name) for name in installed.distributions}, "packages", place)
    facts.set("packages.complete", True, source="packages", place=place)
    _read_sglang(facts, environment, installed)
    _read_triton(facts, environment, installed)
    _read_torch(facts, environment, installed)


def fact_name(distribution: str) -> str:
    """Return the fact of a distribution: ``flashinfer-python`` is package.flashinfer_python."""
    return "package." + canonicalize_name(distribution).replace("-", "_")


def set_absent(facts: Facts, listed: set[str], source: str, place: str) -> None:
    """Set to null the distributions that rules know and that a complete listing does not have."""
    for name in facts.vocabulary.specs:
        if name.startswith("package.") and name not in listed:
            facts.set(name, None, source=source, place=place)


def _set_version(facts: Facts, name: str, version: str, place: str, doubt: str | None = None) -> None:
    if doubt is not None:
        facts.set_unknown(name, doubt)
        return
    try:
        Version(version)
    except InvalidVersion:
        facts.set_unknown(name, f"{place} has {version!r}, which is no version")
        return
    facts.set(name, version, source="packages", place=place)


def _read_sglang(facts: Facts, environment: PythonEnvironment, installed: Installed) -> None:
    """Set sglang.path and the version that the package itself would report (sglang/version.py)."""
    entry = installed.distributions.get("sglang")
    search = list(environment.search)
    editable = distributions.editable_folder(entry, environment.root) if entry else None
    if editable is not None:
        search.append(editable)
    package = distributions.find_package(search, "sglang")
    if package is None:
        facts.set("sglang.path", None, source="packages", place=environment.place)
        gone = f", although {entry.metadata} lists it" if entry else ""
        facts.set_unknown("sglang.version", f"SGLang is not installed in {environment.place}{gone}")
        return
    facts.set("sglang.path", str(package), source="packages", place=environment.place)
    said = distributions.text_version(package, ("_version.py", "version.py"))
    if said is not None:
        _set_version(facts, "sglang.version", said[0], str(said[1]))
        if entry is not None and entry.version != said[0]:
            facts.notes.append(f"{said[1]} says {said[0]}, {entry.metadata} says {entry.version}")
    elif entry is not None:
        doubt = installed.doubtful.get("sglang")
        _set_version(facts, "sglang.version", entry.version, str(entry.metadata), doubt)
    else:
        facts.set_unknown("sglang.version", f"{package} does not say its version")


def _read_triton(facts: Facts, environment: PythonEnvironment, installed: Installed) -> None:
    """Set triton.version to ``triton.__version__``, by which SGLang looks for its configs."""
    package = distributions.find_package(environment.search, "triton")
    entry = next((e for d in TRITON_DISTRIBUTIONS if (e := installed.distributions.get(d))), None)
    if package is None:
        facts.set("triton.version", None, source="packages", place=environment.place)
        return
    said = distributions.text_version(package, ("__init__.py", "_version.py", "version.py"))
    if said is not None:
        _set_version(facts, "triton.version", said[0], str(said[1]))
    elif entry is not None:
        _set_version(facts, "triton.version", entry.version, str(entry.metadata))
    else:
        facts.set_unknown("triton.version", f"{package / '__init__.py'} has no __version__")


def _read_torch(facts: Facts, environment: PythonEnvironment, installed: Installed) -> None:
    entry = installed.distributions.get("torch")
    package = distributions.find_package(environment.search, "torch")
    names = ("torch.version", "torch.cuda", "torch.triton_pin", "torch.triton_requirement")
    if entry is None or package is None:
        for name in names:
            if entry is None and package is None:
                facts.set(name, None, source="packages", place=environment.place)
            else:
                rest = f"{package} has no metadata" if package else f"{entry and entry.metadata} has no files"
                facts.set_unknown(name, f"torch is not installed in full: {rest}")
        return
    doubt = installed.doubtful.get("torch")
    _set_version(facts, "torch.version", entry.version, str(entry.metadata), doubt)
    _read_torch_cuda(facts, package)
    _read_torch_triton(facts, entry, environment)


def _read_torch_cuda(facts: Facts, package: Path) -> None:
    """Set torch.cuda from torch/version.py (``cuda: Optional[str] = '13.0'``, written by torch's build)."""
    file = package / "version.py"
    try:
        found = _TORCH_CUDA.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        facts.set_unknown("torch.cuda", f"{file}: {error.strerror or error}")
        return
    if found is None:
        facts.set_unknown("torch.cuda", f"{file} does not say it")
    elif found.group(3):
        facts.set("torch.cuda", None, source="packages", place=str(file))
    else:
        _set_version(facts, "torch.cuda", found.group(2), str(file))


def _read_torch_triton(facts: Facts, torch: Distribution, environment: PythonEnvironment) -> None:
    names = ("torch.triton_pin", "torch.triton_requirement")
    lines = distributions.requirements(torch)
    if lines is None:
        for name in names:
            facts.set_unknown(name, f"{torch.metadata} could not be read")
        return
    arch = environment.arch or distributions.wheel_arch(torch)
    wanted = None
    for requirement in filter(None, map(_requirement, lines)):
        if canonicalize_name(requirement.name) in TRITON_DISTRIBUTIONS:
            held = requirements.holds(requirement.marker, environment.python, arch)
            if held is None:
                for name in names:
                    facts.set_unknown(
                        name, f"torch requires {requirement}, and Python or processor is not known"
                    )
                return
            wanted = requirement if held else wanted
    place = str(torch.metadata)
    text = f"{wanted.name}{wanted.specifier}" if wanted else None
    facts.set("torch.triton_requirement", text, source="packages", place=place)
    exact = [s.version for s in wanted.specifier if s.operator == "=="] if wanted else []
    facts.set("torch.triton_pin", exact[0] if exact else None, source="packages", place=place)


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def try_import(
    facts: Facts,
    environment: PythonEnvironment,
    *,
    variables: Mapping[str, str] | None = None,
    timeout: float = IMPORT_SECONDS,
) -> None:
    """Set sglang.import_error: import SGLang in a child process of the environment's own interpreter.

    ``variables`` is the environment that the server has, by default this process's. The child writes no byte
    code and asks no hub.
    """
    name = "sglang.import_error"
    if environment.interpreter is None:
        facts.set_unknown(name, f"{environment.place} cannot be run from here")
        return
    variables = {
        **(os.environ if variables is None else variables),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [environment.interpreter, "-c", "import sglang"]
    ended = child.run(command, timeout, environment=variables)
    place = f"{environment.interpreter} -c 'import sglang'"
    if ended.failure is not None:
        facts.set_unknown(name, ended.failure)
    elif ended.status == 0:
        facts.set(name, None, source="packages", place=place)
    elif ended.status is not None and ended.status < 0:
        facts.set(name, f"the process was ended by signal {-ended.status}", source="packages", place=place)
    else:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        said = lines[-1].strip() if lines else f"exit status {ended.status}"
        facts.set(name, redact.text(said)[:500], source="packages", place=place)
