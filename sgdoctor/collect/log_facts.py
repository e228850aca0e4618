"""What one log says of the server's arguments, memory, kernel configs and load, as facts."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Any

from sgdoctor import redact
from sgdoctor.collect.log_events import Run, Seen
from sgdoctor.collect.log_reading import Reading
from sgdoctor.facts import Facts
from sgdoctor.upstream import log_grammar
from sgdoctor.upstream.log_grammar import ConfigPath, MoeLine
from sgdoctor.upstream.server_args_text import Banner
from sgdoctor.vocabulary import FactTypeError

# What differs from node to node in one deployment, and so is taken from the first node only.
_OF_A_NODE = frozenset({"node_rank", "host", "random_seed", "nccl_port", "numa_node", "base_gpu_id"})

_LAST_SECONDS = 5 * 60


def releases_of(reading: Reading) -> list[str]:
    """Return the releases whose server arguments are exactly the banner's, the oldest first."""
    seen = reading.events.run.banner
    if seen is None or not seen.value.complete:
        return []
    from sgdoctor.upstream import catalogue

    return catalogue.infer_release(seen.value.fields())


def one_log(facts: Facts, reading: Reading, *, first_node: bool) -> None:
    """Set what the log of one node says of its last start."""
    _arguments(facts, reading, first_node=first_node)
    _memory(facts, reading)
    _moe(facts, reading)
    _gemm(facts, reading)
    _load(facts, reading)
    _paused(facts, reading)
    package = reading.head.package or reading.tail.package
    if package:
        facts.set("sglang.path", package[0], source="log", place=reading.place(package[1]))


def _seen(facts: Facts, name: str, value: Any, reading: Reading, seen: Seen) -> None:
    facts.set(name, value, source="log", place=reading.place(seen.line), count=seen.count)


def _arguments(facts: Facts, reading: Reading, *, first_node: bool) -> None:
    seen = reading.events.run.banner
    if seen is None:
        return
    banner: Banner = seen.value
    for name, value in banner.values.items():
        if name in _OF_A_NODE and not first_node:
            continue
        try:
            _seen(facts, f"arg.{name}", _clean(value), reading, seen)
        except FactTypeError as error:
            facts.set_unknown(f"arg.{name}", f"{reading.place(seen.line)}: {error}")
    for name in banner.opaque:
        facts.set_unknown(f"arg.{name}", f"{reading.place(seen.line)} prints an object")


def _clean(value: Any) -> Any:
    """Redact the texts in a nested value."""
    if isinstance(value, str):
        return redact.text(value)
    if isinstance(value, dict):
        return {str(key): redact.argument(str(key), _clean(member)) for key, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(member) for member in value]
    return value


def _memory(facts: Facts, reading: Reading) -> None:
    """Set what was loaded and what there is room for; of DP ranks that differ, the smallest."""
    run = reading.events.run
    if run.weights:
        seen = next(iter(run.weights.values()))  # a draft model's come later
        loaded: log_grammar.Weights = seen.value
        _seen(facts, "model.architecture", loaded.architecture, reading, seen)
        for name, value in (
            ("memory.weights_gb", loaded.gigabytes),
            ("model.dtype", loaded.dtype),
            ("model.quantization", loaded.quantization),
        ):
            if value is not None:
                _seen(facts, name, value, reading, seen)
    if run.capacities:
        seen = min(run.capacities.values(), key=lambda one: one.value.tokens)
        room: log_grammar.Capacity = seen.value
        parts = run.banner.value.values.get("dcp_size") if run.banner else None
        if isinstance(parts, int) and parts > 1:
            why = f"each of {parts} context parallel ranks has room for {room.tokens} tokens of its own"
            facts.set_unknown("kv.tokens", why)
        else:
            _seen(facts, "kv.tokens", room.tokens, reading, seen)
        _seen(facts, "kv.context_length", room.context_length, reading, seen)
        _seen(facts, "kv.max_running_requests", room.running_requests, reading, seen)
        if room.available_gb is not None:
            _seen(facts, "memory.available_gb", room.available_gb, reading, seen)


def _moe(facts: Facts, reading: Reading) -> None:
    """Set where the experts' kernel configs come from, as the lookups in the log report it."""
    run = reading.events.run
    if run.deterministic:
        _seen(facts, "arg.enable_deterministic_inference", True, reading, run.deterministic)
    if reading.end.in_moe_lookup:
        place = reading.place(reading.end.line or 0)
        facts.set("moe.lookup_error", reading.end.fatal, source="log", place=place)
        facts.set("moe.config_matters", True, source="log", place=place)
    lookups = list(run.moe.values())
    if not lookups:
        return
    missing = [seen.value.wanted.file for seen in lookups if seen.value.wanted]
    first = lookups[0]
    facts.set("moe.log_files", list(dict.fromkeys(missing)), source="log", place=reading.place(first.line))
    up = _chosen([seen for seen in lookups if not seen.value.down])
    down = _chosen([seen for seen in lookups if seen.value.down], up.value.looked_for.file if up else None)
    if up:
        _lookup(facts, reading, "up", up, up.value.source)
    if down:
        # Up to 0.5.15 the line says "with down_moe=False" also where there is no up config to use.
        own: str = down.value.source
        by_default = own == "up" and up is not None and up.value.source == "default"
        _lookup(facts, reading, "down", down, "default" if by_default else own)
    _shape(facts, reading, up or down or first)
    if _main_model_only(run):
        _seen(facts, "moe.config_matters", True, reading, up or first)
        _seen(facts, "moe.runner", "triton", reading, up or first)


def _main_model_only(run: Run) -> bool:
    """Whether no draft model and no LoRA kernel can have done the lookups instead of the experts."""
    if run.banner is None:
        return len(run.weights) <= 1
    arguments: Banner = run.banner.value
    return not (arguments.values.get("speculative_algorithm") or arguments.values.get("enable_lora"))


def _chosen(lookups: list[Seen], up_file: str | None = None) -> Seen | None:
    """Return the lookup to speak of: the up projection's own twin, else the first that went worst."""
    twin = up_file.replace(".json", "_down.json") if up_file else None
    for wanted in ([one for one in lookups if one.value.looked_for.file == twin], lookups):
        for source in ("default", "up", "fallback", "exact"):
            for one in wanted:
                if one.value.source == source:
                    return one
    return None


def _lookup(facts: Facts, reading: Reading, projection: str, seen: Seen, source: str) -> None:
    line: MoeLine = seen.value
    used: ConfigPath | None = line.used
    _seen(facts, f"moe.{projection}.source", source, reading, seen)
    _seen(facts, f"moe.{projection}.expected_file", line.looked_for.file, reading, seen)
    _seen(facts, f"moe.{projection}.path", line.wanted.path if line.wanted else None, reading, seen)
    if source != "up" and (used is None or used.triton is not None):
        _seen(facts, f"moe.{projection}.triton", used.triton if used else None, reading, seen)


def _shape(facts: Facts, reading: Reading, seen: Seen) -> None:
    """Set what the path of the file looked for says of Triton, the GPU and the experts."""
    path: ConfigPath = seen.value.looked_for
    if path.root:
        _seen(facts, "moe.config_root", path.root, reading, seen)
    if path.triton:
        _seen(facts, "triton.version", path.triton, reading, seen)
    _seen(facts, "model.is_moe", True, reading, seen)
    if (name := log_grammar.config_name(path.file)) is None:
        return
    if name.device:
        _seen(facts, "gpu.name", name.device, reading, seen)
    _seen(facts, "moe.local_experts", name.experts, reading, seen)
    _seen(facts, "moe.local_intermediate_size", name.width, reading, seen)
    _seen(facts, "moe.dtype", name.dtype, reading, seen)
    _seen(facts, "moe.block_shape", list(name.block_shape) if name.block_shape else None, reading, seen)


def _gemm(facts: Facts, reading: Reading) -> None:
    missing = reading.events.run.gemm
    if missing:
        first = next(iter(missing.values()))
        files = [seen.value.rpartition("/")[2] for seen in missing.values()]
        facts.set(
            "gemm.missing_files", files, source="log", place=reading.place(first.line), count=first.count
        )


def _paused(facts: Facts, reading: Reading) -> None:
    """Set which request stopped the scheduler and was not taken back, where the log shows requests at all."""
    run = reading.events.run
    facts.set("log.pauses", run.paused, source="log", place=reading.name)
    left_out = run.banner.value.values.get("uvicorn_access_log_exclude_prefixes") if run.banner else None
    paths = [f"/{name}" for pair in log_grammar.PAUSES.items() for name in pair]
    hidden = any(path.startswith(str(prefix)) for path in paths for prefix in left_out or () if prefix)
    if run.pauses and not hidden:
        what, line = next(iter(run.pauses.items()))
        facts.set("log.paused", what, source="log", place=reading.place(line))
    elif hidden or not (reading.head.answers or reading.tail.answers):
        facts.set_unknown("log.paused", f"{reading.name} does not show all requests")
    else:
        facts.set("log.paused", None, source="log", place=reading.name)


def _load(facts: Facts, reading: Reading) -> None:
    """Set the means over the decode batches of the last minutes."""
    decoded = reading.decoded
    last = _time(decoded[-1][1]) if decoded else None
    if last is not None:
        decoded = [
            one
            for one in decoded
            if (time := _time(one[1])) and (last - time).total_seconds() <= _LAST_SECONDS
        ]
    place = reading.place(decoded[0][0]) if decoded else reading.name

    def put(name: str, value: Any) -> None:
        facts.set(f"log.{name}", value, source="log", place=place)

    put("decode_batches", len(decoded))
    if not decoded:
        return
    batches = [values for _, _, values in decoded]
    # Hybrid models report a share for each of their pools: the fullest sets the limit.
    usages = [[_number(values[name]) for name in values if name.endswith("usage")] for values in batches]
    _put_mean(
        put, "token_usage", [max(found) for one in usages if (found := [v for v in one if v is not None])]
    )
    for name, key in (
        ("running_requests", "#running-req"),
        ("queued_requests", "#queue-req"),
        ("decode_throughput", "gen throughput (token/s)"),
    ):
        _put_mean(put, name, [_number(values.get(key)) for values in batches])
    graphs = [value for values in batches for name, value in values.items() if name.endswith(" graph")]
    _put_mean(put, "decode_without_graph", [float(value == "False") for value in graphs])
    lengths = [_number(values.get("accept len")) for values in batches]
    if any(length is not None for length in lengths):
        _put_mean(put, "accept_length", lengths)
    else:
        put("accept_length", None)


def _put_mean(put: Any, name: str, values: list[float | None] | list[float]) -> None:
    known = [value for value in values if value is not None]
    if known:
        put(name, sum(known) / len(known))


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
