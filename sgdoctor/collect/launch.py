"""Reads launch scripts and launch commands: the words the server gets, its environment, its container."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgdoctor import redact
from sgdoctor.collect.launch_bash import Found, Walk, follow
from sgdoctor.collect.launch_containers import Container
from sgdoctor.collect.launch_network import Network
from sgdoctor.collect.launch_text import to_fill_in
from sgdoctor.collect.launch_words import Value, Word
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts

COMMAND_LINE = "command line"
_LONGEST = 4 * 2**20  # bytes of a launch script
_SERVER = re.compile(r"sglang\.launch_server|sglang/launch_server\.py|\bsglang\s+serve\b")
_OFFICIAL_IMAGE = re.compile(
    r"(?:^|/)lmsysorg/sglang:v([0-9]+\.[0-9]+\.[0-9]+(?:\.post[0-9]+|rc[0-9]+)?)(?:-|$)"
)
# Their abbreviations count too, save --ssl-keyfile, a flag of its own.
_SECRET_OPTIONS = tuple("--" + name.replace("_", "-") for name in sorted(redact.SECRET_DESTINATIONS))
_SECRET_KEY = re.compile(r"(?i)(api_?key|secret|password|credentials?|(hf|auth|access|bearer)_token)$")
_NOT_SECRET = ("--ssl-keyfile", "--")


class LaunchWord(msgspec.Struct, frozen=True):
    """One word of the server's command line, secrets redacted.

    A word that could not be expanded keeps its source text (``$TP``); it certainly begins with ``prefix``,
    and may stand for any number of words when ``many`` is set.
    """

    text: str
    line: int
    known: bool = True
    prefix: str = ""
    many: bool = False
    reason: str = ""


class Setting(msgspec.Struct, frozen=True):
    """A variable of the server's environment: its value (None: taken away), or why it is not known."""

    value: str | None
    line: int
    known: bool = True
    reason: str = ""


class LaunchCommand(msgspec.Struct):
    """One command that starts an SGLang server.

    ``name`` is the script's name as it was given, or "command line"; ``folder`` where its relative paths
    start. ``entry`` is ``launch_server`` or ``serve``; ``words`` are the arguments after it. ``variables``
    are those that redact.environment lets through; ``closed``: the server gets no others (``env -i``).
    ``network`` is how it is reached, None when the file fences nothing in. ``label`` tells the servers of one
    file apart; those of one ``group`` may be nodes of one server. ``settings`` are options that a
    configuration file gives, ``gpus`` how many GPUs the server gets and the line that says so.
    """

    name: str
    entry: str
    words: list[LaunchWord]
    variables: dict[str, Setting]
    line: int = 0
    end_line: int = 0
    closed: bool = False
    container: Container | None = None
    notes: list[str] = []
    folder: Path | None = None
    network: Network | None = None
    label: str = ""
    group: str = ""
    settings: dict[str, str] = {}
    gpus: tuple[int, int] | None = None

    @property
    def source(self) -> str:
        """The kind of source, for the provenance of facts."""
        return "command" if self.name == COMMAND_LINE else "launch"

    @property
    def complete(self) -> bool:
        """Whether every word could be expanded."""
        return all(word.known for word in self.words)

    def place(self, line: int | None = None) -> str:
        """Return what an operator can go to: ``launch.sh:12``, by default where the command begins."""
        return self.name if self.source == "command" else f"{self.name}:{line or self.line}"

    def written(self, *options: str) -> str | None:
        """Return the value written after one of ``options``, to tell commands apart, or None."""
        found = next((self.settings[option] for option in options if option in self.settings), None)
        for number, word in enumerate(self.words):
            name, equals, value = word.text.partition("=")
            if name in options and word.known:
                after = self.words[number + 1 : number + 2]
                found = value if equals else (after[0].text if after and after[0].known else found)
        return found

    @property
    def port(self) -> str | None:
        """What ``--port`` was given, for pairing; None when it is not written or not known."""
        return self.written("--port")

    @property
    def model(self) -> str | None:
        """The model path as written, for pairing; None when it is not written or not known."""
        first = self.words[0] if self.words else None
        if self.entry == "serve" and first is not None and first.known and not first.text.startswith("-"):
            return first.text
        return self.written("--model-path", "--model")

    def host_path(self, path: str) -> str:
        """Return where ``path`` of the command is on the host the command is given to."""
        inside = self.container.on_host(path) if self.container is not None else None
        return inside or path


def read_script(path: Path | str) -> list[LaunchCommand]:
    """Read a launch script: every SGLang command in it, in the order they run.

    Raises UsageError for what is no readable text file, holds no SGLang command, or has one that bash would
    not understand.
    """
    return parse_script(read_text(path), str(path), Path(path).parent)


def read_text(path: Path | str) -> str:
    """Return the text of a launch file. Raises UsageError for what is no readable text file."""
    file = Path(path)
    try:
        if file.is_dir():
            raise UsageError(f"{path} is a directory, not a launch script")
        with file.open("rb") as stream:
            data = stream.read(_LONGEST + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path!r}: {error}") from error
    if len(data) > _LONGEST:
        raise UsageError(f"{path} is larger than {_LONGEST // 2**20} MiB: not a launch script")
    if b"\0" in data:
        raise UsageError(f"{path} is a binary file, not a launch script")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error


def parse_script(
    text: str, name: str, folder: Path | None = None, given: Mapping[str, Value] | None = None
) -> list[LaunchCommand]:
    """Return the SGLang commands of the script ``text``, which starts with the variables ``given``.

    Raises UsageError as ``read_script`` does.
    """
    walk = Walk(name)
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
        walk.notes.append(
            f"{name} has Windows line ends: bash takes the carriage return for a part of a line's last word"
        )
    follow(text, walk, given)
    if not walk.found:
        raise UsageError(_nothing(text, walk))
    return commands_of(walk, folder)


def commands_of(walk: Walk, folder: Path | None) -> list[LaunchCommand]:
    """Return the SGLang commands that were found on the way through a launch file."""
    for problem in walk.problems:
        walk.notes.append(f"{walk.name}:{problem.line}: not understood as bash, skipped")
    return [_command(found, walk, folder) for found in walk.found]


def parse_command(argv: Sequence[str]) -> LaunchCommand:
    """Return the command given word by word: ``python3 -m sglang.launch_server ...``, or only its flags.

    Raises UsageError when it starts no SGLang server, or several.
    """
    words = list(argv)
    if words and words[0].startswith("-"):
        words = ["python3", "-m", "sglang.launch_server", *words]
    commands = parse_script(shlex.join(words), COMMAND_LINE)
    if len(commands) > 1:
        raise UsageError("the command starts several SGLang servers")
    return commands[0]


def _nothing(text: str, walk: Walk) -> str:
    """Say why a script has no SGLang command."""
    lines = [number for number, line in enumerate(text.split("\n"), 1) if _SERVER.search(line)]
    for problem in walk.problems:
        if any(problem.line <= line <= problem.end_line for line in lines):
            what = "not understood as bash, and an SGLang command stands there"
            return f"{walk.name}:{problem.line}: {what}{to_fill_in(text)}"
    if lines and walk.name != COMMAND_LINE:
        named = "SGLang is named there, but"
        return f"{walk.name}:{lines[0]}: {named} {walk.name} {NOTHING}{to_fill_in(text)}"
    what = "the command line" if walk.name == COMMAND_LINE else walk.name
    return f"{what} {NOTHING}"


NOTHING = (
    "holds no sglang.launch_server or sglang serve command (looked for "
    "`python -m sglang.launch_server` and `sglang serve`, also behind env, sudo, docker run, bash -c and "
    "the like)"
)


def _command(found: Found, walk: Walk, folder: Path | None) -> LaunchCommand:
    launch, container = found.launch, found.launch.container
    variables: dict[str, Setting] = {}
    for name, stored in launch.environment.values.items():
        setting = _setting(name, stored, found.line)
        if setting is not None:
            variables[name] = setting
    for word in launch.environment.files:
        walk.notes.append(f"{walk.name}:{word.line}: variables of --env-file {word.text} are not looked at")
    return LaunchCommand(
        name=walk.name,
        entry=launch.entry,
        words=_redacted(launch.arguments),
        variables=variables,
        line=found.line,
        end_line=found.end_line,
        closed=launch.environment.complete,
        container=container,
        notes=list(walk.notes),
        folder=folder,
        network=container.network if container is not None else None,
        gpus=(container.gpus, container.gpus_line) if container is not None and container.gpus else None,
    )


def _setting(name: str, stored: Value | None, line: int) -> Setting | None:
    """Return a variable that a doctor may know, its secrets replaced."""
    if not redact.environment({name: ""}):
        return None
    if stored is None:
        return Setting(None, line)
    word = Word(stored)
    if not word.known:
        return Setting(None, word.line or line, known=False, reason=word.reason)
    return Setting(redact.environment({name: word.text})[name], word.line or line)


def _redacted(words: Sequence[Word]) -> list[LaunchWord]:
    """Return ``words`` with the values of secret flags replaced, however those are abbreviated."""
    kept: list[LaunchWord] = []
    secret = False
    for word in words:
        text, prefix = safe_text(word.text), safe_text(word.prefix)
        if secret and word.known:
            text = prefix = redact.REDACTED
        option, equals, _ = word.text.partition("=")
        secret = option not in _NOT_SECRET and any(flag.startswith(option) for flag in _SECRET_OPTIONS)
        secret = (secret and option.startswith("--")) or redact.MISSPELT_KEY.match(option) is not None
        if secret and equals:
            text = prefix = f"{option}={redact.REDACTED}" if word.known else text
            secret = False
        kept.append(LaunchWord(text, word.line, word.known, prefix, word.many, word.reason))
    return kept


def safe_text(text: str) -> str:
    """Return ``text`` without secrets; JSON stays JSON, as SGLang's parser reads it."""
    if not text.startswith(("{", "[")):
        return redact.text(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return redact.text(text)
    safe = _safe_value(value)
    return text if safe == value else json.dumps(safe)


def _safe_value(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return redact.REDACTED if _SECRET_KEY.search(key) else redact.text(value)
    if isinstance(value, dict):
        return {name: _safe_value(item, name) for name, item in value.items()}
    return [_safe_value(item, key) for item in value] if isinstance(value, list) else value


def collect(facts: Facts, command: LaunchCommand) -> None:
    """Set what the command says by itself: launch.command, launch.complete, env.*, host.shm_mib.

    What its flags mean depends on the SGLang release: see ``launch_asked.interpret``.
    """
    for note in command.notes:
        if note not in facts.notes:
            facts.notes.append(note)
    source, place = command.source, command.place()
    facts.set("launch.command", [word.text for word in command.words], source=source, place=place)
    facts.set("launch.complete", command.complete, source=source, place=place)
    _collect_environment(facts, command)
    container = command.container
    if container is None:
        return
    if container.shm_mib is not None:
        where = command.place(container.shm_line)
        facts.set("host.shm_mib", container.shm_mib, source=source, place=where)
    release, line = container.release, container.release_line
    if release is None:
        official = _OFFICIAL_IMAGE.search(container.image or "")
        release, line = (official.group(1) if official else None), container.line
    if release:
        facts.set("sglang.version", release, source=source, place=command.place(line))


def collect_gpus(facts: Facts, command: LaunchCommand) -> None:
    """Set gpu.count to the GPUs that the launch file gives the server, where no machine was looked at."""
    if command.gpus is not None and not facts.known("gpu.count"):
        count, line = command.gpus
        facts.set("gpu.count", count, source=command.source, place=command.place(line))


def _collect_environment(facts: Facts, command: LaunchCommand) -> None:
    for name, setting in command.variables.items():
        if setting.known:
            where = command.place(setting.line)
            facts.set(f"env.{name}", setting.value, source=command.source, place=where)
        else:
            facts.set_unknown(f"env.{name}", f"{command.place(setting.line)}: {setting.reason}")
    rest = "the image may set it" if command.container is not None else "the environment may set it"
    for name in facts.vocabulary.specs:
        if not name.startswith("env.") or name.removeprefix("env.") in command.variables:
            continue
        if command.closed:
            facts.set(name, None, source=command.source, place=command.place())
        elif not facts.known(name):
            facts.set_unknown(name, f"{command.name} does not set it; {rest}")
