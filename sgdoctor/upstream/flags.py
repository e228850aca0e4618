"""SGLang's command line as its own argparse parser reads it, for the flags of one release.

The parser is the standard library's: prefixes, ambiguity, ``--flag=value``, nargs, negative numbers and
choices are argparse's own doing. It never prints and never exits, goes on after an error, and remembers which
word of the command line gave which value. What argparse accepts differs a little between Python versions
(3.10 to 3.13); the one that runs sgdoctor is used, which need not be the one that runs SGLang.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sgdoctor.upstream import flag_types
from sgdoctor.upstream.flag import Flag

if TYPE_CHECKING:
    from typing_extensions import Self


class Token(str):
    """A word of the command line; ``known`` is false for one that could not be expanded.

    ``prefix`` is the text with which an unexpanded word certainly begins.
    """

    __slots__ = ("at", "known", "prefix")

    at: int
    known: bool
    prefix: str

    def __new__(cls, text: str, at: int, *, known: bool = True, prefix: str = "") -> Self:
        """Make the token for the word at the index ``at``."""
        token = super().__new__(cls, text)
        token.at, token.known, token.prefix = at, known, prefix
        return token


class Given(msgspec.Struct, frozen=True):
    """A value that the command line gives: ``known`` is false when it stands in a word not expanded.

    ``option`` is the option string as registered, ``index`` that of the word it stands in.
    """

    value: Any
    option: str
    index: int
    known: bool = True


# What a flag's own help says to use: "(Deprecated, use --x)", "[Deprecated] Alias for --x y."
_INSTEAD = re.compile(
    r"(?i:use|alias for) (--[\w-]+(?:[= ]\w+)?|[A-Z_]{4,}=1)(?= instead|\)|\.| for | and |$)"
)


class Retired(msgspec.Struct, frozen=True):
    """A deprecated flag that the command line gives, with its value."""

    flag: Flag
    option: str
    value: Any
    index: int
    known: bool = True

    @property
    def effect(self) -> str:
        """What the release makes of the flag, in words."""
        if self.flag.action == "deprecated":
            return f"stops the launch: {self.flag.error}" if self.flag.error else "ignored"
        if self.flag.new_flag:
            return f"read as {self.flag.new_flag}"
        instead = _INSTEAD.search(self.flag.note or "")
        return f"still works; use {instead[1]} instead" if instead else "still works"


class Parsed(msgspec.Struct):
    """What argparse makes of a command line.

    ``given`` has the last value of each destination, as argparse keeps it. ``spoilt`` are the destinations
    that were given a value argparse refuses. ``unrecognized`` are the words it refuses, with their index and
    without the values of refused flags; ``unexpanded`` the indexes of unexpanded words in the place of a
    flag. ``errors`` are argparse's own, in its order; it ends at the first.
    """

    given: dict[str, Given] = {}
    unrecognized: list[tuple[int, str]] = []
    unexpanded: list[int] = []
    ambiguous: list[tuple[str, tuple[str, ...]]] = []
    abbreviated: list[tuple[str, str]] = []
    deprecated: list[Retired] = []
    spoilt: dict[str, int] = {}
    errors: list[str] = []
    asks_help: bool = False

    @property
    def error(self) -> str | None:
        """The error that argparse ends in, without the usage text; none when it accepts the command line."""
        if self.errors:
            return self.errors[0]
        if self.unrecognized:
            return f"unrecognized arguments: {' '.join(word for _, word in self.unrecognized)}"
        return None


class _Option(str):
    """An option string that knows the word it was read from."""

    __slots__ = ("token",)

    token: Token


_UNEXPANDED = object()
_TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "json": flag_types.loads,
    "json_list": flag_types.json_list_type,
    "nullable_str": flag_types.nullable_str,
    "human_readable_int": flag_types.human_readable_int,
    "cuda_graph_config": flag_types.parse_cuda_graph_config_arg,
    "cuda_graph_backend": flag_types.parse_cuda_graph_backend_arg,
}


class _Action(argparse.Action):
    """Every flag's action: keeps what SGLang's own action would store (arg_groups/argparse_actions.py)."""

    flag: Flag

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)  # noqa: S101 (argparse's signature is wider)
        del namespace
        parser.keep(self, values, option_string or "")


class _Help(argparse.Action):
    """``--help`` prints and exits in SGLang; here it is remembered."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)  # noqa: S101
        del namespace, values, option_string
        parser.parsed.asks_help = True


class Parser(argparse.ArgumentParser):
    """An argparse parser with the flags of a release. Use ``parse``."""

    def __init__(self, flags: Iterable[Flag] = ()) -> None:
        super().__init__(prog="sglang serve", usage="", add_help=False, argument_default=argparse.SUPPRESS)
        self.parsed = Parsed()
        self._unmatched: set[argparse.Action] = set()
        self._rejected: set[int] = set()
        self._required: list[argparse.Action] = []
        self.add_argument("-h", "--help", action=_Help, nargs=0)
        for flag in flags:
            self._add(flag)

    def _add(self, flag: Flag) -> None:
        options: list[str] = []
        for option in flag.options:
            options.append(option)
            if flag.action == "boolean" and option.startswith("--"):
                options.append("--no-" + option[2:])
        takes_value = flag.takes_value or flag.nargs is not None
        action = self.add_argument(
            *options,
            dest=flag.dest,
            action=_Action,
            nargs=flag.nargs if takes_value else 0,
            const=flag.const if takes_value else None,
            type=_TYPES[flag.type],
            choices=flag.choices,
        )
        assert isinstance(action, _Action)  # noqa: S101 (add_argument's signature is wider)
        action.flag = flag
        if flag.required:
            self._required.append(action)

    def parse(self, argv: Sequence[str]) -> Parsed:
        """Parse ``argv``, the words after ``sglang.launch_server`` or ``sglang serve``."""
        self.parsed = parsed = Parsed()
        self._unmatched, self._rejected = set(), set()
        tokens = [word if isinstance(word, Token) else Token(word, n) for n, word in enumerate(argv)]
        try:
            _, extras = self.parse_known_args(list(tokens), argparse.Namespace())
        except _Stop as stop:
            parsed.errors.append(str(stop))
            return parsed
        self._sort_out(extras)
        missing = [action for action in self._required if action.dest not in {*parsed.given, *parsed.spoilt}]
        if missing and not parsed.unexpanded:
            names = ", ".join("/".join(action.option_strings) for action in missing)
            parsed.errors.append(f"the following arguments are required: {names}")
        return parsed

    def keep(self, action: _Action, values: Any, option: str) -> None:
        """Remember what ``action`` was called with."""
        flag, token = action.flag, _token(option)
        known = values is not _UNEXPANDED
        value = None
        try:
            value = _stored(flag, values, option) if known else None
        except ValueError as error:
            self._refuse(action, str(argparse.ArgumentError(action, str(error))), token)
            return
        written = token.partition("=")[0]
        if flag.deprecated:
            self.parsed.deprecated.append(Retired(flag, str(option), value, token.at, known))
        if flag.action == "deprecated":
            self.parsed.errors += [flag.error] if flag.error else []
            return
        if written != option:
            self.parsed.abbreviated.append((written, str(option)))
        self.parsed.spoilt.pop(action.dest, None)
        self.parsed.given[action.dest] = Given(value, str(option), token.at, known)

    def _refuse(self, action: argparse.Action, message: str, token: Token | None = None) -> None:
        self.parsed.errors.append(message)
        self.parsed.given.pop(action.dest, None)
        self.parsed.spoilt[action.dest] = -1 if token is None else token.at

    def _sort_out(self, extras: Sequence[str]) -> None:
        """Tell refused flags from the values after them and from words that could be anything."""
        swallowing = -2  # index of a word after which plain words may be its values
        for word in extras:
            token = word if isinstance(word, Token) else Token(word, -1)
            if not token.known:
                self.parsed.unexpanded.append(token.at)
            elif token.at in self._rejected:
                pass
            elif token.startswith("-") or token.at != swallowing + 1:
                self.parsed.unrecognized.append((token.at, str(token)))
                if not token.startswith("-"):
                    continue
            swallowing = token.at

    # What follows takes the place of argparse's own steps, to go on where it would exit.

    def error(self, message: str) -> Any:
        """Raise instead of printing the usage and exiting."""
        raise _Stop(message)

    def _parse_optional(self, arg_string: str) -> Any:
        token = arg_string if isinstance(arg_string, Token) else Token(arg_string, -1)
        if not token.known and "=" not in token.prefix:
            return None
        found = super()._parse_optional(arg_string)
        if isinstance(found, list):  # from Python 3.12.8 and 3.13.1 on
            return [self._marked(one, token) for one in found]
        return found if found is None else self._marked(found, token)

    def _marked(self, found: tuple[Any, ...], token: Token) -> tuple[Any, ...]:
        action, name, *middle, value = found
        option = _Option(name)
        option.token = token
        if action is not None and value is not None:
            if action.nargs == 0:
                message = str(argparse.ArgumentError(action, f"ignored explicit argument {value!r}"))
                self._refuse(action, message, token)
                self._rejected.add(token.at)
                return (None, option, *middle, None)
            value = Token(value, token.at, known=token.known)
        return (action, option, *middle, value)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        found = super()._get_option_tuples(option_string)
        if len(found) < 2:
            return found
        names = tuple(str(one[1]) for one in found)
        written = option_string.partition("=")[0]
        self.parsed.ambiguous.append((written, names))
        matches = ", ".join(names)
        self.parsed.errors.append(f"ambiguous option: {option_string} could match {matches}")
        if isinstance(option_string, Token):
            self._rejected.add(option_string.at)
        return []

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError as error:
            self._refuse(action, str(error))
            self._unmatched.add(action)
            return 0

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action in self._unmatched and not arg_strings:
            self._unmatched.discard(action)
            return argparse.SUPPRESS
        if any(isinstance(word, Token) and not word.known for word in arg_strings):
            return _UNEXPANDED
        plain = [str(word) for word in arg_strings]
        try:
            return super()._get_values(action, plain)
        except argparse.ArgumentError as error:
            first = arg_strings[0] if arg_strings else None
            self._refuse(action, str(error), first if isinstance(first, Token) else None)
            return argparse.SUPPRESS


class _Stop(Exception):  # noqa: N818 (ends a parse, reported as a value)
    """An error of argparse that could not be passed over."""


def _token(option: str) -> Token:
    return option.token if isinstance(option, _Option) else Token(option, -1)


def _stored(flag: Flag, values: Any, option: str) -> Any:
    if flag.action in ("store_true", "deprecated_true"):
        return True
    if flag.action == "boolean":
        return not option.startswith("--no-")
    if flag.action == "deprecated_const":
        return flag.const
    if flag.action == "lora_paths":
        return flag_types.lora_paths(values)
    if flag.action == "deprecated":
        return True
    return values


def parser_for(flags: Iterable[Flag]) -> Parser:
    """Return the argparse parser with ``flags``."""
    return Parser(flags)


def parse(argv: Sequence[str], flags: Iterable[Flag]) -> Parsed:
    """Return what the release with ``flags`` makes of ``argv``, the words after the program and module."""
    return Parser(flags).parse(argv)
