"""What a launch command asks of one release, for the functions that predict what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packaging.version import Version

from sgdoctor.facts import NOT_ASKED, Facts, Unknown
from sgdoctor.upstream.catalogue import Release

FLAGS_KNOWN = "launch.flags_known"


class Open(Exception):  # noqa: N818 (an answer: not decided)
    """The value cannot be told: ``missing`` are the facts that would help."""

    def __init__(self, reason: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.missing = missing


class View:
    """The flags of one launch command under one release.

    Every method notes the facts it used in ``inputs`` and raises Open where one is not known. Environment
    variables that switch something on are taken as not set unless they are known to be.
    """

    def __init__(self, facts: Facts, release: Release, rewrites: Mapping[str, Callable[[View], Any]]) -> None:
        self.facts = facts
        self.release = release
        self.version = Version(release.version)
        self.inputs: list[str] = []
        self._rewrites = rewrites

    def since(self, version: str) -> bool:
        """Whether the release is ``version`` or newer."""
        return self.version >= Version(version)

    def use(self, name: str) -> Any:
        """Return the value of a fact that must be known."""
        fact = self.facts.get(name)
        if isinstance(fact, Unknown):
            raise Open(f"{name} is not known", (name,))
        self._note(name)
        return fact.value

    def asked(self, dest: str) -> Any:
        """Return what was written for ``dest``, None when it was not."""
        name = f"asked.{dest}"
        fact = self.facts.get(name)
        if isinstance(fact, Unknown):
            if fact.reason != NOT_ASKED or not self.facts.value(FLAGS_KNOWN, default=False):
                raise Open(fact.reason, (name,))
            self._note(FLAGS_KNOWN)
            return None
        self._note(name)
        return fact.value

    def plain(self, dest: str) -> Any:
        """Return what argparse leaves in ``dest``: what was written, else the release's default."""
        written = self.asked(dest)
        if written is not None:
            return written
        try:
            return self.release.default(dest)
        except KeyError:
            raise Open(f"the default of {dest} in SGLang {self.release.version} is not known") from None

    def effective(self, dest: str) -> Any:
        """Return ``dest`` as the running server has it: read from it, else predicted."""
        name = f"arg.{dest}"
        if self.facts.known(name):
            return self.use(name)
        rewrite = self._rewrites.get(dest)
        return rewrite(self) if rewrite is not None else self.plain(dest)

    def unset(self, *dests: str) -> None:
        """Raise Open when one of ``dests`` was given another value than its default."""
        for dest in dests:
            if self.release.has(dest) and self.is_set(dest):
                raise Open(f"{_option(dest)} may change it at start", (f"asked.{dest}",))

    def is_set(self, dest: str) -> bool:
        """Whether ``dest`` was given another value than its default, in a release that has it."""
        if not self.release.has(dest):
            return False
        written = self.asked(dest)
        return written is not None and written != self.plain_default(dest)

    def plain_default(self, dest: str) -> Any:
        """Return the release's default of ``dest``, None when the source does not tell."""
        try:
            return self.release.default(dest)
        except KeyError:
            return None

    def environment(self, name: str) -> bool:
        """Whether the variable is known to be set to something true (EnvBool in srt/environ.py)."""
        value = self.facts.value(f"env.{name}")
        if not isinstance(value, str) or value.lower() not in ("true", "1", "yes", "y"):
            return False
        self._note(f"env.{name}")
        return True

    def nvidia(self) -> None:
        """Raise Open unless the GPUs are known to be NVIDIA's; other platforms have their own rewrites."""
        if self.use("gpu.vendor") != "nvidia":
            raise Open("SGLang changes it on other platforms")

    def _note(self, name: str) -> None:
        if name not in self.inputs:
            self.inputs.append(name)


def _option(dest: str) -> str:
    return "--" + dest.replace("_", "-")
