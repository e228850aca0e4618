"""Where a flag is added to a server's command in a script: behind its last word, in the script's style."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.fix.flags_edit import PLAIN, continuation
from sgdoctor.fix.flags_places import Place, places
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.flags import Token, parser_for

_INDENTED = re.compile(rb"[ \t]*")
_BLANKS = b" \t"


def obstacle(command: LaunchCommand, option: str, release: Release) -> str | None:
    """Return why a flag cannot be added whatever the file looks like, null when nothing is in the way."""
    if release.option(option) is None:
        return f"SGLang {release.version} has no such flag"
    words = [
        Token(word.text, number, known=word.known, prefix=word.prefix)
        for number, word in enumerate(command.words)
    ]
    hidden = parser_for(release.flags).parse(words).unexpanded
    if hidden:
        word = command.words[hidden[0]]
        return f"{word.text} may hold it already ({word.reason})"
    return None


def with_flag(source: bytes, command: LaunchCommand, text: str) -> Iterator[bytes]:
    """Iterate over the scripts in which ``text`` stands behind what may be the last word of ``command``.

    Which of them is right, its reader must say: a place may be that of another program, or of a quoted text.
    """
    if not all(PLAIN.fullmatch(word) for word in text.split(" ")):
        return
    for place in _ends(source, command):
        yield source[: place.end] + _joint(source, place) + text.encode() + source[place.end :]


def _ends(source: bytes, command: LaunchCommand) -> Iterator[Place]:
    last = command.words[-1].text if command.words else ""
    seen = set()
    for place in places(source):
        if place.variable or not command.line <= place.line <= command.end_line:
            continue
        end = next((one for one in reversed(place.row) if last and one.text == last), place.row[-1])
        for one in (place.row[-1], end):
            if one.end not in seen:
                seen.add(one.end)
                yield one


def _joint(source: bytes, place: Place) -> bytes:
    """Return what parts a new word from the one at ``place``: a line of its own where the others have one."""
    first = source.rfind(b"\n", 0, place.start) + 1
    last = source.find(b"\n", place.end)
    after = source[place.end : last if last >= 0 else len(source)].strip(_BLANKS)
    joint = continuation(source[: max(first - 1, 0)])
    if not joint or after.startswith(b"#"):
        return b" "
    indent = _INDENTED.match(source, first)
    return b" " + joint + b"\n" + (indent.group() if indent is not None else b"")
