"""What the exception that ended a server tells about how it was started.

A server that dies while it parses its arguments prints no banner; its last line is then the only place
that says what was asked for. The facts set here are those that the launch command would have given.
"""

from __future__ import annotations

import re

from sgdoctor.facts import Facts, Known

# argparse, Python 3.10 to 3.13: parser.error prints "PROG: error: MESSAGE"
_UNRECOGNIZED = re.compile(r"error: unrecognized arguments: (?P<words>.+)$")
_AMBIGUOUS = re.compile(r"error: ambiguous option: (?P<word>\S+) could match ")
_INVALID = re.compile(r"error: (?P<message>argument .+|the following arguments are required: .+)$")

# _derive_context_length in srt/configs/model_config.py, the same words in 0.5.7 to 0.5.23
_CONTEXT = re.compile(
    r"ValueError: Warning: User-specified context_length \((?P<asked>\d+)\) is greater than the derived "
    r"context_length \((?P<derived>\d+)\)"
)

# get_moe_configs in fused_moe_triton_config.py, 0.5.12 and newer
_LOOKUP_FOLDER = re.compile(r"FileNotFoundError: .*No such file or directory: '(?P<folder>[^']*/configs)'")


def explain(facts: Facts) -> None:
    """Set what ``log.fatal`` tells about the command line, the model or the config lookup."""
    fatal = facts.get("log.fatal")
    if not isinstance(fatal, Known) or not isinstance(fatal.value, str):
        return
    text = fatal.value
    if found := _UNRECOGNIZED.search(text):
        flags = [word for word in found["words"].split() if word.startswith("-")]
        _set(facts, fatal, "launch.unrecognized", flags or found["words"].split())
    elif found := _AMBIGUOUS.search(text):
        _set(facts, fatal, "launch.ambiguous", [found["word"].partition("=")[0]])
    elif found := _INVALID.search(text):
        _set(facts, fatal, "launch.invalid", found["message"])
    elif found := _CONTEXT.search(text):
        _set(facts, fatal, "asked.context_length", int(found["asked"]))
        _set(facts, fatal, "model.max_position_embeddings", int(found["derived"]))
        _set(facts, fatal, "env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", None)
    elif found := _LOOKUP_FOLDER.search(text):
        _set(facts, fatal, "moe.lookup_error", text)
        _set(facts, fatal, "moe.config_matters", True)
        _set(facts, fatal, "moe.up.source", "error")


def _set(facts: Facts, fatal: Known, name: str, value: object) -> None:
    where = fatal.provenance[0]
    facts.set(name, value, source=where.source, place=where.place)
