"""What the gate says: on standard error alone, past Python's own streams, in whatever state it is."""

from __future__ import annotations

import os

STDERR = 2


def say(text: str) -> None:
    """Write one line."""
    write(f"sgdoctor gate: {_printable(' '.join(text.split()))}\n")


def write(text: str) -> None:
    """Write ``text``; a standard error that is closed, full or gone is no reason to stop."""
    rest = text.encode(errors="backslashreplace")
    try:
        while rest:
            rest = rest[os.write(STDERR, rest) :]
    except OSError:
        return


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
