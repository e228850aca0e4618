"""The words of ``ExecStart=``: systemd's quotes, escapes, specifiers (``%n``) and variables (``$NAME``)."""

from __future__ import annotations

import re
from typing import NamedTuple

from sgdoctor.collect.launch_split import Builder, SplitError, atoms
from sgdoctor.collect.launch_words import Piece, Value, Word, plain, unknown

_BLANKS = " \t\n\r"
_ESCAPES = dict(zip("abfnrtvs\\\"'", "\a\b\f\n\r\t\v \\\"'", strict=True))
_CODES = {"x": 2, "u": 4, "U": 8}
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that systemd itself sets, for all services or for some.
_MANAGERS = re.compile(
    r"PATH|LANG|LC_[A-Z]+|USER|LOGNAME|HOME|SHELL|TERM|INVOCATION_ID|JOURNAL_STREAM|MAINPID|MANAGERPID|"
    r"NOTIFY_SOCKET|LISTEN_[A-Z]+|WATCHDOG_[A-Z]+|XDG_[A-Z_]+|SYSTEMD_[A-Z_]+|[A-Z]+_DIRECTORY|DBUS_[A-Z_]+"
)


class Command(NamedTuple):
    """The words of one command; ``literal``: no variables in it are replaced."""

    words: list[Word]
    literal: bool = False


class Variables(NamedTuple):
    """The environment of a service; ``doubt`` says why it may have others, and others' values."""

    values: dict[str, Value | None]
    doubt: str = ""

    @property
    def complete(self) -> bool:
        """Whether there are no others, save what systemd sets itself."""
        return not self.doubt

    def get(self, name: str, line: int) -> Value:
        """Return the value of a variable, empty when it is not set."""
        found = self.values.get(name)
        if found is not None:
            return tuple(piece._replace(line=line) for piece in found)
        if name not in self.values and (self.doubt or _MANAGERS.fullmatch(name)):
            return (unknown(f"${{{name}}}", line, self.doubt or f"systemd sets {name}"),)
        return ()


def unit_words(value: Value, *, commands: bool = True) -> list[Command]:
    """Split a setting into words, and those of ``ExecStart=`` into its commands, which ``;`` separates.

    extract-word.c and config_parse_exec of systemd 252. Raises SplitError for a quote that is not closed.
    """
    found: list[Command] = []
    for words in _separated(value) if commands else [_split(value)]:
        if not words or not commands:
            found.append(Command(words))
            continue
        path = words[0].text
        prefix = re.match(r"[-@:+!|]*", path)
        signs = prefix.group() if prefix is not None else ""
        first = Word((Piece(path[len(signs) :], words[0].line),))
        rest = words[2:] if "@" in signs else words[1:]  # @: the next word is the name it is told
        found.append(Command([first, *rest], ":" in signs))
    return found


def _separated(value: Value) -> list[list[Word]]:
    commands: list[list[Word]] = [[]]
    for word in _split(value):
        if word.text == ";" and word.known:
            commands.append([])
        else:
            commands[-1].append(Word((Piece(";", word.line),)) if word.text == "\\;" else word)
    return commands


def _split(value: Value) -> list[Word]:
    letters = list(atoms(value))
    built = Builder()
    quote, opened, at = "", 0, 0
    while at < len(letters):
        atom = letters[at]
        letter = atom.text
        at += 1
        if letter == "\\" and at < len(letters):
            text, at = _escaped([each.text for each in letters[at : at + 9]], at)
            built.add(atom._replace(text=text))
        elif letter in _BLANKS and not quote:
            built.end()
        elif letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
            opened = atom.line
            built.begin(atom.line)
        else:
            built.add(atom)
    if quote:
        raise SplitError(opened)
    built.end()
    return built.words


def _escaped(ahead: list[str], at: int) -> tuple[str, int]:
    """Return what a backslash and the characters ``ahead`` stand for, and where the text goes on."""
    letter = ahead[0]
    if letter in _ESCAPES:
        return _ESCAPES[letter], at + 1
    if letter in _CODES:
        digits = "".join(ahead[1 : 1 + _CODES[letter]])
        if re.fullmatch(r"[0-9a-fA-F]{%d}" % _CODES[letter], digits) and 0 < int(digits, 16) < 0xD800:  # noqa: UP031
            return chr(int(digits, 16)), at + 1 + _CODES[letter]
    octal = "".join(ahead[:3])
    if re.fullmatch(r"[0-3][0-7]{2}", octal) and octal != "000":
        return chr(int(octal, 8)), at + 3
    return "\\" + letter, at + 1  # kept as it is


def specified(word: Word, unit_name: str) -> Word:
    """Return a word with its specifiers replaced: ``%%`` and the unit's name; others are not known."""
    known = {"%": "%"}
    if unit_name.endswith(".service") and "@." not in unit_name:
        stem = unit_name.removesuffix(".service")
        prefix, at, instance = stem.partition("@")
        known |= {"n": unit_name, "N": stem, "p": prefix, "i": instance if at else ""}
    found: list[Piece] = []
    for piece in word.pieces:
        parts = re.split(r"%(.)", piece.text) if piece.known else [piece.text]
        for number, part in enumerate(parts):
            if not number % 2:
                found += [piece._replace(text=part)] if part else []
            elif part in known:
                found.append(piece._replace(text=known[part]))
            else:
                found.append(unknown(f"%{part}", piece.line, f"the specifier %{part}"))
    return Word(tuple(found) or tuple(piece._replace(text="") for piece in word.pieces[:1]))


def expanded(command: Command, variables: Variables) -> list[Word]:
    """Return the words with their variables replaced.

    ``${NAME}`` anywhere is replaced as it is, ``$NAME`` only where it is a whole word, split at its blanks;
    the program's own path is left alone (replace_env_argv in env-util.c of systemd 252).
    """
    if command.literal:
        return command.words
    found = command.words[:1]
    for word in command.words[1:]:
        text = word.text
        if text.startswith("$") and text[1:2] not in ("{", "$", "") and word.known:
            if _NAME.fullmatch(text[1:]):
                found += _split_value(variables.get(text[1:], word.line))
        else:
            found.append(Word(_replaced(word, variables)))
    return found


def _split_value(value: Value) -> list[Word]:
    if plain(value) is None:
        return [Word(tuple(piece._replace(splits=not piece.known) for piece in value))]
    try:
        return _split(value)
    except SplitError:
        return [Word(value)]


def _replaced(word: Word, variables: Variables) -> Value:
    found: list[Piece] = []
    for piece in word.pieces:
        start = 0
        for match in _VARIABLE.finditer(piece.text) if piece.known else ():
            found.append(piece._replace(text=piece.text[start : match.start()]))
            name = match.group(1)
            found += variables.get(name, piece.line) if name else (piece._replace(text="$"),)
            start = match.end()
        found.append(piece._replace(text=piece.text[start:]))
    kept = tuple(piece for piece in found if piece.text or not piece.known)
    return kept or (Piece("", word.line),)
