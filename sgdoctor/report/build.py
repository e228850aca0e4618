"""From facts and results to the report of one deployment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from sgdoctor.engine.model import Outcome, Result, Rule
from sgdoctor.facts import NOT_ASKED, Conflict, Facts, Known, Unknown
from sgdoctor.report import options
from sgdoctor.report.model import (
    Broken,
    DeploymentReport,
    DeploymentSummary,
    Disagreement,
    Gpus,
    Looked,
    Reading,
    UndecidedRule,
)

_LINE = re.compile(r":\d+$")
_PARALLEL = {"tp": "arg.tp_size", "pp": "arg.pp_size", "dp": "arg.dp_size", "ep": "arg.ep_size"}


def deployment(
    name: str,
    facts: Facts,
    results: Iterable[Result],
    rules: Mapping[str, Rule],
    *,
    looked_at: Iterable[Looked] | None = None,
    given: Iterable[str] = (),
    consequences: Mapping[str, str] | None = None,
    python: str | None = None,
) -> DeploymentReport:
    """Return the report of one deployment.

    ``looked_at`` is what was looked at and how far it was understood, by default what the facts themselves
    tell (:func:`looked_at_by`); ``given`` the command's options that named the sources, so that none of them
    is proposed again; ``consequences`` maps the code of a finding to that of the finding which explains it.
    """
    by_outcome: dict[Outcome, list[Result]] = {outcome: [] for outcome in Outcome}
    for result in results:
        by_outcome[result.outcome].append(result)
    given = tuple(given)
    looked = looked_at_by(facts) if looked_at is None else list(looked_at)
    looked, notes = _sorted_out(looked, facts)
    findings = [result.finding for result in by_outcome[Outcome.FAIL] if result.finding]
    places = dict.fromkeys(each.place for finding in findings for each in finding.evidence)
    return DeploymentReport(
        name=name,
        summary=summary(facts, python=python),
        findings=findings,
        consequences=dict(consequences or {}),
        unknown=[_undecided(each, rules[each.code], facts, given) for each in by_outcome[Outcome.UNKNOWN]],
        broken=[Broken(each.code, each.reason or "no reason") for each in by_outcome[Outcome.ERROR]],
        passed=[each.code for each in by_outcome[Outcome.PASS]],
        not_applicable=[each.code for each in by_outcome[Outcome.NOT_APPLICABLE]],
        looked_at=looked,
        notes=notes,
        conflicts=[_disagreement(each) for each in facts.conflicts],
        excerpts=[facts.excerpts[place] for place in places if place in facts.excerpts],
        series=list(facts.series),
    )


def summary(facts: Facts, *, python: str | None = None) -> DeploymentSummary:
    """Return what the deployment is, as far as the facts tell."""
    sizes = {short: facts.value(name) for short, name in _PARALLEL.items()}
    return DeploymentSummary(
        model=facts.value("model.name"),
        sglang=facts.value("sglang.version"),
        gpus=_gpus(facts),
        parallel={short: size for short, size in sizes.items() if size and (short == "tp" or size > 1)},
        python=python,
        url=facts.value("server.url"),
        status=_status(facts),
    )


def _status(facts: Facts) -> str | None:
    """Return what the server is doing and what it waits for, as far as that is known."""
    state, status = facts.value("server.state"), facts.value("server.status")
    # A saved log that ends with an ordered stop is nothing to point out.
    if state is None or (state == "stopped" and status is None):
        return None if status is None else str(status)
    waits = facts.value("server.waiting_for")
    words = str(state).replace("_", " ")
    return f"{words}, waits for {waits}" if waits else words


def _gpus(facts: Facts) -> list[Gpus]:
    records = facts.value("gpus")
    if not records:
        name = facts.value("gpu.name")
        count = facts.value("gpu.count", 1)
        return [Gpus(count, name, facts.value("gpu.compute_capability"))] if name and count else []
    kinds: dict[tuple[str, str | None], int] = {}
    for each in records:
        kind = (str(each.get("name", "GPU")), each.get("compute_capability"))
        kinds[kind] = kinds.get(kind, 0) + 1
    return [Gpus(count, name, capability) for (name, capability), count in kinds.items()]


def looked_at_by(facts: Facts) -> list[Looked]:
    """Return the places that facts were read from, by the facts alone, and what there was."""
    counts: dict[tuple[str, str], int] = {}
    for _name, fact in facts.items():  # noqa: PERF102 (not a dict)
        for provenance in fact.provenance if isinstance(fact, Known) else ():
            place = (provenance.source, _LINE.sub("", provenance.place))
            counts[place] = counts.get(place, 0) + 1
    return [Looked(source, place, said=_said(source, facts)) for source, place in counts]


def _sorted_out(looked_at: list[Looked], facts: Facts) -> tuple[list[Looked], list[str]]:
    """Return the sources with what there was in them, and the notes that are about something else."""
    notes = list(dict.fromkeys(facts.notes))
    sources = []
    for looked in looked_at:
        told = looked
        if looked.state == "understood" and not looked.said:
            counted = next((note for note in notes if _counts(note, looked.place)), None)
            if counted is not None:
                notes.remove(counted)
            said = counted.removeprefix(f"{looked.place}: ") if counted else _said(looked.source, facts)
            told = msgspec.structs.replace(looked, said=said)
        sources.append(told)
    return sources, notes


def _counts(note: str, place: str) -> bool:
    """Whether a collector's note says no more than how much of a source it recognized."""
    return note.startswith(f"{place}: ") and " lines recognized" in note


def _said(source: str, facts: Facts) -> str:
    """Return how much there was in a source, empty when that is not known."""
    if source == "log":
        release = facts.value("log.release")
        records = facts.value("log.records")
        told = f" of SGLang {release}" if release else ""
        return "" if records is None else f"{_number(records, 'record')}{told}"
    if source in ("launch", "command"):
        flags = sum(name.startswith("asked.") and value is not None for name, value in _read(facts, source))
        return _number(flags, "flag") if flags else ""
    if source in ("packages", "environment"):
        read = dict(_read(facts, source))
        packages = sum(name.startswith("package.") and value is not None for name, value in read.items())
        gpus = len(read.get("gpus") or ())
        counts = [_number(packages, "package")] if packages else []
        return ", ".join([*counts, *([_number(gpus, "GPU")] if gpus else [])])
    return ""


def _read(facts: Facts, source: str) -> Iterator[tuple[str, Any]]:
    """Iterate over the facts that a source gave."""
    for name, fact in facts.items():
        if isinstance(fact, Known) and any(each.source == source for each in fact.provenance):
            yield name, fact.value


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _undecided(result: Result, rule: Rule, facts: Facts, given: tuple[str, ...]) -> UndecidedRule:
    roots = list(dict.fromkeys(root for name in result.missing for root in missing_roots(facts, name)))
    return UndecidedRule(
        code=result.code,
        title=rule.title,
        missing=roots,
        reason=result.reason or _reason(facts, roots),
        options=options.giving(roots, given),
    )


def missing_roots(facts: Facts, name: str, *, seen: frozenset[str] = frozenset()) -> list[str]:
    """Return the facts to be read so that ``name`` can be derived; itself when it is read, not derived."""
    fact = facts.get(name)
    if not isinstance(fact, Unknown) or name in seen:
        return []
    roots = [root for each in fact.missing for root in missing_roots(facts, each, seen=seen | {name})]
    return list(dict.fromkeys(roots)) or [name]


def _reason(facts: Facts, names: Iterable[str]) -> str:
    """Return why the first of ``names`` is unknown for which more is known than that nobody told it."""
    for name in names:
        fact = facts.get(name)
        if isinstance(fact, Unknown) and fact.reason != NOT_ASKED:
            return fact.reason
    return NOT_ASKED


def _disagreement(conflict: Conflict) -> Disagreement:
    return Disagreement(conflict.name, _reading(conflict.kept), _reading(conflict.other))


def _reading(known: Known) -> Reading:
    first = known.provenance[0] if known.provenance else None
    if first is None:
        return Reading(known.value, "derived", ", ".join(known.inputs))
    return Reading(known.value, first.source, first.place)
