"""One deployment at every release on the way: its facts with that release's packages, the rules' results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sgdoctor import samples, what_if
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.engine import evaluate
from sgdoctor.engine.model import Outcome, Result
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.facts import Facts, Known
from sgdoctor.gather import Gathered
from sgdoctor.settle import settle
from sgdoctor.sources import Sources
from sgdoctor.target import command as commands
from sgdoctor.target import path as paths
from sgdoctor.target.install import assumed, forget_packages, from_pypi, put_packages, put_release, read_facts
from sgdoctor.upstream import catalogue


class Stage(msgspec.Struct, frozen=True):
    """The deployment at one release: its facts, and the results of all rules by code."""

    facts: Facts
    results: dict[str, Result]

    def outcome(self, code: str) -> Outcome | None:
        """Return what a rule came to; None: it did not take part."""
        result = self.results.get(code)
        return None if result is None else result.outcome


class Walk:
    """A deployment on its way from the release in use to another one.

    ``start`` is the deployment as it is, ``end`` as it will be; ``at`` gives it with a release's packages.
    """

    def __init__(
        self,
        gathered: Gathered,
        rules: Sequence[CompiledRule],
        sources: Sources,
        target: str,
        from_version: str | None = None,
    ) -> None:
        self.rules = rules
        self.target = target
        self.command: LaunchCommand | None = gathered.command or commands.rebuilt(gathered.facts)
        self._sample = sources.sample
        self._read = read_facts(gathered.facts, with_command=self.command is not None)
        self._assumed = assumed(gathered.facts)
        self._from_pypi = from_pypi(gathered.facts)
        self._stages: dict[str, Stage] = {}
        end = paths.wanted(target)
        facts = gathered.facts
        if from_version is not None:
            facts = self._from(facts, from_version)
            self._read = read_facts(facts, with_command=self.command is not None)
        self.version = facts.value("sglang.version")
        self.path = paths.between(paths.in_use(self.version), end)
        self.stays = self.path.start.exact and self.path.start.version == end.version
        self.start = self._judged(facts)
        self.end = self.start if self.stays else self.at(end.version)
        if not self.stays:
            self.end.facts.notes = self._notes(gathered.facts)

    def at(self, version: str) -> Stage:
        """Return the deployment with a release of the catalogue and the packages that it requires."""
        stage = self._stages.get(version)
        if stage is None:
            place = f"{paths.OPTION} {self.target}"
            stage = self._stages[version] = self._judged(self._settled(self._read, version, place))
        return stage

    def since(self, view: Callable[[Stage], object]) -> str | None:
        """Return the release that brought what ``view`` sees at the end; see Path.since."""
        return self.path.since(lambda version: view(self.at(version)))

    def _from(self, facts: Facts, version: str) -> Facts:
        """Return the deployment as it is at the release that the operator says is in use."""
        place = f"--from-version {version}"
        release = paths.exactly(version, place)
        known = facts.value("sglang.version")
        if known == release.version:
            return facts
        return self._settled(self._read, release.version, place, only_unknown=known is None)

    def _settled(self, read: Facts, version: str, place: str, *, only_unknown: bool = False) -> Facts:
        release = catalogue.resolve(version)
        assert release is not None  # noqa: S101 (a release of the catalogue)
        facts = read_facts(read, with_command=self.command is not None)
        put_release(facts, release, place)
        if self._from_pypi:
            put_packages(facts, release, place, self._assumed, only_unknown=only_unknown)
        elif not only_unknown:
            forget_packages(facts, release, self._assumed)
        settle(facts, self.command)
        if self._sample:
            samples.shorten(facts, self._sample)
        return facts

    def _notes(self, read: Facts) -> list[str]:
        """Return what was said while reading, and what the move itself leaves open."""
        notes = dict.fromkeys([*read.notes, *self.end.facts.notes])
        start = self.path.start
        if not start.exact:
            notes[f"{self.version} is not in the catalogue: it is compared as {start.version}"] = None
        seen = [f for name, f in read.items() if isinstance(f, Known) and what_if.observed(name, f)]
        if any(what_if.said(fact) for fact in seen):
            notes[f"what the server said about itself was left out: it was said by SGLang {self.version}"] = (
                None
            )
        if not self._from_pypi:
            notes["the other release's packages are not known: the image for this GPU brings its own"] = None
        return list(notes)

    def _judged(self, facts: Facts) -> Stage:
        return Stage(facts, {each.code: each for each in evaluate.evaluate(self.rules, facts)})
