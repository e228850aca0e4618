"""Carry a change of flags out in a script's text, one flag after another, and prove each by reading it again.

A change is right when the launch reader finds, in the changed text, every server's command as it was but for
the flag that was meant. What the reader cannot prove is left as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from sgdoctor.collect import launch_kinds
from sgdoctor.collect.launch import LaunchCommand, LaunchWord
from sgdoctor.errors import UsageError
from sgdoctor.fix import flags_add, flags_edit, flags_wish
from sgdoctor.fix.flags_others import other_use
from sgdoctor.fix.flags_places import Place, places
from sgdoctor.fix.flags_wish import Wish
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


class Task(msgspec.Struct, frozen=True):
    """A wish, and the commands in which it is to come true: their indexes, with the release of each."""

    wish: Wish
    wanted: Mapping[int, Release]


class _Step(msgspec.Struct, frozen=True):
    """One step of a task: a use of the flag in the command ``at``, null where it is missing there."""

    task: Task
    script: Script
    before: tuple[LaunchCommand, ...]
    at: int
    use: Use | None

    @property
    def command(self) -> LaunchCommand:
        return self.before[self.at]


def uses(command: LaunchCommand, wish: Wish, release: Release) -> list[Use]:
    """Return the uses of the flag of ``wish`` in ``command``; those of a --config file are none."""
    found = []
    for each in flags_wish.written(command, release):
        first = each.tokens[0].at
        if first < len(command.words) and wish.means(each, release):
            found.append(Use(each, first, len(each.tokens), command.words[first].line))
    return found


def open_uses(command: LaunchCommand, wish: Wish, release: Release) -> list[Use | None]:
    """Return the uses that are not yet as ``wish`` wants them; null stands for a flag to be added."""
    found = uses(command, wish, release)
    if wish.kind == "rename":
        return [use for use in found if use.written.option == wish.option]
    if wish.kind == "set":
        return [use for use in found if (use.written.value or "") != wish.to] if found else [None]
    return [*found]


def obstacle(command: LaunchCommand, use: Use | None, wish: Wish, release: Release) -> str | None:
    """Return why a flag cannot be changed whatever the file looks like, null when nothing is in the way."""
    if use is None:
        return flags_add.obstacle(command, wish.option, release)
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


def changed_words(command: LaunchCommand, use: Use | None, wish: Wish) -> Words:
    """Return the words of ``command`` as ``wish`` wants them."""
    words = [*_words(command)]
    if use is None:
        return (*words, *((text, True, text, False) for text in wish.written.split(" ")))
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


def carry_out(script: Script, task: Task) -> tuple[Script, str | None]:
    """Return the script with all uses of the flag changed in the commands of the task, or the flag added.

    Where one of them cannot be, nothing is changed and the reason is the second value.
    """
    changed = script
    while True:
        before = tuple(changed.commands())
        steps = [
            _Step(task, changed, before, at, use)
            for at, release in task.wanted.items()
            for use in open_uses(before[at], task.wish, release)
        ]
        if not steps:
            return changed, None
        step = steps[0]
        reason = obstacle(step.command, step.use, task.wish, task.wanted[step.at])
        if reason is None:
            changed, reason = _changed(step, step.use) if step.use is not None else _added(step)
        if reason is not None:
            return script, reason


def _changed(step: _Step, use: Use) -> tuple[Script, str | None]:
    """Change one use; return the script and, where that could not be done, why."""
    source = step.script.text.encode()
    reason = "its words are not written there one by one"
    for place in places(source):
        if place.line != use.line or place.text.partition("=")[0] != use.written.option:
            continue
        text = _edited(source, place, use, step.task.wish)
        if text is None:
            reason = "it is not written there, or its value is not or comes from a variable"
            continue
        candidate = msgspec.structs.replace(step.script, text=text.decode())
        if not _as_wanted(step, candidate):
            reason = "changing the word there would change more than this, or nothing"
            continue
        other = other_use(source, place, lambda text: _reaches(step, text))
        if other is None:
            return candidate, None
        reason = f"{other[0]} is used on line {other[1]}, too, perhaps not for the server"
    return step.script, reason


def _added(step: _Step) -> tuple[Script, str | None]:
    """Add the flag at the end of the command; return the script and, where that could not be done, why."""
    source = step.script.text.encode()
    for text in flags_add.with_flag(source, step.command, step.task.wish.written):
        candidate = msgspec.structs.replace(step.script, text=text.decode())
        if _as_wanted(step, candidate):
            return candidate, None
    return step.script, "the end of this server's command alone is not written there"


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


def _as_wanted(step: _Step, candidate: Script) -> bool:
    """Whether the step's command has become what it should, and every other stayed or became that, too."""
    wish, wanted = step.task.wish, step.task.wanted
    try:
        after = candidate.commands()
    except UsageError:
        return False
    if [*map(_around, after)] != [*map(_around, step.before)]:
        return False
    for number, (old, new) in enumerate(zip(step.before, after, strict=True)):
        right = [changed_words(old, step.use, wish)] if number == step.at else [_words(old)]
        if number != step.at and number in wanted:
            right += [changed_words(old, each, wish) for each in open_uses(old, wish, wanted[number])]
        if _words(new) not in right:
            return False
    return True


def _reaches(step: _Step, text: bytes) -> bool:
    """Whether the servers of a changed text get other words, or none can be read from it."""
    try:
        after = msgspec.structs.replace(step.script, text=text.decode()).commands()
    except UsageError:
        return True
    return [*map(_words, after)] != [*map(_words, step.before)]


def _words(command: LaunchCommand) -> Words:
    return tuple(_read(word) for word in command.words)


def _read(word: LaunchWord) -> tuple[str, bool, str, bool]:
    return (word.text, word.known, word.prefix, word.many)


def _around(command: LaunchCommand) -> tuple[object, ...]:
    """Return what a change of flags must leave alone: the program, its environment, its container."""
    container = command.container
    variables = {name: (one.value, one.known) for name, one in command.variables.items()}
    return (command.entry, variables, command.closed, container.image if container is not None else None)
