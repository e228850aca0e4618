"""What SGLang does to its command line before argparse sees it: ``sglang serve`` and ``--config FILE``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import Version

from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.flags import Token

_MODEL_TYPE = Version("0.5.10")  # sglang serve takes --model-type
_MODEL_ALIAS = Version("0.5.11")  # its look for a model also knows --model
_POSITIONAL = Version("0.5.16")  # it takes the model as its first word
_MODEL_TYPES_CHECKED = Version("0.5.18")  # from here on installed backends add types, some without a model
_MERGER_KNOWS_PARSER = Version("0.5.8")
_MERGER_KNOWS_ALIASES = Version("0.5.23")
# What the diffusion server has in all releases from 0.5.7 to 0.5.23 (multimodal_gen/runtime/server_args.py),
# and the language model server in none.
_DIFFUSION_FLAGS = frozenset(
    {
        "--dit-cpu-offload",
        "--dit-layerwise-offload",
        "--enable-cfg-parallel",
        "--hsdp-replicate-dim",
        "--hsdp-shard-dim",
        "--image-encoder-cpu-offload",
        "--num-gpus",
        "--pin-cpu-memory",
        "--ring-degree",
        "--sp-degree",
        "--text-encoder-cpu-offload",
        "--ulysses-degree",
        "--use-fsdp-inference",
        "--vae-cpu-offload",
    }
)


class Refused(Exception):  # noqa: N818 (ends SGLang's start, reported as a value)
    """SGLang ends with this message before it parses anything."""


def serve_arguments(words: Sequence[Token], release: Version) -> tuple[list[Token], str]:
    """Return what ``sglang serve WORDS`` hands to argparse, and the server type (auto, llm, diffusion).

    sglang/cli/serve.py and sglang/cli/utils.py, 0.5.7 to 0.5.23. Raises Refused where they do.
    """
    kind, rest = model_type(words, release)
    if kind is None:
        raise Refused("Error: --model-type requires a value.")
    own = kind in ("auto", "llm", "diffusion")
    if release < _MODEL_TYPES_CHECKED and not own:
        raise Refused(f"Error: invalid --model-type '{kind}'. Valid values are: auto, llm, diffusion.")
    if release >= _POSITIONAL and rest and rest[0].known and not rest[0].startswith("-"):
        rest.insert(0, Token("--model-path", rest[0].at))
    names = ("--model-path", "--model") if release >= _MODEL_ALIAS else ("--model-path",)
    named = any(
        (word in names and number + 1 < len(rest)) or word.startswith(tuple(name + "=" for name in names))
        for number, word in enumerate(rest)
    )
    if own and not named and all(word.known for word in rest) and not {"-h", "--help"} & set(rest):
        raise Refused("Error: --model-path is required. Please provide the path to the model.")
    return rest, kind


def for_a_model_server(words: Sequence[Token], release: Version) -> list[Token]:
    """Return the words of a refused ``sglang serve WORDS`` that could be flags: no server type, no model."""
    rest = model_type(words, release)[1]
    return rest[1:] if rest and rest[0].known and not rest[0].startswith("-") else rest


def other_server(words: Sequence[Token], kind: str) -> list[Token] | None:
    """Return the model's words when ``sglang serve`` starts no language model server with these, else None.

    With ``kind`` auto the model decides (get_is_diffusion_model in sglang/cli/utils.py, 0.5.7 to 0.5.23),
    which may lie on the Hub alone: then a flag tells that only the diffusion server has.
    """
    if kind == "llm":
        return None
    if kind == "auto" and not any(word.partition("=")[0] in _DIFFUSION_FLAGS for word in words):
        return None
    at = next((number for number, word in enumerate(words) if word in ("--model-path", "--model")), None)
    if at is not None:
        return list(words[at : at + 2])
    return [word for word in words if not word.known or word.startswith(("--model-path=", "--model="))]


def model_type(words: Sequence[Token], release: Version) -> tuple[str | None, list[Token]]:
    """Return the server type that ``sglang serve WORDS`` asks for, and the words without it.

    "auto" without the flag, which 0.5.10 brought; None: its value is missing.
    """
    kind: str | None = "auto"
    if release < _MODEL_TYPE:
        return kind, list(words)
    rest: list[Token] = []
    skipping = False
    for word in words:
        if skipping:
            kind, skipping = str(word), False
        elif word == "--model-type":
            kind, skipping = None, True
        elif word.startswith("--model-type="):
            kind = word.partition("=")[2]
        else:
            rest.append(word)
    return kind, rest


def config_index(words: Sequence[str]) -> int | None:
    """Return the index of ``--config`` when SGLang reads the file after it.

    It looks for the bare word alone: ``--config=FILE`` and abbreviations are parsed and then ignored. Raises
    Refused where SGLang does (srt/server_args_config_parser.py; srt/utils/ from 0.5.19 on).
    """
    found = [number for number, word in enumerate(words) if word == "--config"]
    if len(found) > 1:
        raise Refused("Multiple config files specified! Only one allowed.")
    if found and found[0] == len(words) - 1:
        raise Refused("No config file specified after --config flag!")
    return found[0] if found else None


def config_arguments(
    settings: Mapping[str, Any], flags: Iterable[Flag], release: Version
) -> list[tuple[str, list[str]]]:
    """Return the command-line words that SGLang makes of a configuration file, by its keys.

    They go before the words of the command line, which therefore win. Raises Refused for keys whose flag
    does not just store a value.
    """
    flags = list(flags)
    switches = {key for flag in flags if flag.action == "store_true" for key in _keys(flag, release)}
    refused = _refused_keys(flags, switches, release)
    found: list[tuple[str, list[str]]] = []
    for key, value in settings.items():
        normal = str(key).replace("-", "_")
        if normal in refused:
            raise Refused(f"Unsupported config option '{normal}' with action '{refused[normal]}'")
        if isinstance(value, bool):
            found.append((str(key), _switch(str(key), normal, switches, release, on=value)))
        elif isinstance(value, list):
            found.append((str(key), [f"--{key}", *map(str, value)] if value else []))
        elif isinstance(value, dict) and release >= _MERGER_KNOWS_ALIASES:
            found.append((str(key), [f"--{key}", json.dumps(value)]))
        else:
            found.append((str(key), [f"--{key}", str(value)]))
    return found


def _switch(key: str, normal: str, switches: set[str], release: Version, *, on: bool) -> list[str]:
    if release < _MERGER_KNOWS_PARSER or normal in switches:
        return [f"--{key}"] if on else []
    return [f"--{key}", str(on).lower()]


def _keys(flag: Flag, release: Version) -> set[str]:
    if release < _MERGER_KNOWS_ALIASES:
        return {flag.dest}
    spelled = {option[2:].replace("-", "_") for option in flag.options if option.startswith("--")}
    return {flag.dest, *spelled}


def _refused_keys(flags: Iterable[Flag], switches: set[str], release: Version) -> dict[str, str]:
    """Return the keys that SGLang refuses, with the action that its message names."""
    refused: dict[str, str] = {}
    supported = set(switches)
    for flag in flags:
        plain = flag.action in ("store", "store_true")
        if release >= _MERGER_KNOWS_ALIASES:
            plain = plain or (flag.takes_value and flag.nargs is None)
        if plain:
            supported |= _keys(flag, release)
        elif "--config" not in flag.options:
            refused.update(dict.fromkeys(_keys(flag, release), _CLASSES[flag.action]))
    if release < _MERGER_KNOWS_PARSER:
        return {}
    if release >= _MERGER_KNOWS_ALIASES:
        return {key: name for key, name in refused.items() if key not in supported}
    return refused


_CLASSES = {
    "boolean": "BooleanOptionalAction",
    "lora_paths": "LoRAPathAction",
    "deprecated": "DeprecatedAction",
    "deprecated_true": "DeprecatedStoreTrueAction",
    "deprecated_const": "DeprecatedStoreConstAction",
    "deprecated_alias": "DeprecatedAliasStoreAction",
}
