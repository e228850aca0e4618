"""Environment variables that switch off what SGLang or FlashInfer do, as facts that are always known.

A variable that no source tells of is not known to be set: its check counts as on, as it is by default.
"""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from sgdoctor.facts import Facts

# get_bool_env_var in srt/utils/common.py, 0.5.7 to 0.5.23: everything else, "yes" among it, is false.
_TRUE = ("true", "1")

# On for any value but the empty one: os.getenv in flashinfer/jit/env.py (0.5.3 to 0.7.2), EnvTuple in
# srt/environ.py (0.5.23).
_ANY_VALUE = {
    "flashinfer.check_off": "env.FLASHINFER_DISABLE_VERSION_CHECK",
    "network.peers_restricted": "env.SGLANG_ZMQ_ALLOWED_PEERS",
    "fp4_gemm.backend_by_variable": "env.SGLANG_FLASHINFER_FP4_GEMM_BACKEND",
}
# EnvBool in srt/environ.py (0.5.7 to 0.5.23): anything that is neither true nor false raises.
_ENV_BOOL = ("true", "1", "yes", "y")

_TRUE_VALUE = {
    "kernel.check_off": "env.SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK",
    "cudnn.check_off": "env.SGLANG_DISABLE_CUDNN_CHECK",
}
_ENV_BOOL_VALUE = {
    "memory.aiter_keeps_fraction": "env.SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION",
    "fp8_gemm.cutlass_by_variable": "env.SGLANG_SUPPORT_CUTLASS_BLOCK_FP8",
}

# Variables that chose a kernel, and the first release that does not read them (their names searched in all
# 22 releases: environ.py and every reader). 0.5.18 to 0.5.20 still warn about SGLANG_CUTLASS_MOE.
_GONE = {
    "SGLANG_CUTLASS_MOE": Version("0.5.18"),
    "SGLANG_ENABLE_FLASHINFER_FP8_GEMM": Version("0.5.10"),
    "SGLANG_ENABLE_FLASHINFER_GEMM": Version("0.5.10"),
    "SGLANG_FLASHINFER_FP4_GEMM_BACKEND": Version("0.5.10"),
    "SGLANG_SUPPORT_CUTLASS_BLOCK_FP8": Version("0.5.10"),
}
_FALSE = ("", "false", "0", "no", "n")
# The flags that take their place. What was named with one is what runs, with or without the variable: up to
# 0.5.9 a flag goes before the variable (fp8_utils.py, fp4_utils.py), and SGLANG_CUTLASS_MOE names "cutlass".
_FLAGS = {
    "SGLANG_CUTLASS_MOE": "asked.moe_runner_backend",
    "SGLANG_ENABLE_FLASHINFER_FP8_GEMM": "asked.fp8_gemm_runner_backend",
    "SGLANG_ENABLE_FLASHINFER_GEMM": "asked.fp8_gemm_runner_backend",
    "SGLANG_FLASHINFER_FP4_GEMM_BACKEND": "asked.fp4_gemm_runner_backend",
    "SGLANG_SUPPORT_CUTLASS_BLOCK_FP8": "asked.fp8_gemm_runner_backend",
}


def derive(facts: Facts) -> None:
    """Set kernel.check_off and the other names above; never raises."""
    for name, variable in (_TRUE_VALUE | _ENV_BOOL_VALUE | _ANY_VALUE).items():
        value = facts.value(variable)
        true = _ENV_BOOL if name in _ENV_BOOL_VALUE else _TRUE
        on = bool(value) if name in _ANY_VALUE else isinstance(value, str) and value.lower() in true
        facts.derive(name, on, [variable] if facts.known(variable) else [])


def gone(facts: Facts) -> None:
    """Set variables.gone: those known to be set, and not to false, that the release does not read.

    Left out are those that are not missed: the flag in their place is there, or the model is known to have no
    quantized layers, which they are about. Comes after model.quantization; never raises.
    """
    name = "variables.gone"
    try:
        release = Version(Version(facts.value("sglang.version")).base_version)
    except (InvalidVersion, TypeError):
        facts.set_unknown(name, "SGLang's version is not known", ["sglang.version"])
        return
    if facts.known("model.quantization") and facts.value("model.quantization") is None:
        facts.derive(name, [], ["model.quantization"])
        return
    values = {variable: facts.value(f"env.{variable}") for variable in _GONE}
    missed = [
        variable
        for variable, since in _GONE.items()
        if release >= since
        and (values[variable] or "").lower() not in _FALSE
        and not _replaced(facts, variable)
    ]
    facts.derive(name, missed, ["sglang.version", *(f"env.{variable}" for variable in missed)])


def _replaced(facts: Facts, variable: str) -> bool:
    """Whether the flag that took the variable's place names a kernel: for the experts, the same one."""
    named = facts.value(_FLAGS[variable])
    return named == "cutlass" if variable == "SGLANG_CUTLASS_MOE" else named not in (None, "auto")
