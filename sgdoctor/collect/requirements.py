"""Installed packages held against what SGLang, torch and transformers require of each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from sgdoctor.facts import Facts, Known
from sgdoctor.upstream import catalogue

# From this release on LayerRepository and FuncRepository of `kernels` raise ValueError("Either a revision
# or a version must be specified.") (kernels/layer/layer.py, func.py: not in 0.14.1, in 0.15.1 to 0.17.2).
KERNELS_DEMANDS_VERSION = Version("0.15")
# Up to here transformers builds such repositories without either while it is imported, which its
# `except ImportError` does not catch (transformers/integrations/hub_kernels.py, which activations.py imports:
# so in 4.57.1, 5.3.0, 5.6.0, 5.8.1 and 5.12.1; 5.13.0 gives versions).
TRANSFORMERS_NAMES_VERSION = Version("5.13")

_KERNELS = ("flashinfer-python", "sgl-kernel", "sglang-kernel")
_OWN_RULE = ("torch", "triton", "flashinfer-cubin", "kernels")

# What every SGLang server runs on, where a marker asks for it.
_LINUX = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}


def mismatched(
    installed: Mapping[str, str | None],
    requirements: Iterable[str],
    *,
    complete: bool,
    python: str | None = None,
    arch: str | None = None,
) -> list[dict[str, Any]]:
    """Return which requirements of a release the installed distributions do not satisfy, by name.

    ``installed`` maps distribution names to versions (null: known to be absent); with ``complete`` a name
    that is not in it is absent too, otherwise it is left out. Requirements of extras are left out, and so
    are those whose marker asks for a Python or processor that is not known. A local part of the installed
    version (``0.4.10+cu130``) does not count: it is the same release.
    """
    have = {canonicalize_name(name): version for name, version in installed.items()}
    wrong: dict[str, dict[str, Any]] = {}
    for line in requirements:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        name = canonicalize_name(wanted.name)
        if not holds(wanted.marker, python, arch) or (name not in have and not complete):
            continue
        version = have.get(name)
        if version is None or not _satisfies(version, wanted.specifier):
            wrong[name] = {"name": name, "installed": version, "required": str(wanted.specifier)}
    return [wrong[name] for name in sorted(wrong)]


def holds(marker: Marker | None, python: str | None, arch: str | None) -> bool | None:
    """Tell whether a requirement's marker holds on Linux with this Python and processor; None: not known."""
    if marker is None:
        return True
    text = str(marker).replace("platform_python_", "")
    if ("python_" in text and python is None) or ("platform_machine" in text and arch is None):
        return None
    known = {**_LINUX, "platform_machine": arch or ""}
    if python is not None:
        known["python_full_version"] = python
        known["python_version"] = ".".join(python.split(".")[:2])
    return marker.evaluate(known)


def _satisfies(version: str, specifier: SpecifierSet) -> bool:
    """Whether ``version`` without its local part is in ``specifier``; what is no version counts as in it."""
    try:
        return specifier.contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return True


def kernels_breaks_transformers(kernels: str, transformers: str) -> bool:
    """Tell whether importing this transformers raises ValueError because of this ``kernels``.

    "Either a revision or a version must be specified": kernels/layer/layer.py from 0.15, raised while
    transformers/integrations/hub_kernels.py before 5.13 is imported.
    """
    return Version(kernels) >= KERNELS_DEMANDS_VERSION and Version(transformers) < TRANSFORMERS_NAMES_VERSION


def of_release(version: str) -> list[str] | None:
    """Return what the plain install of an SGLang release requires; None when the release is not known."""
    release = catalogue.resolve(version)
    if release is None or not release.exact:
        return None
    lines = [
        f"{each.name}{each.specifier}" + (f"; {each.marker}" if each.marker else "")
        for each in release.requirements
        if each.extra is None
    ]
    return lines or None


def derive(facts: Facts, requirements: Iterable[str] | None) -> None:
    """Set packages.mismatched, .kernel_duplicates, .kernels_breaks_transformers and torch.triton_matches.

    ``requirements`` are those of the SGLang release in use, None when the release is not known.
    """
    _derive_mismatched(facts, requirements)
    _derive_kinds(facts)
    _derive_duplicates(facts)
    _derive_kernels(facts)
    _derive_triton(facts)


def _derive_mismatched(facts: Facts, requirements: Iterable[str] | None) -> None:
    name = "packages.mismatched"
    complete = facts.value("packages.complete")
    if complete is None:
        facts.set_unknown(name, "the installed packages are not known", ("packages.complete",))
        return
    if requirements is None:
        facts.set_unknown(name, "what this SGLang release requires is not known", ("sglang.version",))
        return
    requirements = list(requirements)
    if requirements and not any(map(_is_requirement, requirements)):
        facts.set_unknown(name, "what this SGLang release requires could not be read")
        return
    read = {n: f for n, f in facts.items() if n.startswith("package.") and isinstance(f, Known)}
    # Unknown ones (listed twice, no version) are neither right nor wrong.
    unknown = {n for n, f in facts.items() if n.startswith("package.") and not isinstance(f, Known)}
    installed = {n.removeprefix("package.").replace("_", "-"): f.value for n, f in read.items()}
    doubtful = {n.removeprefix("package.").replace("_", "-") for n in unknown}
    found = mismatched(
        installed,
        requirements,
        complete=complete,
        python=facts.value("host.python"),
        arch=facts.value("host.arch"),
    )
    found = [entry for entry in found if entry["name"] not in doubtful]
    if not found and not complete:
        facts.set_unknown(name, "not all installed packages are listed", ("packages.complete",))
        return
    inputs = ["packages.complete", "sglang.version"]
    inputs += ["package." + entry["name"].replace("-", "_") for entry in found]
    facts.derive(name, found, [n for n in inputs if facts.known(n)])


def _is_requirement(line: str) -> bool:
    try:
        Requirement(line)
    except InvalidRequirement:
        return False
    return True


def _derive_kinds(facts: Facts) -> None:
    """Divide what differs: compiled kernels, and everything that no rule of its own is about."""
    whole = "packages.mismatched"
    kernels, others = "packages.mismatched_kernels", "packages.mismatched_others"
    if not facts.known(whole):
        for name in (kernels, others):
            facts.set_unknown(name, "what differs is not known", (whole,))
        return
    found = facts.value(whole)
    facts.derive(kernels, [entry for entry in found if entry["name"] in _KERNELS], [whole])
    facts.derive(others, [entry for entry in found if entry["name"] not in (*_KERNELS, *_OWN_RULE)], [whole])


def _derive_duplicates(facts: Facts) -> None:
    name, parts = "packages.kernel_duplicates", ("package.sgl_kernel", "package.sglang_kernel")
    known = [part for part in parts if facts.known(part)]
    absent = [part for part in known if facts.value(part) is None]
    if absent:
        facts.derive(name, False, absent)
    elif len(known) == len(parts):
        facts.derive(name, True, parts)
    else:
        facts.set_unknown(name, "not all installed packages are listed", facts.missing(*parts))


def _derive_kernels(facts: Facts) -> None:
    name, parts = "packages.kernels_breaks_transformers", ("package.kernels", "package.transformers")
    absent = [part for part in parts if facts.known(part) and facts.value(part) is None]
    missing = facts.missing(*parts)
    if absent:
        facts.derive(name, False, absent)
    elif missing:
        facts.set_unknown(name, "not all installed packages are listed", missing)
    else:
        broken = kernels_breaks_transformers(*(facts.value(part) for part in parts))
        facts.derive(name, broken, parts)


def _derive_triton(facts: Facts) -> None:
    name, parts = "torch.triton_matches", ("torch.triton_requirement", "triton.version")
    missing = facts.missing(*parts)
    requirement, triton = (facts.value(part) for part in parts)
    if missing:
        facts.set_unknown(name, "what torch requires or what is installed is not known", missing)
    elif requirement is None:
        facts.derive(name, True, parts[:1])
    elif triton is None:
        facts.derive(name, False, parts)
    else:
        try:
            specifier = Requirement(requirement).specifier
        except (InvalidRequirement, InvalidSpecifier) as error:
            facts.set_unknown(name, f"torch requires {requirement!r}: {error}")
            return
        facts.derive(name, _satisfies(triton, specifier), parts)
