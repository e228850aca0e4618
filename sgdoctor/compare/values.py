"""Values of one fact in both recordings: whether they can be compared, and how an operator reads them."""

from __future__ import annotations

import math
from typing import Any

from sgdoctor.collect.server_info import SCHEDULER
from sgdoctor.compare.model import Kind
from sgdoctor.facts import NOT_ASKED, Facts, Known, Unknown
from sgdoctor.report.words import literal, plainly
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.asked_view import FLAGS_KNOWN
from sgdoctor.upstream.catalogue import Release

NOT_SET, NOT_WRITTEN = "not set", "not written"

_ANSWERS = ("server_info", "http")


class _Missing:
    """Stands for a value that is not known, where null is one."""


MISSING = _Missing()


class Pair:
    """The facts of both recordings."""

    def __init__(self, before: Facts, after: Facts) -> None:
        self.before = before
        self.after = after
        self.releases = (_release(before), _release(after))

    @property
    def same_release(self) -> bool:
        """Whether both are known to run the same release."""
        before, after = (facts.value("sglang.version") for facts in (self.before, self.after))
        return before is not None and before == after

    def both(self, name: str) -> tuple[Any, Any] | None:
        """Return the two values of a fact; None where one is not known, or the two were read differently."""
        before, after = self.before.get(name), self.after.get(name)
        if not isinstance(before, Known) or not isinstance(after, Known):
            return None
        if name.startswith("arg.") and not (_comparable(before, after) and _comparable(after, before)):
            return None
        return before.value, after.value

    def asked(self, dest: str) -> tuple[Any, Any]:
        """Return what was written for a flag, null where it was not, MISSING where that is not known."""
        return _asked(self.before, dest), _asked(self.after, dest)

    def asker(self, dest: str) -> Kind:
        """Return whether another value was asked for, the same one was, or nothing tells."""
        before, after = self.asked(dest)
        if before is MISSING or after is MISSING:
            return "flag"
        return "flag-itself" if same(before, after) else "flag-asked"

    def differs(self, name: str) -> bool:
        """Whether a fact is known in both and not the same."""
        both = self.both(name)
        return both is not None and not same(*both)

    def names(self) -> list[str]:
        """Return the facts that are known in both."""
        return [name for name, fact in self.before.items() if isinstance(fact, Known) and self.both(name)]

    def option(self, dest: str) -> str:
        """Return a flag as it is written on the command line."""
        for release in reversed(self.releases):
            flag = release.flag(dest) if release is not None else None
            if flag is not None:
                return flag.option
        return "--" + dest.replace("_", "-")

    def told(self, name: str) -> str:
        """Return what became of a fact in a few words: ``--mem-fraction-static 0.88 to 0.8``."""
        values = self.both(name) or (None, None)
        label = self.option(name.removeprefix("arg.")) if name.startswith("arg.") else _LABELS.get(name)
        return f"{label or plainly(name)} {became(shown(values[0]), shown(values[1]))}"


_LABELS = {
    "sglang.version": "SGLang",
    "torch.version": "torch",
    "triton.version": "Triton",
    "kv.tokens": "KV cache tokens",
    "model.path": "model",
    "gpu.name": "GPU",
    "gpu.count": "number of GPUs",
    "gpu.memory_mib": "memory of a GPU (MiB)",
    "memory.weights_gb": "weights (GB)",
}


def same(before: Any, after: Any) -> bool:
    """Whether two values are the same; numbers up to what writing them down costs."""
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (before, after))
    if numbers:
        return math.isclose(before, after, rel_tol=1e-6)
    return bool(before == after) and isinstance(before, bool) == isinstance(after, bool)


def shown(value: Any) -> str:
    """Return a value as an operator reads it."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    return literal(value)


def became(before: str, after: str) -> str:
    """Return what became of a value; "not set to 64" would read as its opposite."""
    return f"{before} before, now {after}" if before in (NOT_SET, NOT_WRITTEN) else f"{before} to {after}"


def _release(facts: Facts) -> Release | None:
    version = facts.value("sglang.version")
    return catalogue.resolve(version) if version is not None else None


def _comparable(one: Known, other: Known) -> bool:
    """Whether ``other`` may be held against a value that ``one`` has from the scheduler.

    What the scheduler settles after the launcher has printed its own is in /server_info alone, so the same
    server's banner, or what can be predicted for it, has another value.
    """
    if not any(each.place.endswith(SCHEDULER) for each in one.provenance):
        return True
    return any(each.source in _ANSWERS for each in other.provenance)


def _asked(facts: Facts, dest: str) -> Any:
    fact = facts.get(f"asked.{dest}")
    if isinstance(fact, Known):
        return fact.value
    unwritten = isinstance(fact, Unknown) and fact.reason == NOT_ASKED and facts.value(FLAGS_KNOWN)
    return None if unwritten else MISSING
