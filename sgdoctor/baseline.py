"""The baseline: findings that are known today, by fingerprint, so that a check tells of new ones alone."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import msgspec

from sgdoctor.errors import UsageError
from sgdoctor.input_file import read_json
from sgdoctor.report.model import DeploymentReport, Report, without_entered

VERSION = 2
SCHEMA: Literal["sgdoctor-baseline-2"] = "sgdoctor-baseline-2"

_LIMIT = 64 * 2**20
_OBJECTION = "no baseline"
_SCHEMA = re.compile(r"sgdoctor-baseline-(\d{1,9})")


class Entry(msgspec.Struct, frozen=True):
    """A finding that is known. The fingerprint decides; the rest is for who reads the file."""

    fingerprint: str
    code: str
    deployment: str
    title: str


class Baseline(msgspec.Struct, frozen=True):
    """What a baseline file holds."""

    schema: Literal["sgdoctor-baseline-2"]
    findings: list[Entry]


def load(file: Path) -> frozenset[str]:
    """Return the fingerprints in a baseline file. Raises UsageError when it cannot be read as one."""
    if not file.exists():
        raise UsageError(f"{file}: no such baseline; --write-baseline {file} makes it")
    raw = read_json(file, _LIMIT, _OBJECTION)
    _refuse_other_version(file, raw)
    try:
        baseline = msgspec.convert(raw, Baseline)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {_OBJECTION}: {error}; --write-baseline {file} writes it anew") from None
    return frozenset(entry.fingerprint for entry in baseline.findings)


def _refuse_other_version(file: Path, raw: Any) -> None:
    """Raise UsageError for no baseline, or one whose fingerprints another sgdoctor made otherwise."""
    schema = raw.get("schema", SCHEMA) if isinstance(raw, dict) else SCHEMA
    anew = f"--write-baseline {file}"
    found = _SCHEMA.fullmatch(str(schema))
    if found is None:
        raise UsageError(f"{file}: {_OBJECTION} but {schema!r}; {anew} writes it anew")
    version = int(found.group(1))
    if version > VERSION:
        raise UsageError(
            f"{file}: a baseline of a newer sgdoctor (version {version}, this one reads {VERSION}): update "
            f"sgdoctor, or write it anew with {anew}"
        )
    if version < VERSION:
        raise UsageError(
            f"{file}: a baseline of an earlier sgdoctor, which did not tell one flag from another: "
            f"look at what is found without --baseline, then {anew}"
        )


def dump(report: Report) -> str:
    """Return the baseline of all that ``report`` found, in an order in which two can be compared."""
    entries = {
        Entry(finding.fingerprint, finding.code, deployment.name, finding.title)
        for deployment in report.deployments
        for finding in deployment.findings
    }
    ordered = sorted(entries, key=lambda entry: (entry.deployment, entry.code, entry.fingerprint))
    encoded = msgspec.json.format(msgspec.json.encode(Baseline(SCHEMA, ordered)), indent=1)
    return f"{encoded.decode()}\n"


def apply(report: Report, known: Collection[str]) -> Report:
    """Return the report with the findings whose fingerprints are ``known`` counted instead of told."""
    new = Report.of((_without(each, known) for each in report.deployments), report.settings, report.notes)
    return msgspec.structs.replace(new, drift=report.drift)


def _without(deployment: DeploymentReport, known: Collection[str]) -> DeploymentReport:
    new = [finding for finding in deployment.findings if finding.fingerprint not in known]
    codes = {finding.code for finding in new}
    old = sorted({finding.code for finding in deployment.findings} - codes)
    told = {code: cause for code, cause in deployment.consequences.items() if {code, cause} <= codes}
    changes = without_entered(deployment.changes, old)
    return msgspec.structs.replace(
        deployment, findings=new, in_baseline=old, consequences=told, changes=changes
    )
