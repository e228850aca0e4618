"""A server's log, or one a node: from what it says to facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sgdoctor.collect import log_facts
from sgdoctor.collect.log_events import requests_retracted
from sgdoctor.collect.log_read import CHUNK, LogSource, source
from sgdoctor.collect.log_reading import Reading
from sgdoctor.errors import Undecided
from sgdoctor.facts import Facts, Match

__all__ = ["LogSource", "read_logs", "source"]


def read_logs(
    facts: Facts, logs: Sequence[LogSource], patterns: Mapping[str, str], *, chunk: int = CHUNK
) -> None:
    """Read the logs of one deployment, one a node, and set what they say; look for rules' patterns in them.

    ``patterns`` maps rule codes to RE2 patterns, each looked for in the text of every record, without its
    prefix; a `.` is a byte. ``facts.matches`` gets the number of lines on which one was found, and the first.
    Of a log that holds several starts of the server only the last one counts. ``facts.excerpts`` gets the
    lines around those that were found.

    Raises UsageError when a log cannot be opened or a pattern is none, and Undecided, after all were read,
    when one of them holds no record of SGLang's.
    """
    readings = []
    for log in logs:
        reading = Reading(log.name, patterns)
        reading.read(log, chunk)
        reading.releases = log_facts.releases_of(reading)
        readings.append(reading)
    usable = [reading for reading in readings if reading.usable]
    facts.notes += [note for reading in readings for note in _notes(reading)]
    _set(facts, "log.records", sum(reading.records for reading in readings), readings[:1])
    if usable:
        facts.patterns_sought |= set(patterns)
        _matches(facts, usable, patterns)
        for first, reading in enumerate(sorted(usable, key=_node_rank)):
            log_facts.one_log(facts, reading, first_node=first == 0)
        _state(facts, usable)
        _release(facts, usable)
        facts.excerpts |= {each.place: each for reading in usable for each in reading.excerpts()}
    without = [reading for reading in readings if not reading.usable]
    if without:
        raise Undecided("; ".join(f"{each.name}: {_nothing(each)}" for each in without))


def _nothing(reading: Reading) -> str:
    return "no record of SGLang's in it" if reading.total else "is empty"


def _node_rank(reading: Reading) -> int:
    banner = reading.events.run.banner
    rank = banner.value.values.get("node_rank") if banner else None
    return rank if isinstance(rank, int) else 0


def _notes(reading: Reading) -> Iterable[str]:
    if reading.trouble:
        yield f"{reading.name}: {reading.trouble}"
    if not reading.usable:
        return
    lines = reading.head.lines + reading.tail.lines
    recognized = reading.head.recognized + reading.tail.recognized
    of = f"{lines}" if lines >= reading.total else f"the first and last {lines} of {reading.total}"
    if reading.fit.contradictory:
        grammar = "; its lines are from more than one release"
    else:
        release = _release_text(reading)
        grammar = f", grammar of {release}" if release else ""
    yield f"{reading.name}: {recognized} of {of} lines recognized{grammar}"
    if reading.events.starts > 1:
        yield f"{reading.name}: the server starts {reading.events.starts} times; this is about the last"
    elif reading.begins > 1:
        yield f"{reading.place(reading.begins)}: the server starts again here; what comes before is left out"
    banner = reading.events.run.banner
    if banner and not banner.value.complete:
        yield f"{reading.place(banner.line)}: the end of the start-up banner is missing"


def _release_text(reading: Reading) -> str | None:
    return " or ".join(reading.releases) or reading.fit.range


def _matches(facts: Facts, readings: Sequence[Reading], patterns: Iterable[str]) -> None:
    for code in patterns:
        found = [reading for reading in readings if code in reading.matches]
        if not found:
            continue
        first = found[0].matches[code]
        ranks = {rank for reading in found for rank in reading.ranks.get(code, ())}
        facts.matches[code] = Match(
            sum(reading.count(code) for reading in found),
            found[0].place(first.line),
            first.text,
            first.groups,
            tuple(sorted(ranks, key=_rank_order)),
        )


def _rank_order(ranks: str) -> list[tuple[str, int]]:
    return [(part.rstrip("0123456789"), int(part.lstrip("ADCEMNOPT_"))) for part in ranks.split()]


def _set(facts: Facts, name: str, value: Any, readings: Sequence[Reading], line: int = 0) -> None:
    """Set a fact that holds for the whole log, or was read at ``line`` of the first of ``readings``."""
    place = readings[0].place(line) if line else ", ".join(reading.name for reading in readings)
    facts.set(name, value, source="log", place=place)


def _state(facts: Facts, readings: Sequence[Reading]) -> None:
    """Set how far the server got, over all nodes."""
    runs = [reading.events.run for reading in readings]
    ends = [reading.end for reading in readings]
    died = any(end.died for end in ends)
    ready = [(reading, run.ready) for reading, run in zip(readings, runs, strict=True) if run.ready]
    listening = [
        (reading, run.listening) for reading, run in zip(readings, runs, strict=True) if run.listening
    ]
    _set(facts, "log.has_start", all(_has_start(reading) for reading in readings), readings)
    _set(
        facts,
        "log.starts",
        max(reading.events.starts or int(_has_start(reading)) for reading in readings),
        readings,
    )
    _set(facts, "log.ready", bool(ready), *(([ready[0][0]], ready[0][1]) if ready else (readings,)))
    _set(
        facts,
        "log.listening",
        bool(listening),
        *(([listening[0][0]], listening[0][1]) if listening else (readings,)),
    )
    dead = [reading for reading in readings if reading.end.died]
    _set(facts, "log.died", died, *((dead, dead[0].end.line or 0) if dead else (readings,)))
    _set(facts, "log.stopped", not died and any(end.stopped for end in ends), readings)
    _set(facts, "log.deepgemm_compiling", not died and any(end.deepgemm for end in ends), readings)
    stages = ["compiling" if reading.end.deepgemm else reading.stage for reading in readings]
    _set(facts, "log.stage", next((stage for stage in stages if stage), None), readings)
    told = [reading for reading in dead if reading.end.fatal is not None]
    if told:
        _set(facts, "log.fatal", told[0].end.fatal, told, told[0].end.line or 0)
    else:
        _set(facts, "log.fatal", None, readings)
    ranks = {rank for reading in readings for rank in _ranks(reading)}
    _set(facts, "log.ranks", max(1, len(ranks)), readings)
    _retractions(facts, readings)
    _keys(facts, readings)
    if ready or died:
        facts.set_unknown("log.starting_seconds", "the server is not starting")
    elif (
        seconds := max((_starting(reading) for reading in readings), default=None, key=_or_zero)
    ) is not None:
        _set(facts, "log.starting_seconds", seconds, readings)
    else:
        facts.set_unknown("log.starting_seconds", "the log does not show both ends of the start")


def _keys(facts: Facts, readings: Sequence[Reading]) -> None:
    """Set whether a key stands in a log, also in the banner of a start that is over."""
    for reading in readings:
        if reading.events.key is not None:
            _set(facts, "log.key_shown", True, [reading], reading.events.key)
            return
    if all(_has_start(reading) for reading in readings):
        _set(facts, "log.key_shown", False, readings)
    else:
        facts.set_unknown("log.key_shown", "the log does not begin at the server's start")


def _or_zero(value: float | None) -> float:
    return value or 0.0


def _ranks(reading: Reading) -> set[str]:
    return (
        reading.head.ranks | reading.tail.ranks | {rank for found in reading.ranks.values() for rank in found}
    )


def _has_start(reading: Reading) -> bool:
    """Whether the log begins at a start: its banner, an early record, or a death before any."""
    run = reading.events.run
    early = reading.end.early and not run.listening and not reading.decoded
    return reading.events.starts > 0 or run.began or bool(run.weights) or early


def _starting(reading: Reading) -> float | None:
    """Return the seconds from the first record of the last start to the last record."""
    run = reading.events.run
    first = reading.head.first_time or reading.tail.first_time if reading.begins == 1 else run.banner_time
    last = reading.tail.last_time or reading.head.last_time
    if not _has_start(reading):
        return None
    try:
        return (_time(last) - _time(first)).total_seconds()
    except ValueError:
        return None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text[:19])


def _retractions(facts: Facts, readings: Sequence[Reading]) -> None:
    told = [(reading, reading.events.run.retractions) for reading in readings]
    where = [reading for reading, seen in told if seen] or readings
    line = min((seen.line for seen in where[0].events.run.retractions.values() if seen.line), default=0)
    total = requests_retracted(pair for _, seen in told for pair in seen.items())
    peak = max((one.peak for _, seen in told for one in seen.values()), default=0)
    _set(facts, "log.retractions", total, where, line)
    _set(facts, "log.retractions_peak", peak, where, line)


def _release(facts: Facts, readings: Sequence[Reading]) -> None:
    """Say which releases the lines fit; a banner's fields tell more than the wording."""
    for reading in readings:
        banner, names = reading.events.run.banner, reading.releases
        if banner and names:
            _set(facts, "log.release", " or ".join(names), [reading], banner.line)
            base = names[0]
            if all(name == base or name.startswith(f"{base}.post") for name in names):
                _set(facts, "sglang.version", base, [reading], banner.line)
                if len(names) > 1:
                    where = reading.place(banner.line)
                    facts.notes.append(
                        f"{where}: the banner is that of {' and '.join(names)}; taken as {base}"
                    )
            return
    for reading in readings:
        if reading.fit.range:
            _set(facts, "log.release", reading.fit.range, [reading])
            return
