"""Carry a change of flags out in a script's text, one word after another, and prove each by reading it again.

A change is right when the launch reader finds, in the changed text, every server's command as it was but for
the flag that was meant. What the reader cannot prove is left as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from sgdoctor.collect import launch_kinds
from sgdoctor.collect.launch import LaunchCommand, LaunchWord
from sgdoctor.errors import UsageError
from sgdoctor.fix import flags_edit
from sgdoctor.fix.flags_others import other_use
from sgdoctor.fix.flags_places import Place, places
from sgdoctor.fix.flags_wish import Wish
from sgdoctor.target import command as commands
from sgdoctor.target.command import Written
from sgdoctor.upstream.catalogue import Release

Words = tuple[tuple[str, bool, str, bool], ...]


class Use(msgspec.Struct, frozen=True):
    """One flag in one server's command: ``first`` is the index of its word, ``count`` how many it is."""

    written: Written
    first: int
    count: int
    line: int


class Script(msgspec.Struct, frozen=True):
    """A launch script: its text, its name and its folder, which relative paths in it start from."""

    text: str
    name: str
    folder: Path

    def commands(self) -> list[LaunchCommand]:
        """Return the servers that it starts; raises UsageError as `launch_kinds.parse` does."""
        return launch_kinds.parse(self.text, self.name, self.folder)


def uses(command: LaunchCommand, wish: Wish, release: Release) -> list[Use]:
    """Return the uses of the flag of ``wish`` in ``command``; those of a --config file are none."""
    found = []
    for each in commands.read(command, release).written:
        first = each.tokens[0].at
        if first < len(command.words) and wish.means(each, release):
            found.append(Use(each, first, len(each.tokens), command.words[first].line))
    return found


def obstacle(command: LaunchCommand, use: Use, wish: Wish, release: Release) -> str | None:
    """Return why a flag cannot be changed whatever the file looks like, null when nothing is in the way."""
    taken = command.words[use.first : use.first + use.count]
    if [token.at for token in use.written.tokens] != list(range(use.first, use.first + use.count)):
        return "its words do not stand one behind the other"
    unknown = next((word for word in taken if word.many), None)
    if unknown is not None:
        return f"{unknown.text} may be several words ({unknown.reason})"
    if not wish.takes(use.written, release):
        return f"{use.written.text} are not the words of this flag alone"
    if wish.kind == "set" and len(uses(command, wish, release)) > 1:
        return "it is given more than once"
    return None


def changed_words(command: LaunchCommand, use: Use, wish: Wish) -> Words:
    """Return the words of ``command`` as ``wish`` wants them."""
    words = [*_words(command)]
    first, end = use.first, use.first + use.count
    if wish.kind == "remove":
        words[first:end] = []
    elif wish.kind == "rename":
        text, known, prefix, many = words[first]
        old = use.written.option
        words[first] = (wish.to + text[len(old) :], known, wish.to + prefix[len(old) :], many)
    else:
        text = f"{use.written.option}={wish.to}" if use.count == 1 else wish.to
        words[end - 1] = (text, True, text, False)
    return tuple(words)


def carry_out(script: Script, wish: Wish, wanted: Mapping[int, Release]) -> tuple[Script, str | None]:
    """Return the script with all uses of the flag changed in the commands ``wanted``, by their index.

    Where one of them cannot be, nothing is changed and the reason is the second value.
    """
    changed = script
    while True:
        before = changed.commands()
        left = [(at, use) for at, release in wanted.items() for use in _open(before[at], wish, release)]
        if not left:
            return changed, None
        at, use = left[0]
        reason = obstacle(before[at], use, wish, wanted[at])
        if reason is None:
            changed, reason = _one(changed, before, at, use, wish, wanted)
        if reason is not None:
            return script, reason


def _open(command: LaunchCommand, wish: Wish, release: Release) -> list[Use]:
    """Return the uses that are not yet as ``wish`` wants them."""
    if wish.kind == "rename":
        return [use for use in uses(command, wish, release) if use.written.option == wish.option]
    if wish.kind == "set":
        return [use for use in uses(command, wish, release) if use.written.value != wish.to]
    return uses(command, wish, release)


def _one(
    script: Script,
    before: Sequence[LaunchCommand],
    at: int,
    use: Use,
    wish: Wish,
    wanted: Mapping[int, Release],
) -> tuple[Script, str | None]:
    """Change one use; return the script and, where that could not be done, why."""
    source = script.text.encode()
    reason = "its words are not written there one by one"
    for place in places(source):
        if place.line != use.line or place.text.partition("=")[0] != use.written.option:
            continue
        text = _edited(source, place, use, wish)
        if text is None:
            reason = "it is not written there, or its value is not or comes from a variable"
            continue
        candidate = msgspec.structs.replace(script, text=text.decode())
        if not _as_wanted(candidate, before, at, use, wish, wanted):
            reason = "changing the word there would change more than this, or nothing"
            continue
        other = other_use(source, place, lambda text: _reaches(script, before, text))
        if other is None:
            return candidate, None
        reason = f"{other[0]} is used on line {other[1]}, too, perhaps not for the server"
    return script, reason


def _edited(source: bytes, place: Place, use: Use, wish: Wish) -> bytes | None:
    """Return the text with one use changed, null where its words are not written one behind the other."""
    last = place.following(use.count - 1)
    if last is None:
        return None
    if wish.kind == "remove":
        return flags_edit.without(source, place.start, last.end) if place.literal(source) else None
    if wish.kind == "rename":
        return flags_edit.replaced(source, place.start, place.end, use.written.option, wish.to)
    value = use.written.value or ""
    return flags_edit.replaced(source, last.start, last.end, value, wish.to)


def _as_wanted(
    script: Script,
    before: Sequence[LaunchCommand],
    at: int,
    use: Use,
    wish: Wish,
    wanted: Mapping[int, Release],
) -> bool:
    """Whether the command ``at`` has become what it should, and every other stayed or became that, too."""
    try:
        after = script.commands()
    except UsageError:
        return False
    if len(after) != len(before) or [*map(_around, after)] != [*map(_around, before)]:
        return False
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        right = [changed_words(old, use, wish)] if number == at else [_words(old)]
        if number != at and number in wanted:
            right += [changed_words(old, each, wish) for each in _open(old, wish, wanted[number])]
        if _words(new) not in right:
            return False
    return True


def _reaches(script: Script, before: Sequence[LaunchCommand], text: bytes) -> bool:
    """Whether the servers of a changed text get other words, or none can be read from it."""
    try:
        after = msgspec.structs.replace(script, text=text.decode()).commands()
    except UsageError:
        return True
    return [*map(_words, after)] != [*map(_words, before)]


def _words(command: LaunchCommand) -> Words:
    return tuple(_read(word) for word in command.words)


def _read(word: LaunchWord) -> tuple[str, bool, str, bool]:
    return (word.text, word.known, word.prefix, word.many)


def _around(command: LaunchCommand) -> tuple[object, ...]:
    """Return what a change of flags must leave alone: the program, its environment, its container."""
    container = command.container
    variables = {name: (one.value, one.known) for name, one in command.variables.items()}
    return (command.entry, variables, command.closed, container.image if container is not None else None)


def each_use(
    found: Sequence[LaunchCommand], wish: Wish, wanted: Mapping[int, Release], tell: Callable[[Use], str]
) -> Iterator[tuple[int, str]]:
    """Iterate over the lines of the uses, each once, with what ``tell`` says of it."""
    seen = set()
    for at, release in wanted.items():
        for use in uses(found[at], wish, release):
            told = (use.line, tell(use))
            if told not in seen:
                seen.add(told)
                yield told
