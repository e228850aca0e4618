"""Reads Dockerfiles: what the image's last stage starts, from ENTRYPOINT and CMD."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sgdoctor.collect.launch import NOTHING, LaunchCommand, commands_of
from sgdoctor.collect.launch_bash import Walk
from sgdoctor.collect.launch_containers import Container
from sgdoctor.collect.launch_dockerfile_text import Instruction, env_words, instructions
from sgdoctor.collect.launch_exec import begin
from sgdoctor.collect.launch_network import Network
from sgdoctor.collect.launch_substitute import Substitution, VariableError
from sgdoctor.collect.launch_words import Piece, Value, Word, cut
from sgdoctor.collect.launch_wrappers import Environment
from sgdoctor.errors import UsageError

_SHELL = ("/bin/sh", "-c")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_OUTSIDE = "the base image or docker build may set it"
_RUN_TIME = "a Dockerfile does not say how its container is reached"


class Stage:
    """What the instructions of a stage have set so far; a stage of the same file is taken over."""

    def __init__(self, base: Stage | None, image: str, line: int) -> None:
        new = Container(line=line, image=image)
        self.container: Container = msgspec.structs.replace(base.container) if base is not None else new
        self.variables: dict[str, Value] = dict(base.variables) if base is not None else {}
        self.arguments: dict[str, Value] = {}
        self.shell: list[str] = list(base.shell) if base is not None else list(_SHELL)
        self.entrypoint: list[Word] = list(base.entrypoint) if base is not None else []
        self.command: list[Word] = list(base.command) if base is not None else []
        self.replaces_command = False


def parse(text: str, name: str, folder: Path | None) -> list[LaunchCommand]:
    """Return the SGLang servers that the last stage starts. Raises UsageError when there are none."""
    del folder  # of the host; paths are the image's
    file = _File(name)
    for instruction in instructions(text):
        file.read(instruction)
    stage = file.stage
    if stage is None:
        raise UsageError(f"{name} is no Dockerfile: it has no FROM")
    words = [*stage.entrypoint, *stage.command]
    line = words[0].line if words else stage.container.line
    stage.container.network = Network("unknown", doubt=_RUN_TIME, line=line)
    begin(words, file.walk, Environment(dict(stage.variables)), stage.container)
    commands = commands_of(file.walk, None)
    if not commands:
        hint = "; CMD gives only flags: what the base image runs is not known"
        flags = hint if words and words[0].text.startswith("-") else ""
        raise UsageError(f"{name} {NOTHING}, in the ENTRYPOINT and CMD of the last stage{flags}")
    return commands


class _File:
    """A Dockerfile, read instruction by instruction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.walk = Walk(name)
        self.stage: Stage | None = None
        self._stages: dict[str, Stage] = {}
        self._global: dict[str, Value] = {}  # of ARG before the first FROM

    def read(self, instruction: Instruction) -> None:
        """Follow one instruction."""
        handler = {
            "ARG": self._arg,
            "FROM": self._from,
            "ENV": self._env,
            "RUN": self._run,
            "SHELL": self._shell,
            "ENTRYPOINT": self._entrypoint,
            "CMD": self._cmd,
        }.get(instruction.name)
        if handler is not None:
            handler(instruction)

    # --- variables ----------------------------------------------------------------------------------------

    def _lookup(self, name: str) -> Value | None:
        if self.stage is not None and name in self.stage.variables:
            return self.stage.variables[name]
        arguments = self._global if self.stage is None else self.stage.arguments
        found = arguments.get(name)
        if found:
            self._note(name, found[0].line)
        return found

    def _value(self, pieces: Value, escape: str) -> Value:
        try:
            return Substitution(self._lookup, lambda _name, _line: None, _OUTSIDE, escape=escape).value(
                pieces
            )
        except VariableError as error:
            where = f"{self.name}:{error.line}"
            raise UsageError(f"{where}: docker build refuses {str(error)!r}: no variable") from error

    def _arg(self, instruction: Instruction) -> None:
        scope = self._global if self.stage is None else self.stage.arguments
        for word in env_words(instruction.value, instruction.escape):
            name, equals, _ = word.text.partition("=")
            if equals:
                value = self._value(cut(word.pieces, len(name) + 1), instruction.escape)
                scope[name] = value or (Piece("", word.line),)
            elif self.stage is not None and name in self._global:
                scope[name] = self._global[name]

    def _note(self, name: str, line: int) -> None:
        note = f"{self.name}:{line}: ${name} is taken at its default there, which --build-arg may override"
        if note not in self.walk.notes:
            self.walk.notes.append(note)

    def _env(self, instruction: Instruction) -> None:
        if self.stage is None:
            return
        words = env_words(instruction.value, instruction.escape)
        before = {}  # all words of one ENV see the variables before it
        if words and "=" not in words[0].text:  # ENV NAME the rest of the line
            name = words[0].text
            rest = cut(instruction.value, instruction.text.index(name) + len(name))
            before[name] = self._value(_stripped(rest), instruction.escape)
        else:
            for word in words:
                name, equals, _ = word.text.partition("=")
                if equals:
                    before[name] = self._value(cut(word.pieces, len(name) + 1), instruction.escape)
        self.stage.variables |= before

    # --- stages -------------------------------------------------------------------------------------------

    def _from(self, instruction: Instruction) -> None:
        words = [word for word in _blank_split(instruction.value) if not word.text.startswith("--")]
        self.stage = None  # only what stands before the first FROM counts here
        image = Word(self._value(words[0].pieces, instruction.escape)).text if words else ""
        base = self._stages.get(image.lower())
        self.stage = Stage(base, image, instruction.line)
        if len(words) > 2 and words[1].text.lower() == "as":
            self._stages[words[2].text.lower()] = self.stage

    def _run(self, instruction: Instruction) -> None:
        """Note an installation of SGLang on top of the image."""
        if self.stage is not None:
            self.stage.container.note_installation([Word(instruction.value)])

    # --- what it starts -----------------------------------------------------------------------------------

    def _shell(self, instruction: Instruction) -> None:
        words = exec_form(instruction)
        if self.stage is not None and words:
            self.stage.shell = [word.text for word in words]

    def _words(self, instruction: Instruction) -> list[Word]:
        words = exec_form(instruction)
        if words is not None or self.stage is None:
            return words or []
        line = instruction.line
        return [*(Word((Piece(part, line),)) for part in self.stage.shell), Word(instruction.value)]

    def _entrypoint(self, instruction: Instruction) -> None:
        if self.stage is None:
            return
        self.stage.entrypoint = self._words(instruction)
        if not self.stage.replaces_command:
            self.stage.command = []  # that of the base is dropped
        if exec_form(instruction) is None:
            self.stage.command = []

    def _cmd(self, instruction: Instruction) -> None:
        if self.stage is not None:
            self.stage.command = self._words(instruction)
            self.stage.replaces_command = True


def exec_form(instruction: Instruction) -> list[Word] | None:
    """Return the words of a JSON list, None for the shell form."""
    text = instruction.text
    if not text.lstrip().startswith("["):
        return None
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        return None
    places = [match.start() for match in _STRING.finditer(text)]
    pairs = zip(parts, places, strict=True)
    return [Word((Piece(part, instruction.line_at(place)),)) for part, place in pairs]


def _blank_split(value: Value) -> Iterator[Word]:
    for piece in value:
        for part in piece.text.split():
            yield Word((piece._replace(text=part),))


def _stripped(value: Value) -> Value:
    text = "".join(piece.text for piece in value)
    left = cut(value, len(text) - len(text.lstrip()))
    last = max((number for number, piece in enumerate(left) if piece.text.strip()), default=-1)
    kept = list(left[: last + 1])
    if kept:
        kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
    return tuple(kept)
