"""Which packages move with the release: torch and what comes with it, the kernels, transformers, Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from sgdoctor.collect.packages import fact_name
from sgdoctor.engine.model import Severity
from sgdoctor.facts import Facts
from sgdoctor.report.model import Change
from sgdoctor.target import cuda
from sgdoctor.target.change import new_change
from sgdoctor.target.flags import release, when
from sgdoctor.target.install import from_pypi
from sgdoctor.target.path import Path
from sgdoctor.upstream.catalogue import KERNEL_PACKAGES, Release

# What an operator asks about first; all other requirements are told with -v.
_NAMED = ("flashinfer-python", "flashinfer-cubin", "transformers")
_ANY = "any version"
_MOST_STEPS = 3
_TOLD = frozenset({"torch", *KERNEL_PACKAGES, *_NAMED})


def changes(facts: Facts, path: Path) -> list[Change]:
    """Return what moves; ``facts`` are those of the deployment as it is."""
    if not from_pypi(facts):
        return []
    pins = _Pins(facts, path)
    found = [
        pins.python(),
        pins.cuda(),
        pins.moved("torch", lambda at: at.torch_pin, "torch.version"),
        pins.moved("triton", lambda at: at.triton_requirement.removeprefix("=="), "triton.version"),
        pins.kernel(),
        *(pins.required(name) for name in _NAMED),
        *pins.others(),
    ]
    return [change for change in found if change is not None]


class _Pins:
    """What moves, seen from one environment."""

    def __init__(self, facts: Facts, path: Path) -> None:
        self.facts = facts
        self.path = path

    def moved(
        self, name: str, pin: Callable[[Release], str | None], fact: str, *, minor: bool = False
    ) -> Change | None:
        """Return that what the releases require of a package differs, None when it does not."""
        before, after = pin(self.path.start), pin(self.path.end)
        if before == after:
            return None
        since = self.path.since(lambda version: pin(release(version)))
        installed = self.facts.value(fact)
        do = None
        if after is None:
            text = f"{name} ({before}) is no longer required{when(self.path, since)}"
            if installed is not None:
                do = f"pip uninstall {name}: pip leaves it behind"
        elif before is None:
            text = f"{name} {f'({after})' if after == _ANY else after} is required{when(self.path, since)}"
        else:
            text = f"{name} moves from {before} to {after}"
            text += _steps(self.path, self.path.moves(lambda version: pin(release(version))))
        if installed is not None and installed != before:
            text += f"; {installed} is installed"
        return new_change("pin", name, installed or before, after, since, f"{text}.", do=do, minor=minor)

    def required(self, name: str, *, minor: bool = False) -> Change | None:
        """Return that the requirement of one package differs."""
        return self.moved(name, lambda at: _specifier(at, name), fact_name(name), minor=minor)

    def kernel(self) -> Change | None:
        """Return that the kernel package moves, to another name too."""
        before, after = self.path.start, self.path.end
        if (before.kernel_package, before.kernel_pin) == (after.kernel_package, after.kernel_pin):
            return None
        old, new = before.kernel_package, after.kernel_package
        if old == new:
            return self.moved(new, lambda at: at.pins.get(new), fact_name(new))
        since = self.path.since(
            lambda version: (release(version).kernel_package, release(version).kernel_pin)
        )
        renamed = self.path.since(lambda version: release(version).kernel_package)
        text = (
            f"{old} {before.kernel_pin} becomes {new} {after.kernel_pin}: the package has another name"
            f"{when(self.path, renamed)}, and both fill the same folder."
        )
        return new_change(
            "pin",
            new,
            f"{old} {self.facts.value(fact_name(old)) or before.kernel_pin}",
            f"{new} {after.kernel_pin}",
            since,
            text,
            "warning",
            do=f"pip uninstall {old} before the {self._move()}: pip leaves it behind",
        )

    def cuda(self) -> Change | None:
        """Return that torch's CUDA differs, and what driver that needs."""
        installed = str(self.facts.value("torch.version", self.path.start.torch_pin)).partition("+")[0]
        before = self.facts.value("torch.cuda") or cuda.of_torch(installed)
        after = cuda.of_torch(self.path.end.torch_pin)
        if before is None or after is None or before == after:
            return None
        since = self.path.since(lambda version: cuda.of_torch(release(version).torch_pin))
        text = f"CUDA moves from {before} to {after} with torch"
        text += _steps(self.path, [(since, after)] if since else [])
        driver, here, newest = (
            cuda.driver(after),
            self.facts.value("host.driver"),
            self.facts.value("host.cuda"),
        )
        severity: Severity = "info"
        do = None
        if _major(before) < _major(after):
            enough = _enough(driver, here, newest, after)
            text += f": it needs an NVIDIA driver of {driver} or newer"
            text += f"; this one is {here}" if here else ""
            severity = "info" if enough else "warning"
            do = None if enough else f"check the driver with nvidia-smi: {driver} or newer"
            if enough is False:
                do = f"upgrade the driver to {driver} or newer, or take an image or wheels for CUDA {before}"
        return new_change("cuda", "CUDA", before, after, since, f"{text}.", severity, do=do)

    def python(self) -> Change | None:
        """Return that the Python that is supported differs, or that the one in use no longer is."""
        before, after = self.path.start.python, self.path.end.python
        if before == after:
            return None
        since = self.path.since(lambda version: release(version).python)
        text = f"Python must be {after}{when(self.path, since)}, it was {before}"
        here = self.facts.value("host.python")
        fits = None if here is None else _contains(after, here)
        if fits is False:
            text += f"; {here} is in use, so it cannot be installed"
        severity: Severity = "error" if fits is False else "info"
        if fits is None and self.path.upgrade:
            severity = "warning"
        return new_change("python", "Python", before, after, since, f"{text}.", severity)

    def others(self) -> Iterator[Change | None]:
        """Yield every other requirement of the plain install that differs, all of them minor."""
        names = {
            each.name for at in (self.path.start, self.path.end) for each in at.requirements if not each.extra
        }
        for name in sorted(names - _TOLD):
            yield self.required(name, minor=True)

    def _move(self) -> str:
        return "upgrade" if self.path.upgrade else "downgrade"


def _steps(path: Path, moves: list[tuple[str, str | None]]) -> str:
    """Say in which releases a pin moved; of many the last."""
    if not moves or len(moves) > _MOST_STEPS:
        return f", the last time in {moves[-1][0]}" if moves else ""
    if len(moves) == 1:
        return f" in {moves[0][0]}" if path.upgrade else f" before {moves[0][0]}"
    told = [f"{value or 'none'} {'in' if path.upgrade else 'before'} {version}" for version, value in moves]
    return f": {', '.join(told)}"


def _specifier(at: Release, name: str) -> str | None:
    """Return what a release requires of a package on Linux x86-64: ``1.2.3``, ``>=4``, ``any version``."""
    for each in at.requirements:
        if each.name == name and each.extra is None and "x86_64" in each.machines:
            specifier = each.specifier if "," in each.specifier else each.specifier.removeprefix("==")
            return specifier or _ANY
    return None


def _enough(driver: str | None, here: str | None, newest: str | None, cuda_needed: str) -> bool | None:
    """Whether the machine's driver is new enough for this CUDA, None when that is not known."""
    try:
        if newest is not None:
            return _major(newest) >= _major(cuda_needed)
        if here is not None and driver is not None:
            return Version(here) >= Version(driver)
    except InvalidVersion:
        return None
    return None


def _major(version: str) -> int:
    return Version(version).major


def _contains(specifier: str, version: str) -> bool | None:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:
        return None
