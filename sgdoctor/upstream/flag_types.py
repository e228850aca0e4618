"""The converters that SGLang gives argparse as ``type=``, under the names that its error messages print."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from decimal import Decimal
from typing import Any

_SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_PHASES = ("decode", "prefill")


def loads(raw: str) -> Any:
    """Read JSON (``type=json.loads``)."""
    return json.loads(raw)


def json_list_type(raw: str) -> Any:
    """Read JSON; any JSON will do (srt/utils/common.py, 0.5.7 to 0.5.23: orjson, which refuses NaN)."""
    try:
        return json.loads(raw, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ArgumentTypeError(f"Invalid JSON list: {raw}. Please provide a valid JSON list.") from error


def _no_number(name: str) -> None:
    raise json.JSONDecodeError("not in the JSON standard", name, 0)


def nullable_str(raw: str) -> str | None:
    """Read "" and "None" as none (srt/utils/common.py, 0.5.7 to 0.5.23)."""
    return None if not raw or raw == "None" else raw


def human_readable_int(raw: str) -> int:
    """Read an integer with an SI or IEC suffix, case-sensitive (srt/utils/common.py, 0.5.10 to 0.5.23)."""
    raw = raw.strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", raw)
    if match:
        number, suffix = match.groups()
        if suffix not in _IEC:
            return int(Decimal(number) * _SI[suffix])
        if "." in number:
            raise ArgumentTypeError(
                f"Decimals are not allowed with IEC suffixes like '{suffix}'. "
                f"Use an integer IEC value such as '{int(Decimal(number))}{suffix}', "
                f"or an SI value such as '{number}{suffix[0]}'."
            )
        return int(number) * _IEC[suffix]
    try:
        return int(raw)
    except ValueError as error:
        raise ArgumentTypeError(
            f"Invalid integer value: '{raw}'. "
            "Use a plain integer, SI suffixes (1k, 1M), or IEC suffixes (1Ki, 1Mi). "
            "Suffixes are case-sensitive."
        ) from error


def parse_cuda_graph_backend_arg(raw: str) -> str:
    """Refuse the backend that 0.5.23 took away (model_executor/cuda_graph_config.py)."""
    if raw == "tc_piecewise":
        raise ArgumentTypeError("tc_piecewise was removed; select breakable, full, or disabled")
    return raw


def parse_cuda_graph_config_arg(raw: str) -> Any:
    """Read ``{"decode": {...}, "prefill": {...}}`` (model_executor/cuda_graph_config.py, from 0.5.14 on).

    The settings of a phase are not looked at: which ones there are differs between releases.
    """
    try:
        parsed = json.loads(raw)
    except json.JSONDecodeError as error:
        raise ArgumentTypeError(f"--cuda-graph-config must be JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ArgumentTypeError(f"--cuda-graph-config must be a JSON object, got {type(parsed).__name__}")
    for phase, settings in parsed.items():
        if phase not in _PHASES:
            raise ArgumentTypeError(
                f"--cuda-graph-config: unknown phase '{phase}', expected one of {_PHASES}"
            )
        if not isinstance(settings, dict):
            raise ArgumentTypeError(
                f"--cuda-graph-config['{phase}'] must be a JSON object, got {type(settings).__name__}"
            )
    return parsed


def lora_paths(values: list[str]) -> list[Any]:
    """Read ``--lora-paths`` as LoRAPathAction does (arg_groups/argparse_actions.py, 0.5.7 to 0.5.23).

    Raises ValueError where SGLang dies of an AssertionError or a JSON error.
    """
    paths: list[Any] = []
    for value in values:
        path = value.strip()
        if not (path.startswith("{") and path.endswith("}")):
            paths.append(path)
            continue
        entry = json.loads(path)
        if "lora_path" not in entry or "lora_name" not in entry:
            raise ValueError(
                f"{path!r} looks like a JSON str, but it does not contain 'lora_name' and 'lora_path' keys."
            )
        paths.append(entry)
    return paths
