"""The launch command flag by flag, as it was written."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from sgdoctor import redact
from sgdoctor.collect.launch import LaunchCommand, parse_command
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known
from sgdoctor.upstream.before_argparse import Refused, config_arguments, config_index, serve_arguments
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.flags import Token

_LONGEST = 2**20  # bytes of a configuration file
_NUMBER = re.compile(r"-\d+\Z|-\d*\.\d+\Z")  # what argparse takes for a negative number


class Written(msgspec.Struct, frozen=True):
    """A flag with its values as written: the words that SGLang's parser gets.

    ``option`` is the flag without ``=value``; ``position`` tells one use of it from another.
    """

    option: str
    tokens: tuple[Token, ...]
    position: int

    @property
    def text(self) -> str:
        """The words, as they are written, secrets redacted."""
        return redact.text(" ".join(map(str, self.tokens)))

    @property
    def values(self) -> tuple[str, ...]:
        """The values that are written; none where one of them is not known."""
        first, *rest = self.tokens
        if not all(token.known for token in self.tokens):
            return ()
        return (str(first).partition("=")[2], *map(str, rest)) if "=" in first else tuple(map(str, rest))

    @property
    def value(self) -> str | None:
        """The value that is written, None when there is none, or one that is not known."""
        return " ".join(self.values) or None


class Command(msgspec.Struct, frozen=True):
    """What a release gets: its flags, whether some may be hidden, and what it ends with before it parses."""

    written: tuple[Written, ...]
    complete: bool = True
    refusal: str | None = None


def rebuilt(facts: Facts) -> LaunchCommand | None:
    """Return the launch command that ``launch.command`` (of a snapshot) holds; None when it is not whole."""
    fact = facts.get("launch.command")
    if not isinstance(fact, Known) or not fact.value or facts.value("launch.complete") is not True:
        return None
    words = [str(word) for word in fact.value]
    entry = ["sglang", "serve"] if not words[0].startswith("-") else ["python3", "-m", "sglang.launch_server"]
    try:
        command = parse_command([*entry, *words])
    except UsageError:
        return None
    place = fact.provenance[0].place if fact.provenance else command.name
    name, _, line = place.rpartition(":")
    number = int(line) if name and line.isdecimal() else 0
    command.name, command.line = (name, number) if number else (place, 0)
    command.words = [msgspec.structs.replace(word, line=number) for word in command.words]
    command.variables = {}
    return command


def read(command: LaunchCommand, release: Release) -> Command:
    """Return the flags that ``release`` gets of the command, those of a ``--config`` file first."""
    tokens = [
        Token(word.text, number, known=word.known, prefix=word.prefix)
        for number, word in enumerate(command.words)
    ]
    version = Version(release.version)
    complete = True
    try:
        if command.entry == "serve":
            tokens, _ = serve_arguments(tokens, version)
        at = config_index(tokens)
        if at is not None:
            settings = _settings(command, tokens[at + 1])
            complete = settings is not None
            added = _words(settings, release, len(command.words)) if settings else []
            tokens = added + tokens[:at] + tokens[at + 2 :]
    except Refused as refusal:
        return Command(tuple(_written(tokens)), complete, str(refusal))
    return Command(tuple(_written(tokens)), complete and _understood(tokens))


def _settings(command: LaunchCommand, file: Token) -> dict[str, Any] | None:
    """Return what the configuration file sets, None when it cannot be read here."""
    import yaml

    if not file.known:
        return None
    path = Path(command.host_path(file)).expanduser()
    if not path.is_absolute() and command.folder is not None:
        path = command.folder / path
    try:
        if not path.is_file() or path.stat().st_size > _LONGEST:
            return None
        settings = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return None
    return settings if isinstance(settings, dict) else None


def _words(settings: dict[str, Any], release: Release, first: int) -> list[Token]:
    """Return the words that SGLang makes of a configuration file, secrets replaced."""
    made = config_arguments(settings, release.flags, Version(release.version))
    texts: list[str] = []
    for key, words in made:
        secret = key.replace("-", "_") in redact.SECRET_DESTINATIONS
        texts += (
            [words[0], *(redact.REDACTED if secret else redact.text(word) for word in words[1:])]
            if words
            else []
        )
    return [Token(text, first + number) for number, text in enumerate(texts)]


def _starts_flag(token: Token) -> bool:
    text = token if token.known else token.prefix
    return text.startswith("-") and text != "-" and not _NUMBER.match(text)


def _written(tokens: list[Token]) -> list[Written]:
    starts = [number for number, token in enumerate(tokens) if _starts_flag(token)]
    found = []
    for start, end in itertools.pairwise([*starts, len(tokens)]):
        first = tokens[start]
        if first == "--" or not (first.known or "=" in first.prefix):
            continue
        option = str(first if first.known else first.prefix).partition("=")[0]
        found.append(Written(option, tuple(tokens[start:end]), first.at))
    return found


def _understood(tokens: list[Token]) -> bool:
    """Whether no word that was not expanded could be a flag."""
    return all(token.known or "=" in token.prefix for token in tokens)
