"""What a server says about itself: the JSON of /server_info, live or saved in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from sgdoctor import redact
from sgdoctor.collect import clean
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts
from sgdoctor.input_file import read_json
from sgdoctor.upstream import catalogue
from sgdoctor.vocabulary import FactTypeError

MAX_BYTES = 16 * 2**20

# In the place of a value that the scheduler settled after the launcher had printed its own: such a value
# differs from the log's banner without a source being wrong.
SCHEDULER = "internal_states"

# Top-level keys beside the server's arguments (http_server.py's server_info and the scheduler's answer to it,
# 0.5.7 to 0.5.23).
NOT_ARGUMENTS = frozenset(
    {
        "status", "max_total_num_tokens", "max_req_input_len", "internal_states", "version", "kv_events",
        "launch_command", "startup_time", "frontend", "hicache_object_layout",
        "remote_instance_transfer_engine_session_id", "remote_instance_transfer_engine_weights_info_dict",
        "last_gen_throughput", "memory_usage", "effective_max_running_requests_per_dp", "step_time_dict",
        "avg_spec_accept_length", "env_vars", "world_size",
    }
)  # fmt: skip
_ENOUGH = ("model_path", "tp_size", "dp_size")


def read_server_info_file(facts: Facts, path: Path) -> list[str] | None:
    """Set facts from a saved answer of /server_info; return the server's own launch command, if it is in it.

    Raises UsageError when the file is not such an answer, Undecided when it is the server's refusal.
    """
    payload = read_json(path, MAX_BYTES, "no answer of /server_info")
    if is_refusal(payload):
        raise Undecided(
            f"{path}: holds a refusal: /server_info of this server needs its API key; save the answer with "
            "curl -H 'Authorization: Bearer KEY', or ask with --url and --api-key"
        )
    reason = objection(payload)
    if reason is not None:
        raise UsageError(f"{path}: no answer of /server_info: {reason}")
    return read_server_info(facts, payload, str(path), source="server_info")


def is_refusal(payload: object) -> bool:
    """Whether it is what a server with an API key answers without it: {"error": "Unauthorized"}."""
    if not isinstance(payload, dict) or len(payload) > 3:
        return False
    said = " ".join(str(payload.get(key, "")) for key in ("error", "message", "detail")).lower()
    return "unauthorized" in said or "forbidden" in said


def objection(payload: object) -> str | None:
    """Return why it is no answer of /server_info, or null when it is one."""
    if not isinstance(payload, dict):
        return f"a JSON {_kind(payload)}"
    if payload.get("object") == "list":
        return "it is a listing, like that of /v1/models"
    if "is_generation" in payload and "version" not in payload:
        return "it is an answer of /model_info"
    if isinstance(payload.get("version"), str) or isinstance(payload.get("internal_states"), list):
        return None
    if all(key in payload for key in _ENOUGH):
        return None
    return "it has neither version nor internal_states"


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "literal"
    if isinstance(value, list):
        return "list"
    return "text" if isinstance(value, str) else "number"


def read_server_info(
    facts: Facts, payload: dict[str, Any], place: str, *, source: str = "http"
) -> list[str] | None:
    """Set sglang.version, arg.*, kv.*, memory.*, model.*, env.*, server.decode_throughput from /server_info.

    Both shapes are taken: flat (up to 0.5.19) and with ``launch_command`` (0.5.20 and newer), whose words are
    returned, secrets replaced. What the scheduler settled later than the launcher (its ``internal_states``)
    wins over the top level. Never raises: a value of an unexpected type becomes a note.
    """
    states = payload.get("internal_states")
    states = [state for state in states if isinstance(state, dict)] if isinstance(states, list) else []

    def put(name: str, value: Any, where: str = place) -> None:
        try:
            facts.set(name, clean.value(value), source=source, place=where)
        except FactTypeError as error:
            facts.notes.append(f"{where}: {error}; it was left out")

    version = payload.get("version")
    if isinstance(version, str) and _is_version(version):
        put("sglang.version", version)
    else:
        facts.notes.append(f"{place}: does not say which SGLang release it is (version: {version!r})"[:200])
    _read_arguments(payload, states, put, place, version)
    _read_capacity(payload, states, put)
    _read_model(payload, put)
    for state in states:
        _read_variables(state.get("env_vars"), put)
    return _launch_command(payload.get("launch_command"), facts, place)


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _read_arguments(
    payload: dict[str, Any],
    states: list[dict[str, Any]],
    put: Callable[..., None],
    place: str,
    version: object,
) -> None:
    release = catalogue.resolve(version) if isinstance(version, str) else None

    def is_argument(key: str) -> bool:
        if release is not None and release.exact:
            return release.has(key)
        return key not in NOT_ARGUMENTS and not key.startswith("_")

    for key, value in payload.items():
        if not is_argument(key):
            continue
        settled = [state[key] for state in states if key in state]
        if len(settled) == len(states) > 0 and settled[0] != value and _all_equal(settled):
            put(f"arg.{key}", settled[0], f"{place}: {SCHEDULER}")
        else:
            put(f"arg.{key}", value)


def _all_equal(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)


def _read_capacity(payload: dict[str, Any], states: list[dict[str, Any]], put: Callable[..., None]) -> None:
    # With decode context parallelism (0.5.15 and newer) it is what each rank holds.
    spread = (_number(payload.get("dcp_size")) or 1) > 1
    if _number(payload.get("max_total_num_tokens")) is not None and not spread:
        put("kv.tokens", payload["max_total_num_tokens"])
    said = [_number(state.get("effective_max_running_requests_per_dp")) for state in states]
    running = [number for number in said if number is not None]
    if running and len(running) == len(states):
        put("kv.max_running_requests", min(running))
    usage = [state["memory_usage"] for state in states if isinstance(state.get("memory_usage"), dict)]
    weights = [weight for memory in usage if (weight := _number(memory.get("weight"))) is not None]
    if weights:
        put("memory.weights_gb", max(weights))
    # 0 before the first report; from 0.5.20 on it falls back to that when reports stop (metrics_reporter.py).
    rates = [_number(state.get("last_gen_throughput")) for state in states]
    throughput = sum(rate for rate in rates if rate is not None)
    if throughput > 0:
        put("server.decode_throughput", float(throughput))


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _read_model(payload: dict[str, Any], put: Callable[..., None]) -> None:
    path, served = payload.get("model_path"), payload.get("served_model_name")
    if isinstance(path, str) and path:
        put("model.path", path)
    if isinstance(served, str) and served and served != path:
        put("model.name", served)
    elif isinstance(path, str) and path:
        put("model.name", short_name(path))


def short_name(path: str) -> str:
    """Return the last part of a model path."""
    return PurePosixPath(path).name or path


def _read_variables(variables: object, put: Callable[..., None]) -> None:
    """Set env.* from SGLANG_EXPOSE_OWN_ENV_VARS=1 (0.5.20 and newer, scheduler's internal state)."""
    if isinstance(variables, dict):
        texts = {name: value for name, value in variables.items() if isinstance(value, str)}
        for name, value in redact.environment(texts).items():
            put(f"env.{name}", value)


def _launch_command(said: object, facts: Facts, place: str) -> list[str] | None:
    """Return the words of ``launch_command``: what the parser got, joined by blanks without quotes.

    0.5.20's server_args.py writes ``" ".join(argv)``, and for an Engine made in Python ``Engine(...)``.
    """
    if not isinstance(said, str) or not said.strip():
        return None
    if said.startswith("Engine("):
        facts.notes.append(
            f"{place}: the server was made in Python, not by a command: {clean.value(said)[:200]}"
        )
        return None
    words: list[str] = []
    for word in redact.text(said).split():
        if words and words[-1].count("{") > words[-1].count("}"):
            words[-1] += f" {word}"  # a JSON value that had blanks
        else:
            words.append(word)
    kept: list[str] = []
    for word in clean.words(words):
        # A secret with blanks in it has lost its quotes: what follows it is the rest of it.
        if not kept or kept[-1] != redact.REDACTED or word.startswith("-"):
            kept.append(word)
    return kept
