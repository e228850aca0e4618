"""Whether CUDA graphs for decode are switched off, by whichever of SGLang's flags.

From 0.5.14 on four flags write into one setting. The JSON of ``--cuda-graph-config`` goes before
``--cuda-graph-backend-decode``, and that before ``--disable-decode-cuda-graph`` and ``--disable-cuda-graph``
(``_parse_cuda_graph_config`` in srt/server_args.py of 0.5.14 to 0.5.18, in arg_groups/cuda_graph_hook.py of
0.5.19 to 0.5.23). Older releases have ``--disable-cuda-graph`` alone.
"""

from __future__ import annotations

from typing import Any

from sgdoctor.facts import NOT_ASKED, Facts, Unknown
from sgdoctor.upstream.asked_view import FLAGS_KNOWN, Open

ASKED = "graph.decode_off_asked"
IN_EFFECT = "graph.decode_off"

_CONFIG = "cuda_graph_config"
_BACKEND = "cuda_graph_backend_decode"
_SWITCHES = ("disable_decode_cuda_graph", "disable_cuda_graph")


def derive(facts: Facts) -> None:
    """Set ``graph.decode_off_asked`` (by the operator) and ``graph.decode_off``, or say what is missing."""
    config = f"arg.{_CONFIG}" if facts.known(f"arg.{_CONFIG}") else f"asked.{_CONFIG}"
    _settle(facts, ASKED, "asked", f"asked.{_CONFIG}")
    _settle(facts, IN_EFFECT, "arg", config)


def _settle(facts: Facts, name: str, family: str, config: str) -> None:
    inputs: list[str] = []
    try:
        backend = decode_backend(_told(facts, config, inputs))
        if backend is None:
            backend = _told(facts, f"{family}.{_BACKEND}", inputs)
        if backend is not None:
            facts.derive(name, backend == "disabled", inputs[-1:])
            return
        off = [bool(_told(facts, f"{family}.{switch}", inputs)) for switch in _SWITCHES]
    except Open as undecided:
        facts.set_unknown(name, str(undecided), undecided.missing)
        return
    facts.derive(name, any(off), inputs)


def decode_backend(config: Any) -> str | None:
    """Return the backend that ``--cuda-graph-config`` names for decode, None where it names none."""
    phase = config.get("decode") if isinstance(config, dict) else None
    backend = phase.get("backend") if isinstance(phase, dict) else None
    return backend if isinstance(backend, str) else None


def _told(facts: Facts, name: str, inputs: list[str]) -> Any:
    """Return the fact's value, None for a flag that was not written; raises Open where it is not known."""
    fact = facts.get(name)
    if not isinstance(fact, Unknown):
        inputs.append(name)
        return fact.value
    if name.startswith("asked.") and fact.reason == NOT_ASKED and facts.value(FLAGS_KNOWN, default=False):
        return None
    raise Open(f"{name} is not known", (name,))
