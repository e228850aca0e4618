"""Reads systemd service units: the commands of ``ExecStart=`` as systemd would run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sgdoctor.collect import launch_envfile
from sgdoctor.collect.launch import NOTHING, LaunchCommand, commands_of
from sgdoctor.collect.launch_bash import Walk
from sgdoctor.collect.launch_exec import begin
from sgdoctor.collect.launch_network import Network
from sgdoctor.collect.launch_split import SplitError
from sgdoctor.collect.launch_systemd_words import Command, Variables, expanded, specified, unit_words
from sgdoctor.collect.launch_words import Piece, Value, Word, plain, unknown
from sgdoctor.collect.launch_wrappers import Environment
from sgdoctor.errors import UsageError

_SECTION = re.compile(r"\[([^\]]+)\]\s*$")
_TRUE = ("1", "yes", "y", "true", "t", "on")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class Setting(msgspec.Struct):
    """One ``Key=value`` of a unit, its value in pieces of a line each."""

    key: str
    value: Value
    line: int

    @property
    def text(self) -> str:
        """The value in one piece."""
        return "".join(piece.text for piece in self.value)


def parse(text: str, name: str) -> list[LaunchCommand]:
    """Return the SGLang servers of a service unit. Raises UsageError when there are none."""
    unit = _Unit(text, name)
    commands: list[LaunchCommand] = []
    variables = unit.variables()
    for command in unit.commands():
        walk = Walk(name)
        walk.notes += unit.notes
        words = expanded(command, variables)
        begin(words, walk, Environment(dict(variables.values), complete=variables.complete))
        for found in commands_of(walk, unit.folder()):
            if found.network is None:
                found.network = unit.network()
            found.group = name
            commands.append(found)
    if not commands:
        raise UsageError(f"{name} {NOTHING}, in the ExecStart= of [Service]")
    return commands


def settings(text: str) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of a unit, each with the name of its section."""
    section = ""
    pieces: list[Piece] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        stripped = line.strip()
        if stripped[:1] in ("#", ";"):
            continue  # also between lines that belong together
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pieces.append(Piece(line[:-1] + " " if goes_on else line, number))
        if goes_on:
            continue
        whole = "".join(piece.text for piece in pieces)
        header = _SECTION.match(whole.strip())
        if header is not None:
            section = header.group(1)
        elif "=" in whole:
            yield section, _setting(pieces)
        pieces = []
    if pieces and any("=" in piece.text for piece in pieces):
        yield section, _setting(pieces)


def _setting(pieces: list[Piece]) -> Setting:
    at = next(number for number, piece in enumerate(pieces) if "=" in piece.text)
    key = "".join(piece.text for piece in pieces[:at]) + pieces[at].text.partition("=")[0]
    first = pieces[at]._replace(text=pieces[at].text.partition("=")[2].lstrip())
    value = [first, *pieces[at + 1 :]]
    value[-1] = value[-1]._replace(text=value[-1].text.rstrip())
    return Setting(key.strip(), tuple(value), pieces[0].line)


class _Unit:
    """The [Service] section of a unit."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.unit_name = Path(name).name
        self.notes: list[str] = []
        self.service = [setting for section, setting in settings(text) if section == "Service"]

    def all(self, key: str) -> list[Setting]:
        """Return the settings of ``key``, those after the last empty one."""
        found: list[Setting] = []
        for setting in self.service:
            if setting.key == key:
                found = [*found, setting] if setting.text.strip() else []
        return found

    def last(self, key: str) -> str:
        """Return the last value of ``key``."""
        found = self.all(key)
        return found[-1].text.strip() if found else ""

    def commands(self) -> list[Command]:
        """Return the commands of all ``ExecStart=``. Raises UsageError for one that systemd cannot split."""
        starts = self.all("ExecStart")
        found = [command for setting in starts for command in self._split(setting)]
        if len(found) > 1 and self.last("Type") != "oneshot":
            where = f"{self.name}:{starts[-1].line}"
            self.notes.append(f"{where}: systemd refuses a second ExecStart= unless Type=oneshot")
        return [
            Command([specified(word, self.unit_name) for word in command.words], command.literal)
            for command in found
        ]

    def _split(self, setting: Setting) -> list[Command]:
        try:
            return unit_words(setting.value)
        except SplitError as error:
            where = f"{self.name}:{error.line}"
            raise UsageError(
                f"{where}: systemd cannot split this ExecStart=: a quote is not closed"
            ) from error

    def variables(self) -> Variables:
        """Return the environment of the service, as far as the unit and the files that it names tell."""
        values: dict[str, Value | None] = {}
        for setting in self.all("Environment"):
            try:
                words = unit_words(setting.value, commands=False)[0].words
            except SplitError as error:
                words = []
                self.notes.append(f"{self.name}:{error.line}: a quote in Environment= is not closed")
            for word in words:
                if _ASSIGNMENT.match(word.text):
                    variable, _, text = word.text.partition("=")
                    pieces = specified(word._replace(pieces=(Piece(text, word.line),)), self.unit_name).pieces
                    values[variable] = pieces or (Piece("", word.line),)
        reason = self._files(values)
        for setting in self.all("PassEnvironment"):
            for variable in setting.text.split():
                values.setdefault(variable, (unknown(f"${variable}", setting.line, "systemd's own"),))
        for setting in self.all("UnsetEnvironment"):
            for variable in setting.text.split():
                values[variable.partition("=")[0]] = None
        return Variables(values, reason)

    def _files(self, values: dict[str, Value | None]) -> str:
        """Add the variables of each ``EnvironmentFile=``; return why others may be set or set anew."""
        reason = ""
        for setting in self.all("EnvironmentFile"):
            path, optional = setting.text.strip(), setting.text.strip().startswith("-")
            word = specified(Word((Piece(path.removeprefix("-"), setting.line),)), self.unit_name)
            try:
                text = launch_envfile.read(Path(plain(word.pieces) or ""))
                found = launch_envfile.systemd_file(text)
                values |= {
                    variable: tuple(piece._replace(line=setting.line) for piece in value)
                    for variable, value in found.items()
                }
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                reason = f"EnvironmentFile={path} may set it"
                kind = " (it need not exist)" if optional else ""
                self.notes.append(f"{self.name}:{setting.line}: {path} could not be read: {why}{kind}")
        if reason:
            for variable, value in values.items():
                line = value[0].line if value else 0
                values[variable] = (unknown(f"${variable}", line, reason),)
        return reason

    def folder(self) -> Path:
        """Return where relative paths start."""
        folder = self.last("WorkingDirectory").removeprefix("-")
        return Path(folder) if folder.startswith("/") and "%" not in folder else Path("/")

    def network(self) -> Network | None:
        """Return how the service is reached where the unit fences it in."""
        for setting in self.all("PrivateNetwork"):
            if setting.text.strip().lower() in _TRUE:
                return Network("closed", line=setting.line)
        allowed = {part for setting in self.all("IPAddressAllow") for part in setting.text.split()}
        for setting in self.all("IPAddressDeny"):
            if "any" in setting.text.split() and allowed <= {"localhost"}:
                return Network("closed", line=setting.line)
        return None
