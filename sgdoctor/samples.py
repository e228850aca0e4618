"""Deployments that come with sgdoctor, so that a newcomer sees a real report with nothing installed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known, Provenance
from sgdoctor.sources import Sources

SAMPLES = Path(__file__).parent / "data" / "samples"


def sources(given: Sources) -> Sources:
    """Return the sources of a deployment that comes with sgdoctor; other named sources go before its own.

    Raises UsageError naming the samples there are.
    """
    folder = SAMPLES / str(given.sample)
    if not folder.is_dir() or folder.parent != SAMPLES:
        names = ", ".join(sorted(each.name for each in SAMPLES.iterdir() if each.is_dir()))
        raise UsageError(f"--sample {given.sample}: no such sample; there is: {names}")
    own = {
        "logs": (str(folder / "server.log"),),
        "launch": str(folder / "launch.sh"),
        "server_info": str(folder / "server_info.json"),
        "model": str(folder / "config.json"),
        "environment": str(folder / "environment.json"),
    }
    files = {name: getattr(given, name) or value for name, value in own.items()}
    return msgspec.structs.replace(given, **files)


def shorten(facts: Facts, sample: str) -> None:
    """Name a sample's files without the folder that they were installed in."""
    folder = f"{SAMPLES / sample}/"
    for name, fact in facts.items():
        if isinstance(fact, Known):
            places = tuple(
                Provenance(each.source, each.place.replace(folder, "")) for each in fact.provenance
            )
            facts.put(name, msgspec.structs.replace(fact, provenance=places))
        else:
            facts.put(name, msgspec.structs.replace(fact, reason=fact.reason.replace(folder, "")))
    facts.matches = {
        code: msgspec.structs.replace(match, place=match.place.replace(folder, ""))
        for code, match in facts.matches.items()
    }
    facts.excerpts = {
        place.replace(folder, ""): msgspec.structs.replace(each, place=place.replace(folder, ""))
        for place, each in facts.excerpts.items()
    }
    facts.notes = [note.replace(folder, "") for note in facts.notes]
