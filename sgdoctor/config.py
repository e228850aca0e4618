"""The operator's settings: sgdoctor.toml, or [tool.sgdoctor] in pyproject.toml (docs/configuration.md)."""

from __future__ import annotations

import codecs
import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from sgdoctor.engine.expr_types import nearest
from sgdoctor.engine.model import SEVERITIES, Severity
from sgdoctor.errors import UsageError
from sgdoctor.input_file import read_bytes

FILE = "sgdoctor.toml"
PROJECT = "pyproject.toml"
SCHEMA = "sgdoctor-config-1"

FailOn = Literal["error", "warning", "info", "never"]

_LIMIT = 2**20


class Suppression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule whose finding the operator knows and accepts, with the reason.

    ``code`` is a rule's code or name, ``until`` the last day of the suppression. The others say for which
    deployments it is (all that are given must hold; none: for all). ``deployment`` (the report's name of it),
    ``model`` and ``file`` are patterns with ``*`` and ``?``. ``file`` is a source that was named, such as the
    launch file: its path from the folder of the settings, or its bare name. ``about`` are patterns of flags,
    packages or files: each that the finding names must match one.
    """

    code: str
    reason: Annotated[str, msgspec.Meta(min_length=1)]
    until: dt.date | None = None
    deployment: str | None = None
    model: str | None = None
    port: int | None = None
    file: str | None = None
    about: list[str] = []


class Settings(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """What sgdoctor.toml can hold; options of the command line come before it.

    ``fail_on``, ``select``, ``ignore`` are the options of `sgdoctor check`, ``rules`` folders of more rules
    (from the folder of the settings). ``severity`` gives rules, by code or name, another severity.
    """

    fail_on: FailOn | None = None
    select: list[str] = []
    ignore: list[str] = []
    rules: list[str] = []
    severity: dict[str, Severity] = {}
    suppress: list[Suppression] = []


class Choice(NamedTuple):
    """What a command is to do, by its own words and by the settings."""

    fail_on: FailOn
    select: list[str]
    ignore: list[str]
    rules: list[Path]


class Config(msgspec.Struct, frozen=True):
    """Settings and the file that holds them."""

    file: Path
    settings: Settings

    @property
    def folder(self) -> Path:
        """The folder from which the paths in the file go."""
        return self.file.parent


def found(folder: Path) -> Config | None:
    """Return the settings of ``folder``: sgdoctor.toml, else [tool.sgdoctor] in pyproject.toml, else None.

    Raises UsageError for settings that cannot be used.
    """
    own, project = folder / FILE, folder / PROJECT
    if os.path.lexists(own):
        return read(own)
    # Most projects are not about sgdoctor, and a mistake in their file is not sgdoctor's business.
    if not project.is_file() or b"sgdoctor" not in (raw := _raw(project)):
        return None
    table = _table(project, raw)
    return None if table is None else Config(project, _settings(project, table))


def read(file: Path) -> Config:
    """Return the settings of a file: of a pyproject.toml its [tool.sgdoctor], of any other the whole.

    Raises UsageError, in a line with the file, the key and the reason.
    """
    table = _table(file, _raw(file))
    if table is None:
        raise UsageError(f"{file}: has no [tool.sgdoctor]; add the table, or name a {FILE}")
    return Config(file, _settings(file, table))


def chosen(
    config: Config | None,
    *,
    fail_on: FailOn | None,
    select: Sequence[str],
    ignore: Sequence[str],
    rules: Sequence[Path],
) -> Choice:
    """Return what holds of the command line's words and the settings.

    The command line comes first where it says something; folders of rules add up.
    """
    said = Settings() if config is None else config.settings
    folders = [] if config is None else [config.folder / each for each in said.rules]
    return Choice(
        fail_on or said.fail_on or "error",
        list(select or said.select),
        list(ignore or said.ignore),
        [*folders, *rules],
    )


def schema() -> dict[str, Any]:
    """Return the JSON Schema of sgdoctor.toml, made from the structs and their docstrings."""
    (top,), components = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:sgdoctor:{SCHEMA}",
        "title": "sgdoctor.toml, and [tool.sgdoctor] of pyproject.toml",
        **top,
        "$defs": dict(sorted(components.items())),
    }


def _raw(file: Path) -> bytes:
    return read_bytes(file, _LIMIT, "no settings of sgdoctor")


def _table(file: Path, raw: bytes) -> Any:
    """Return the part of a file that is sgdoctor's; None where a pyproject.toml has none."""
    try:
        # Some editors begin a file with a byte order mark.
        whole = msgspec.toml.decode(raw.removeprefix(codecs.BOM_UTF8))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not TOML: {error}") from None
    if file.name != PROJECT:
        return whole
    tool = whole.get("tool")
    return tool.get("sgdoctor") if isinstance(tool, dict) else None


def _settings(file: Path, table: Any) -> Settings:
    _known_keys(file, table)
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        where = place.strip("`").removeprefix("$").removeprefix(".")
        raise UsageError(f"{file}: {where}: {reason}" if where else f"{file}: {reason}") from None
    for at, folder in enumerate(settings.rules):
        if not (file.parent / folder).exists():
            raise UsageError(f"{file}: rules[{at}]: no folder {file.parent / folder}")
    for at, suppression in enumerate(settings.suppress):
        if not suppression.reason.strip():
            raise UsageError(
                f"{file}: suppress[{at}].reason: is empty; say why {suppression.code} is accepted"
            )
    return settings


def _known_keys(file: Path, table: Any) -> None:
    """Raise UsageError for a key that means nothing, with the nearest that does, and for a bad severity."""
    if not isinstance(table, dict):
        return
    severities = table.get("severity")
    for code, severity in severities.items() if isinstance(severities, dict) else ():
        if severity not in SEVERITIES:
            raise UsageError(f"{file}: severity.{code}: {severity!r} is none of {', '.join(SEVERITIES)}")
    suppressions = table.get("suppress")
    entries = suppressions if isinstance(suppressions, list) else []
    tables = [("", table, Settings.__struct_encode_fields__)]
    tables += [
        (f"suppress[{at}].", entry, Suppression.__struct_encode_fields__)
        for at, entry in enumerate(entries)
        if isinstance(entry, dict)
    ]
    for where, keys, known in tables:
        for key in keys:
            if key not in known:
                hint = nearest(key, known) or f"; there are {', '.join(known)}"
                raise UsageError(f"{file}: unknown key {where}{key}{hint}")
