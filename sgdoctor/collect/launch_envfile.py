"""Files of variables (``.env``, ``env_file:``, ``EnvironmentFile=``): names, values and their lines."""

from __future__ import annotations

import re
from pathlib import Path

from sgdoctor.collect.launch_substitute import Lookup, Substitution, VariableError
from sgdoctor.collect.launch_words import Piece, Value, unknown

_LONGEST = 2**20  # bytes
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*[=:]\s*(.*)")
_COMMENT = re.compile(r"\s+#.*$")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read(path: Path) -> str:
    """Return the text of such a file. Raises OSError or ValueError for what is none."""
    with path.open("rb") as stream:
        data = stream.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise ValueError("larger than 1 MiB")
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def compose_file(text: str, outside: Lookup) -> dict[str, Value]:
    """Return the variables of a file as docker compose reads it; a value that spans lines is not known.

    Variables in values are those above in the file, or ``outside``.
    """
    found: dict[str, Value] = {}
    substitution = Substitution(
        lambda name: found.get(name) or outside(name), lambda _name, _line: None, "the environment may set it"
    )
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE.match(line)
        if match is not None:
            name, raw = match.groups()
            try:
                found[name] = _compose_value(raw.strip(), number, substitution)
            except VariableError:
                found[name] = (unknown(f"${{{name}}}", number, "not understood in its file"),)
    return found


def _compose_value(raw: str, line: int, substitution: Substitution) -> Value:
    quote = raw[:1]
    if quote not in ("'", '"'):
        text = "" if raw.startswith("#") else _COMMENT.sub("", raw)
        return substitution.value((Piece(text, line),))
    end = _end_of_quote(raw)
    if end is None:
        return (unknown(quote, line, "a value of several lines"),)
    inner = raw[1:end]
    if quote == "'":
        return (Piece(inner, line),)
    inner = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(0)), inner)
    return substitution.value((Piece(inner.replace('\\"', '"').replace("\\\\", "\\"), line),))


def _end_of_quote(raw: str) -> int | None:
    place = 1
    while place < len(raw):
        if raw[place] == "\\" and raw[0] == '"':
            place += 1
        elif raw[place] == raw[0]:
            return place
        place += 1
    return None


def systemd_file(text: str) -> dict[str, Value]:
    """Return the variables of an ``EnvironmentFile=``: no expansion, quotes taken off, lines that go on."""
    found: dict[str, Value] = {}
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        first, line = number + 1, lines[number]
        number += 1
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        name, equals, value = line.partition("=")
        while value.endswith("\\") and number < len(lines):
            value = value[:-1] + lines[number]
            number += 1
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            found[name.strip()] = (Piece(_unquoted(value.strip()), first),)
    return found


def _unquoted(text: str) -> str:
    """Return ``text`` without quotes and backslashes."""
    found: list[str] = []
    quote = ""
    place = 0
    while place < len(text):
        letter = text[place]
        if letter == "\\" and quote != "'" and place + 1 < len(text):
            place += 1
            keeps = quote == '"' and text[place] not in '"\\`$'
            found.append("\\" + text[place] if keeps else text[place])
        elif letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        else:
            found.append(letter)
        place += 1
    return "".join(found)
