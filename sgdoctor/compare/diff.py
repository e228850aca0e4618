"""What `sgdoctor diff` does, as a Python call."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sgdoctor.compare import findings, graphs, measures, parts, settings
from sgdoctor.compare.model import Diff, Difference, Side
from sgdoctor.compare.read import Recording, read
from sgdoctor.compare.values import Pair
from sgdoctor.engine import evaluate
from sgdoctor.engine import rules as packs
from sgdoctor.engine.model import Outcome, Result
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.errors import UsageError
from sgdoctor.facts import Known
from sgdoctor.report import build
from sgdoctor.report.model import Broken

TOLERANCE = 5.0  # percent

# Facts of which something can be said when both files tell them.
_COMPARED = (
    "arg.",
    "asked.",
    "kv.",
    "log.decode_throughput",
    "window.",
    "server.decode_throughput",
    "memory.",
    "package.",
    "gpu.",
    "moe.",
    "env.",
)
_COMPARED_VERSIONS = ("sglang.version", "torch.version", "triton.version", "host.driver")


def diff(before: str | Path, after: str | Path, *, tolerance: float = TOLERANCE) -> Diff:
    """Return what changed from one file to the other: snapshots or saved answers of /server_info.

    A measure that differs by ``tolerance`` percent or less is minor. Raises UsageError for a file that is
    neither and for a tolerance that is none, Undecided for a file that holds a server's refusal.
    """
    if not 0 <= tolerance < 100:
        raise UsageError(f"--tolerance {tolerance:g}: a number of percent from 0 to less than 100")
    one, other = read(Path(before)), read(Path(after))
    pack = packs.load()
    results = [_judged(each, pack.rules) for each in (one, other)]
    pair = Pair(one.facts, other.facts)
    switched = list(graphs.differences(pair))
    read_by_rules = frozenset(name for rule in pack.rules for name in rule.names)
    found = [
        *findings.differences(*results),
        *measures.differences(pair, tolerance),
        *switched,
        *parts.differences(pair),
        *settings.differences(pair, read_by_rules, [each.subject for each in switched]),
    ]
    return Diff.of(
        _side(one),
        _side(other),
        found,
        tolerance=tolerance,
        compared=sum(_counts(pair, name) for name in pair.names()),
        broken=_broken(results),
        notes=_notes(pair, found),
    )


def _judged(recording: Recording, rules: Iterable[CompiledRule]) -> dict[str, Result]:
    return {result.code: result for result in evaluate.evaluate(rules, recording.facts)}


def _side(recording: Recording) -> Side:
    facts = recording.facts
    return Side(recording.file, recording.kind, build.summary(facts), list(dict.fromkeys(facts.notes)))


def _counts(pair: Pair, name: str) -> bool:
    """Whether a fact is worth comparing, and rests on something in both files rather than on nothing said."""
    facts = (pair.before.get(name), pair.after.get(name))
    if not all(isinstance(fact, Known) and (fact.provenance or fact.inputs) for fact in facts):
        return False
    return name.startswith(_COMPARED) or name in _COMPARED_VERSIONS


def _broken(results: Iterable[dict[str, Result]]) -> list[Broken]:
    """Return the rules that broke on either side: bugs, each named once."""
    broken = {
        code: Broken(code, result.reason or "no reason")
        for each in results
        for code, result in each.items()
        if result.outcome == Outcome.ERROR
    }
    return list(broken.values())


def _notes(pair: Pair, found: Iterable[Difference]) -> list[str]:
    """Return what qualifies the comparison as a whole."""
    notes = []
    if pair.differs("model.path"):
        notes.append("The two serve different models: capacity and speed are those of the model, too.")
    if any(each.kind == "flag" for each in found) and not settings.tells_of_asking(pair):
        notes.append(
            "Not both files say what was asked for, so a flag may have been changed by the operator or by "
            "SGLang itself: /server_info says it from SGLang 0.5.20 on, a snapshot when it was taken with "
            "--launch."
        )
    return notes
