"""What a launch command asks of the server: its words as the release's own parser reads them."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.version import Version

from sgdoctor import redact
from sgdoctor.collect import installed_release
from sgdoctor.collect.launch import LaunchCommand, safe_text
from sgdoctor.facts import Facts
from sgdoctor.upstream import any_release, before_argparse, catalogue
from sgdoctor.upstream.before_argparse import Refused, config_arguments, config_index
from sgdoctor.upstream.flags import Parsed, Parser, Retired, Token, parser_for
from sgdoctor.vocabulary import FactTypeError

if TYPE_CHECKING:
    from sgdoctor.upstream.catalogue import Release

NO_VERSION = "the SGLang version is not known"
_LONGEST = 2**20  # bytes of a configuration file
_USUAL = ("--tp", "--dp")  # short for --tp-size, --dp-size; SGLang's own documentation writes them so
_LAUNCH_FACTS = (
    "launch.unrecognized",
    "launch.ambiguous",
    "launch.abbreviated",
    "launch.deprecated",
    "launch.invalid",
)


class _Reading(msgspec.Struct):
    """A command on its way through SGLang's start: the words so far and the place of each.

    ``doubt`` says why flags that were not seen may still be there; ``refusal`` is what SGLang ends with
    before argparse.
    """

    command: LaunchCommand
    release: Any
    words: list[Token] = []
    places: list[str] = []
    doubt: str | None = None
    refusal: str | None = None
    notes: list[str] = []


def _read(path: Path) -> bytes:
    """Return the bytes of a configuration file; raises OSError for what is none."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    with path.open("rb") as stream:
        data = stream.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def interpret(facts: Facts, command: LaunchCommand, read: Callable[[Path], bytes] = _read) -> None:
    """Set asked.* and the launch.* facts that depend on the release; call it when all sources were read.

    Without a known ``sglang.version`` only flags that mean the same in all releases are read, and whether
    the release accepts the command stays unknown. ``read`` gives the bytes of a ``--config`` file.
    """
    version = facts.value("sglang.version")
    release = installed_release.in_use(facts)
    reading = _Reading(command, release or catalogue.resolve(catalogue.releases()[-1]))
    for word in command.words:
        token = Token(word.text, len(reading.places), known=word.known, prefix=word.prefix)
        reading.words.append(token)
        reading.places.append(command.place(word.line))
    _before_argparse(reading, read, language_model=facts.known("model.architecture"))
    parsed = _parser(reading.release).parse(reading.words)
    if parsed.unexpanded:
        index = parsed.unexpanded[0]
        hidden = command.words[index]
        reading.doubt = f"{reading.places[index]}: {hidden.text} could be any flag ({hidden.reason})"
    touched = _asked(facts, reading, parsed, known_release=release is not None)
    _unasked(facts, reading, touched)
    if release is None:
        why = NO_VERSION if not version else f"SGLang {version} is not in the catalogue"
        for name in _LAUNCH_FACTS:
            facts.set_unknown(name, why, ["sglang.version"])
    else:
        _judged(facts, reading, parsed)
    for note in reading.notes:
        if note not in facts.notes:
            facts.notes.append(note)
    if facts.known("asked.model_path") and facts.value("asked.model_path") is not None:
        facts.derive("model.path", facts.value("asked.model_path"), ["asked.model_path"])


@functools.cache
def _parser(release: Release) -> Parser:
    return parser_for(release.flags)


# --- before argparse ----------------------------------------------------------------------------------------


def _before_argparse(reading: _Reading, read: Callable[[Path], bytes], *, language_model: bool) -> None:
    """Do what ``sglang serve`` and ``--config`` do to the words."""
    release = Version(reading.release.version)
    try:
        if reading.command.entry == "serve":
            reading.words, kind = before_argparse.serve_arguments(reading.words, release)
            kind = "llm" if language_model and kind == "auto" else kind
            if (model := before_argparse.other_server(reading.words, kind)) is not None:
                kind = "diffusion" if kind == "auto" else kind
                reading.words = model
                reading.doubt = f"{reading.command.place()}: starts a server of type {kind}"
                reading.notes.append(f"{reading.doubt}, which is not looked at")
                return
        at = config_index(reading.words)
        if at is None:
            _note_ignored_config(reading)
            return
        file = reading.words[at + 1]
        if not file.known:
            reading.words[at : at + 2] = [file]  # in the place of a flag: it could be anything
            return
        settings, lines = _settings(reading, str(file), read)
        del reading.words[at : at + 2]
        if settings is None:
            return
        added: list[Token] = []
        for key, words in config_arguments(settings, reading.release.flags, release):
            for word in words:
                added.append(Token(word, len(reading.places)))
                reading.places.append(f"{file}:{lines.get(key, 1)}")
        reading.words[:0] = _redacted_values(added)
    except Refused as refusal:
        reading.refusal = str(refusal).rstrip(".!")
        if reading.command.entry == "serve":
            reading.words = before_argparse.for_a_model_server(reading.words, release)


def _note_ignored_config(reading: _Reading) -> None:
    for word in reading.words:
        if word.startswith("--config=") and word.known:
            place = reading.places[word.at]
            reading.notes.append(f"{place}: SGLang ignores {word}; it reads a file only for --config FILE")


def _redacted_values(words: list[Token]) -> list[Token]:
    """Replace secrets that a configuration file gives."""
    kept: list[Token] = []
    for word in words:
        before = kept[-1] if kept else None
        name = "" if before is None else before.removeprefix("--").replace("-", "_")
        text = redact.REDACTED if name in redact.SECRET_DESTINATIONS else safe_text(word)
        kept.append(Token(text, word.at))
    return kept


def _settings(
    reading: _Reading, file: str, read: Callable[[Path], bytes]
) -> tuple[dict[str, Any] | None, dict[str, int]]:
    """Return what the configuration file sets and the line of each key, or None with the doubt noted."""
    import yaml

    suffix = PurePosixPath(file).suffix
    if suffix.lower() not in (".yaml", ".yml"):
        raise Refused(f"Config file must be YAML format, got: {suffix}")
    path = Path(reading.command.host_path(file)).expanduser()
    if not path.is_absolute() and reading.command.folder is not None:
        path = reading.command.folder / path
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = read(path)
        root = yaml.compose(data, Loader=loader)
        settings = yaml.load(data, Loader=loader)  # noqa: S506 (a safe loader)
    except OSError as error:
        reading.doubt = f"the configuration file {file} could not be read ({error.strerror or error})"
        reading.notes.append(f"{reading.command.place()}: {reading.doubt}; its flags are not known")
        return None, {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"{file}: {' '.join(str(error).split())}") from error
    if settings is None:
        return {}, {}
    if not isinstance(settings, dict) or not isinstance(root, yaml.MappingNode):
        raise Refused("Config file must contain a dictionary at root level")
    lines = {str(key.value): key.start_mark.line + 1 for key, _ in root.value}
    return settings, lines


# --- asked.* ------------------------------------------------------------------------------------------------


def _asked(facts: Facts, reading: _Reading, parsed: Parsed, *, known_release: bool) -> set[str]:
    """Set asked.* for what is written; return the destinations about which something was said."""
    touched: set[str] = set()
    written = {flag: short for short, flag in parsed.abbreviated}
    for dest, given in parsed.given.items():
        short = written.get(given.option)
        certain = known_release or (
            any_release.same_everywhere(given.option, dest)
            and (short is None or any_release.reachable(short) == {dest})
        )
        if not certain:
            _doubtful(facts, {dest, *any_release.reachable(short or given.option)}, NO_VERSION, touched)
        elif given.known:
            _set(facts, dest, given.value, reading, given.index)
        else:
            facts.set_unknown(f"asked.{dest}", _unexpanded(reading, given.index))
        touched.add(dest)
    for retired in parsed.deprecated:
        _retired(facts, reading, retired, touched, known_release=known_release)
    for dest, index in parsed.spoilt.items():
        where = reading.places[index] if index >= 0 else reading.command.place()
        facts.set_unknown(f"asked.{dest}", f"{where}: SGLang's parser refuses the value")
        touched.add(dest)
    for index, word in parsed.unrecognized:
        _unrecognized(facts, reading, index, word, touched)
    for short, options in parsed.ambiguous:
        dests = {flag.dest for option in options if (flag := reading.release.option(option)) is not None}
        if not known_release:
            dests |= any_release.reachable(short)
        why = f"{short} is ambiguous" if known_release else NO_VERSION
        _doubtful(facts, dests | ({_name(short)} & _askable(facts)), why, touched)
    return touched


def _set(facts: Facts, dest: str, value: Any, reading: _Reading, index: int) -> None:
    name = f"asked.{dest}"
    try:
        facts.set(name, _without_secrets(value), source=reading.command.source, place=reading.places[index])
    except FactTypeError as error:
        facts.set_unknown(name, str(error))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return redact.text(value)
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    return value


def _unexpanded(reading: _Reading, index: int) -> str:
    """Say which word could not be expanded; the flag's own word has ``index``, its value follows."""
    for word in reading.command.words[index : index + 2]:
        if not word.known:
            return f"{reading.command.place(word.line)}: {word.text} could not be expanded ({word.reason})"
    return f"{reading.places[index]}: could not be expanded"


def _retired(
    facts: Facts, reading: _Reading, retired: Retired, touched: set[str], *, known_release: bool
) -> None:
    """Set asked.* for a deprecated flag under its own name as well: it was written, whatever it does."""
    name = _name(retired.option)
    if retired.flag.action == "store" or name in touched or name not in _askable(facts):
        return
    touched.add(name)
    if not known_release:
        facts.set_unknown(f"asked.{name}", NO_VERSION)
        return
    switch = retired.flag.action in ("deprecated", "deprecated_true", "deprecated_const")
    if retired.known:
        _set(facts, name, True if switch else retired.value, reading, retired.index)


def _unrecognized(facts: Facts, reading: _Reading, index: int, word: str, touched: set[str]) -> None:
    """Set asked.* for a flag that another release has: it was still asked for."""
    option = word.partition("=")[0]
    if not option.startswith("--"):
        return
    for version in reversed(catalogue.releases()):
        other = catalogue.resolve(version)
        flag = other.option(option) if other is not None else None
        if flag is None:
            continue
        touched |= {flag.dest, _name(option)}
        if flag.takes_value:
            facts.set_unknown(f"asked.{flag.dest}", f"{reading.places[index]}: this release has no {option}")
        elif _name(option) in _askable(facts):
            _set(facts, _name(option), True, reading, index)
        return


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _askable(facts: Facts) -> set[str]:
    return {name.removeprefix("asked.") for name in facts.vocabulary.specs if name.startswith("asked.")}


def _doubtful(facts: Facts, dests: Iterable[str], why: str, touched: set[str]) -> None:
    for dest in dests:
        if dest not in touched:
            facts.set_unknown(f"asked.{dest}", why)
            touched.add(dest)


def _unasked(facts: Facts, reading: _Reading, touched: set[str]) -> None:
    """Set the flags of the vocabulary that are not written to null, unless something could hide them."""
    doubt = reading.doubt
    if doubt is None and reading.refusal is not None:
        doubt = f"SGLang ends before it reads its flags: {reading.refusal}"
    facts.set(
        "launch.flags_known", doubt is None, source=reading.command.source, place=reading.command.place()
    )
    for dest in sorted(_askable(facts) - touched):
        if doubt is not None:
            facts.set_unknown(f"asked.{dest}", doubt)
        else:
            facts.set(f"asked.{dest}", None, source=reading.command.source, place=reading.command.place())


# --- what the release says of the command -------------------------------------------------------------------


def _judged(facts: Facts, reading: _Reading, parsed: Parsed) -> None:
    """Set launch.unrecognized, .ambiguous, .abbreviated, .deprecated and .invalid."""
    release = reading.release
    refused = list(dict.fromkeys(_shown(word) for _, word in parsed.unrecognized))
    if refused and not release.exact:
        reason = f"{release.asked} is not in the catalogue, and {release.version} does not know {refused[0]}"
        facts.set_unknown("launch.unrecognized", reason)
    else:
        place = reading.places[parsed.unrecognized[0][0]] if refused else None
        _say(facts, reading, "launch.unrecognized", refused, place)
    ambiguous = [written for written, _ in parsed.ambiguous]
    place = _place_of(reading, ambiguous)
    _say(facts, reading, "launch.ambiguous", [redact.text(written) for written in ambiguous], place)
    abbreviated = [
        {"written": str(written), "flag": flag}
        for written, flag in parsed.abbreviated
        if written not in _USUAL
    ]
    place = _place_of(reading, [one["written"] for one in abbreviated])
    _say(facts, reading, "launch.abbreviated", abbreviated, place)
    retired = [one for one in parsed.deprecated if one.flag.action != "store" or _says_so(one)]
    records = [{"flag": one.option, "effect": one.effect} for one in retired]
    _say(facts, reading, "launch.deprecated", records, reading.places[retired[0].index] if retired else None)
    other = reading.doubt is not None and not reading.words  # another server, which needs no model
    errors = [reading.refusal] if reading.refusal else [] if other else parsed.errors
    errors = [redact.text(error) for error in errors if not error.startswith("ambiguous option")]
    _say(facts, reading, "launch.invalid", errors[0] if errors else None)


def _shown(word: str) -> str:
    """Return a word as a report shows it: blanks, and nothing at all, in quotes."""
    return redact.text(word) if word and word == word.strip() else repr(redact.text(word))


def _place_of(reading: _Reading, written: Sequence[str]) -> str | None:
    """Return where the first word stands that is one of the options ``written``."""
    found = (word for word in reading.words if word.partition("=")[0] in written)
    return next((reading.places[word.at] for word in found), None)


def _says_so(retired: Retired) -> bool:
    note = (retired.flag.note or "").lstrip("[( ").lower()
    return note.startswith("deprecated")


def _say(facts: Facts, reading: _Reading, name: str, found: Any, place: str | None = None) -> None:
    """Set what was found; that nothing was found only when no word could hide it."""
    if not found and reading.doubt is not None:
        facts.set_unknown(name, reading.doubt)
        return
    facts.set(name, found, source=reading.command.source, place=place or reading.command.place())
