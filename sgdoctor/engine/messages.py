"""Placeholders in a rule's texts: `{fact}`, `{group}` of the log pattern, `{name|words for want of it}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from sgdoctor.engine.model import Recommendation
from sgdoctor.facts import Facts, Known, Match

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)(?:\|([^{}]*))?\}")
_ALONE = re.compile(r"\{([A-Za-z_][\w.]*)(?:\|([^{}]*))?\}\Z")


class Placeholder(NamedTuple):
    """A name to fill in, and what stands for it when it is unknown or null (None: nothing was given)."""

    name: str
    fallback: str | None


def placeholders(text: str) -> Iterator[Placeholder]:
    """Iterate over the placeholders in a text; `{{` and `}}` are braces."""
    for found in _PLACEHOLDER.finditer(text):
        if found.group(1):
            yield Placeholder(found.group(1), found.group(2))


def show(value: Any) -> str:
    """Return a fact's value as it reads in a sentence."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={show(part)}" for key, part in value.items() if part is not None)
    if isinstance(value, list | tuple):
        return ", ".join(show(part) for part in value) or "none"
    return str(value)


def _record(form: str, record: dict[str, Any]) -> str:
    return form.format_map({key: show(part) for key, part in record.items()})


class Filler:
    """Fills placeholders from the facts and the groups of the rule's match, which go before facts."""

    def __init__(self, facts: Facts, match: Match | None = None) -> None:
        self.facts = facts
        self.groups = match.groups if match else {}

    def _lookup(self, name: str) -> Any:
        """Return the value of a placeholder, None when it is null, unknown or a group that took no part."""
        if name in self.groups:
            return self.groups[name]
        return self.facts.value(name)

    def _words(self, name: str, fallback: str | None) -> str:
        value = self._lookup(name)
        if value is None:
            if fallback is not None:
                return fallback
            known = name in self.groups or isinstance(self.facts.get(name), Known)
            return show(None) if known else f"unknown {name}"
        spec = None if name in self.groups else self.facts.vocabulary.spec(name)
        if spec is not None and spec.show is not None and isinstance(value, list):
            return ", ".join(_record(spec.show, part) for part in value) or "none"
        return show(value)

    def fill(self, text: str, quote: Callable[[str], str] = str) -> str:
        """Return ``text`` with its placeholders filled, each value passed through ``quote``."""

        def one(found: re.Match[str]) -> str:
            if found.group(1) is None:
                return found.group()[0]
            return quote(self._words(found.group(1), found.group(2)))

        return _PLACEHOLDER.sub(one, text)

    def recommendation(self, given: Recommendation) -> Recommendation:
        """Return the recommendation with its texts filled; values in commands are quoted for the shell.

        A value that is one placeholder keeps the fact's type.
        """
        changed: dict[str, Any] = {}
        for field in ("run", "remove", "set", "env", "install", "do", "note"):
            text = getattr(given, field)
            if text is not None:
                changed[field] = self.fill(text, shlex.quote if field in ("run", "install") else str)
        if isinstance(given.value, str):
            alone = _ALONE.match(given.value)
            value = self._lookup(alone.group(1)) if alone else None
            number = isinstance(value, int | float) and not isinstance(value, bool)
            changed["value"] = value if number else self.fill(given.value)
        return msgspec.structs.replace(given, **changed)
