"""One command-line flag of an SGLang release, as its argparse parser has it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# The argparse action, SGLang's own ones (arg_groups/argparse_actions.py; server_args.py up to 0.5.12)
# by what they do: ``deprecated`` ignores the flag (or stops the launch when it has a message),
# ``deprecated_true`` and ``deprecated_const`` store True and ``const``, ``deprecated_alias`` its value.
Action = Literal[
    "store",
    "store_true",
    "boolean",
    "lora_paths",
    "deprecated",
    "deprecated_true",
    "deprecated_const",
    "deprecated_alias",
]
_TAKE_NONE = ("store_true", "boolean", "deprecated", "deprecated_true")
ValueType = Literal[
    "str",
    "int",
    "float",
    "json",
    "json_list",
    "nullable_str",
    "human_readable_int",
    "cuda_graph_config",
    "cuda_graph_backend",
]


class Flag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flag of ``sglang serve`` and ``python -m sglang.launch_server``.

    ``dest`` is the field of ServerArgs that it fills (``tp_size``, whatever argparse calls it on the way).
    ``options`` are the option strings as registered, without the ``--no-`` twins of a ``boolean`` flag.
    ``suppressed``: without the flag the field keeps its own default (argparse.SUPPRESS); ``default`` is null.
    ``nargs`` is argparse's; 0 for deprecated flags that take no value. ``new_flag`` is what the flag's own
    warning names, ``error`` the message with which it stops the launch, ``note`` that message or, for a flag
    that is deprecated in another way, its help text.
    """

    dest: str
    options: tuple[str, ...]
    action: Action = "store"
    type: ValueType = "str"
    nargs: str | int | None = None
    const: Any = None
    choices: tuple[Any, ...] | None = None
    default: Any = None
    suppressed: bool = False
    required: bool = False
    new_flag: str | None = None
    note: str | None = None
    error: str | None = None

    @property
    def option(self) -> str:
        """The first option string, by which messages name the flag."""
        return self.options[0]

    @property
    def negations(self) -> tuple[str, ...]:
        """The ``--no-`` option strings that BooleanOptionalAction adds."""
        if self.action != "boolean":
            return ()
        return tuple("--no-" + option[2:] for option in self.options if option.startswith("--"))

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return self.nargs != 0 and self.action not in _TAKE_NONE

    @property
    def deprecated(self) -> bool:
        """Whether SGLang warns about the flag, refuses it, or calls it deprecated in its help."""
        return self.action.startswith("deprecated") or self.note is not None

    @property
    def effect(self) -> Literal["as usual", "ignored", "stops the launch", "true", "const", "alias"]:
        """What giving the flag does: a deprecated one is ignored, stops the launch, or sets ``dest``."""
        if self.action == "deprecated":
            return "stops the launch" if self.error else "ignored"
        if self.action == "deprecated_true":
            return "true"
        if self.action == "deprecated_const":
            return "const"
        return "alias" if self.action == "deprecated_alias" else "as usual"
