"""Facts in a few human words: ``model.experts`` = 256 is "256 experts"."""

from __future__ import annotations

import functools
import shlex
from typing import Any

from sgdoctor.engine.model import Recommendation

LONGEST = 48

# Facts that say where a rule applies rather than what is wrong; left out where there are others.
QUIET = frozenset(
    {
        "gpu.vendor",
        "launch.complete",
        "launch.flags_known",
        "log.has_start",
        "log.records",
        "moe.config_matters",
        "moe.down.expected_file",
        "moe.up.expected_file",
        "packages.complete",
        "sglang.known",
        "sglang.version",
    }
)

# What tells most, where there is more than can be shown.
FIRST = frozenset(
    {
        "arg.tp_size",
        "gpu.compute_capability",
        "gpu.name",
        "model.experts",
        "model.moe_intermediate_size",
        "torch.version",
        "triton.version",
    }
)

# "{}" is the value. A fact whose value is true or false or null has the words for these instead.
_PHRASES = {
    "sglang.version": "SGLang {}",
    "sglang.path": "{}",
    "sglang.import_error": "import sglang: {}",
    "triton.version": "Triton {}",
    "torch.version": "torch {}",
    "torch.triton_pin": "torch requires Triton {}",
    "host.python": "Python {}",
    "host.arch": "{}",
    "host.shm_mib": "/dev/shm of {} MiB",  # noqa: S108 (words)
    "host.driver": "driver {}",
    "host.cuda": "driver's CUDA {}",
    "gpu.count": "{} GPUs",
    "gpu.vendor": "GPU vendor {}",
    "gpu.compute_capability": "compute capability {}",
    "gpu.memory_mib": "{} MiB a GPU",
    "gpu.shared_memory_bytes": "{} bytes of shared memory a block",
    "model.name": "{}",
    "model.path": "model {}",
    "model.architecture": "{}",
    "model.experts": "{} experts",
    "model.experts_per_token": "top {}",
    "model.shared_experts": "{} shared experts",
    "model.moe_intermediate_size": "expert width {}",
    "model.hidden_size": "hidden size {}",
    "model.layers": "{} layers",
    "model.attention_heads": "{} attention heads",
    "model.kv_heads": "{} KV heads",
    "model.dtype": "{}",
    "model.quantization": "quantization {}",
    "model.weight_block_size": "weight blocks of {}",
    "model.max_position_embeddings": "model's context {}",
    "moe.runner": "MoE runner {}",
    "moe.local_experts": "E={}",
    "moe.local_intermediate_size": "N={}",
    "moe.topk": "top {}",
    "moe.dtype": "dtype={}",
    "moe.block_shape": "block_shape={}",
    "moe.directories": "reads Triton {}",
    "moe.up.triton": "up config from Triton {}",
    "moe.up.other": "up config of Triton {}",
    "moe.up.expected_file": "{}",
    "moe.down.triton": "down config from Triton {}",
    "moe.down.expected_file": "{}",
    "moe.lookup_error": "{}",
    "launch.unrecognized": "{}",
    "launch.ambiguous": "{}",
    "launch.invalid": "{}",
    "server.url": "{}",
    "server.status": "server {}",
    "server.health": "/health {}",
    "fleet.servers": "{} servers",
    "log.records": "{} records",
    "log.release": "log of {}",
    "log.fatal": "{}",
    "log.ranks": "{} ranks",
    "log.pauses": "paused {} times",
    "log.retractions": "{} retractions",
    "log.retractions_peak": "{} retractions within a minute",
    "window.seconds": "watched for {} s",
    "window.running_requests": "{} requests running on average",
    "window.queued_requests": "{} requests waiting on average",
    "window.queued_least": "never fewer than {} requests waiting",
    "window.queue_growth": "the queue changed by {}",
    "window.token_usage_peak": "at most {} of the KV cache in use",
    "window.retraction_peak": "KV cache full at least {} times within a minute",
    "window.retractions_per_minute": "{} retractions a minute",
    "window.accept_length": "{} tokens a step",
    "window.worked_tokens": "{} tokens computed",
    "kv.tokens": "KV cache of {} tokens",
    "kv.context_length": "context of {} tokens",
    "kv.max_running_requests": "{} running requests at most",
    "memory.available_gb": "{} GB free",
    "memory.weights_gb": "weights of {} GB",
    "arg.tp_size": "TP {}",
    "arg.pp_size": "PP {}",
    "arg.dp_size": "DP {}",
    "arg.ep_size": "EP {}",
    "asked.tp_size": "TP {}",
    "asked.pp_size": "PP {}",
    "asked.dp_size": "DP {}",
    "asked.ep_size": "EP {}",
}

_VALUES = {
    "moe.up.source": {
        "exact": "up config found",
        "fallback": "up config of another Triton",
        "default": "no up config",
        "error": "config lookup fails",
    },
    "moe.down.source": {
        "exact": "down config found",
        "fallback": "down config of another Triton",
        "default": "no down config",
        "up": "no down config",
        "error": "config lookup fails",
    },
}

_TRUTHS = {
    "model.is_moe": ("MoE model", "dense model"),
    "model.is_multimodal": ("multimodal model", "text model"),
    "model.is_hybrid": ("hybrid model", "no state layers"),
    "moe.config_matters": ("MoE configs are read", "no MoE config is read"),
    "launch.complete": ("command fully expanded", "command not fully expanded"),
    "server.api_open": ("answers without a key", "asks for a key"),
    "server.exposed": ("reachable from other machines", "not reachable from other machines"),
    "log.ready": ("server is fired up", "never fired up"),
    "log.died": ("server died", "server did not die"),
    "log.key_shown": ("a key in clear", "no key in clear"),
    "log.deepgemm_compiling": ("compiling DeepGEMM kernels", "not compiling DeepGEMM kernels"),
    "packages.complete": ("all packages listed", "not all packages listed"),
    "packages.kernel_duplicates": ("sgl-kernel and sglang-kernel", "one kernel package"),
}

_SETTABLE = ("arg.", "asked.", "env.", "package.")

# Flags whose destination is not the flag's name (server_args.py, 0.5.7 to 0.5.23).
_FLAGS = {"fp8_gemm_runner_backend": "--fp8-gemm-backend", "fp4_gemm_runner_backend": "--fp4-gemm-backend"}


def phrase(fact: str, value: Any) -> str:
    """Return what ``fact`` says, in a few words."""
    if fact == "log.match":
        return f'"{shorten(str(value))}"'
    said = _phrase(fact, value)
    return said if is_absence(fact, value) else shorten(said)  # "not set" stands at the end


def _phrase(fact: str, value: Any) -> str:  # noqa: PLR0911 (one a family)
    family, _, name = fact.partition(".")
    if fact == "gpu.name" and isinstance(value, str):
        return bare(value)
    if isinstance(value, str) and value in _VALUES.get(fact, ()):
        return _VALUES[fact][value]
    if isinstance(value, bool) and fact in _TRUTHS:
        return _TRUTHS[fact][0 if value else 1]
    if value is not None and fact in _PHRASES:
        return _PHRASES[fact].format(literal(value))
    if family in ("arg", "asked"):
        return _argument(name, value)
    if family == "env":
        return f"{name} not set" if value is None else f"{name}={literal(value)}"
    if family == "package":
        distribution = name.replace("_", "-")
        return f"no {distribution}" if value is None else f"{distribution} {value}"
    if family == "pin":
        distribution = name.replace("_", "-")
        return f"no pin of {distribution}" if value is None else f"pins {distribution} {value}"
    if fact == "gpus" and isinstance(value, list):
        return f"{len(value)} GPUs"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{len(value)} {plainly(name)}"
    if value is None:
        return f"no {plainly(fact)}"
    if isinstance(value, bool):
        return plainly(fact) if value else f"not {plainly(fact)}"
    return f"{plainly(fact)} {literal(value)}"


def _argument(destination: str, value: Any) -> str:
    flag = _FLAGS.get(destination) or f"--{destination.replace('_', '-')}"
    if value is None or value is False:
        return f"no {flag}"
    if value is True:
        return flag
    return f"{flag} {literal(value)}"


def is_absence(fact: str, value: Any) -> bool:
    """Whether this says that something was not written, not set or not installed."""
    return fact.startswith(_SETTABLE) and (value is None or value is False)


def plainly(fact: str) -> str:
    """Return the name of ``fact`` as words: ``kv.tokens`` is "kv tokens"."""
    return fact.replace(".", " ").replace("_", " ")


def literal(value: Any) -> str:
    """Return ``value`` as an operator would write it: no quotes, lists with commas."""
    if isinstance(value, list | tuple):
        return ", ".join(literal(each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {literal(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def shorten(text: str, most: int = LONGEST) -> str:
    """Return ``text`` on one line and, where it is long and no single name, without its end."""
    text = " ".join(text.split())
    if len(text) <= most or " " not in text:
        return text
    return text[: most - 4].rsplit(" ", 1)[0].rstrip(" ,;:") + " ..."


@functools.cache
def bare(gpu: str) -> str:
    """Return the name of a GPU without its vendor."""
    return gpu.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("Instinct ") or gpu


def action(recommendation: Recommendation) -> tuple[str, bool]:
    """Return what to do, and whether that is a command to be copied (else words with a flag in them)."""
    value = recommendation.value
    if recommendation.run is not None:
        return recommendation.run, True
    if recommendation.install is not None:
        return f"pip install {shlex.quote(recommendation.install)}", True
    if recommendation.env is not None:
        if value is None:
            return f"unset {recommendation.env}", True
        return f"export {recommendation.env}={shlex.quote(str(value))}", True
    if recommendation.remove is not None:
        return f"remove {recommendation.remove}", False
    if recommendation.set is not None:
        return f"set {recommendation.set}" + ("" if value is None else f" {shlex.quote(str(value))}"), False
    return recommendation.do or "", False
