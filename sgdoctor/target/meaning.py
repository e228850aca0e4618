"""What one release makes of one flag as it is written; argparse itself decides."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from sgdoctor import redact
from sgdoctor.target.command import Written
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.flags import Parsed, Parser, Token, parser_for

State = Literal["plain", "prefix", "deprecated", "ignored", "ambiguous", "unknown", "refused", "stops"]
REFUSED: tuple[State, ...] = ("ambiguous", "unknown", "refused", "stops")


class Meaning(msgspec.Struct, frozen=True):
    """What a flag means to a release.

    ``option`` is the flag as the release has it, ``successor`` what it is deprecated for, ``candidates`` what
    an ambiguous one could be, ``said`` the release's own words about it.
    """

    state: State
    option: str | None = None
    dest: str | None = None
    successor: str | None = None
    candidates: tuple[str, ...] = ()
    said: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the server starts with it."""
        return self.state not in REFUSED

    @property
    def key(self) -> tuple[object, ...]:
        """What must be the same for two releases to treat the flag alike."""
        option = self.option if self.state == "prefix" else None
        return (self.state, option, self.successor if self.state == "deprecated" else None)


def of(written: Written, release: Release) -> Meaning:
    """Return what ``release`` makes of a flag, looked at alone."""
    return _meaning(written, _parser(release.version, written.option).parse(written.tokens))


def spelled(release: Release, *words: str) -> Meaning:
    """Return what ``release`` makes of ``--flag=value``, or of a flag and its values word by word."""
    tokens = tuple(Token(word, number) for number, word in enumerate(words))
    return of(Written(words[0].partition("=")[0], tokens, 0), release)


@functools.cache
def _parser(version: str, option: str) -> Parser:
    """Return a parser with the flags that ``option``, in full or as a prefix, could be."""
    release = catalogue.resolve(version)
    assert release is not None  # noqa: S101 (a release of the catalogue)
    return parser_for(
        flag
        for flag in release.flags
        if any(name.startswith(option) for name in (*flag.options, *flag.negations))
    )


def _meaning(written: Written, parsed: Parsed) -> Meaning:
    if parsed.ambiguous:
        return Meaning("ambiguous", candidates=parsed.ambiguous[0][1])
    if any(index == written.tokens[0].at for index, _ in parsed.unrecognized):
        return Meaning("unknown")
    retired = parsed.deprecated[-1] if parsed.deprecated else None
    if retired is not None and retired.flag.error:
        return Meaning("stops", retired.option, retired.flag.dest, said=retired.flag.error)
    if parsed.error is not None:
        return Meaning("refused", said=redact.text(parsed.error))
    if retired is not None and _says_so(retired.flag):
        state: State = "ignored" if retired.flag.action == "deprecated" else "deprecated"
        flag = retired.flag
        return Meaning(state, retired.option, flag.dest, flag.new_flag, said=flag.note)
    for dest, given in parsed.given.items():
        return Meaning("plain" if given.option == written.option else "prefix", given.option, dest)
    return Meaning("plain")  # --help


def _says_so(flag: Flag) -> bool:
    """Whether the release calls the flag deprecated; a help text may only mention the word."""
    return flag.action != "store" or (flag.note or "").lstrip("[( ").lower().startswith("deprecated")
