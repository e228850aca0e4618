"""Follows a command that no shell reads: its words are given, as in an exec form or ``ExecStart=``."""

from __future__ import annotations

from collections.abc import Sequence

from sgdoctor.collect.launch_bash import Found, Walk, follow_script
from sgdoctor.collect.launch_containers import Container
from sgdoctor.collect.launch_words import Word
from sgdoctor.collect.launch_wrappers import Environment, Script, unwrap
from sgdoctor.errors import UsageError


def begin(
    words: Sequence[Word], walk: Walk, environment: Environment, container: Container | None = None
) -> None:
    """Follow one command and leave what it starts in ``walk``. Raises UsageError where it cannot."""
    if not words:
        return
    if container is not None:
        container.note_installation(words)
    result = unwrap(words, environment, container)
    lines = [word.line for word in words if word.line] or [0]
    try:
        if isinstance(result, Script):
            follow_script(result, walk)
        elif result is not None:
            walk.found.append(Found(result, lines[0], max(lines)))
    except RecursionError:
        raise UsageError(f"{walk.name} is nested too deeply to be followed") from None
