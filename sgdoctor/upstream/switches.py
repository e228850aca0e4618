"""Environment variables that switch off what SGLang or FlashInfer do, as facts that are always known.

A variable that no source tells of is not known to be set: its check counts as on, as it is by default.
"""

from __future__ import annotations

from sgdoctor.facts import Facts

# get_bool_env_var in srt/utils/common.py, 0.5.7 to 0.5.23: everything else, "yes" among it, is false.
_TRUE = ("true", "1")

# On for any value but the empty one: os.getenv in flashinfer/jit/env.py (0.5.3 to 0.7.2), EnvTuple in
# srt/environ.py (0.5.23).
_ANY_VALUE = {
    "flashinfer.check_off": "env.FLASHINFER_DISABLE_VERSION_CHECK",
    "network.peers_restricted": "env.SGLANG_ZMQ_ALLOWED_PEERS",
}
# EnvBool in srt/environ.py (0.5.19 to 0.5.23): anything that is neither true nor false raises.
_ENV_BOOL = ("true", "1", "yes", "y")

_TRUE_VALUE = {
    "kernel.check_off": "env.SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK",
    "cudnn.check_off": "env.SGLANG_DISABLE_CUDNN_CHECK",
}
_ENV_BOOL_VALUE = {"memory.aiter_keeps_fraction": "env.SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION"}


def derive(facts: Facts) -> None:
    """Set kernel.check_off and the other names above."""
    for name, variable in (_TRUE_VALUE | _ENV_BOOL_VALUE | _ANY_VALUE).items():
        value = facts.value(variable)
        true = _ENV_BOOL if name in _ENV_BOOL_VALUE else _TRUE
        on = bool(value) if name in _ANY_VALUE else isinstance(value, str) and value.lower() in true
        facts.derive(name, on, [variable] if facts.known(variable) else [])
