"""Answers for SGLang's own fused-MoE config lookup: the real source of one release, run in this process.

Started as a child with the path of a release's fused_moe_triton_config.py. torch, triton and the rest of
sglang are stand-ins that hold what the lookup asks them for. A JSON list of cases a line, a list of answers a
line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import types
from pathlib import Path

LINES: list[str] = []
ANSWERS = types.SimpleNamespace(enable_deterministic_inference=False)


class _Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LINES.append(record.getMessage())


def module(name: str, **members: object) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def stand_ins() -> tuple[types.ModuleType, types.SimpleNamespace]:
    gpu = types.SimpleNamespace(name="", shared_memory=None)
    triton = module("triton", __version__="")
    cuda = types.SimpleNamespace(
        is_available=lambda: gpu.shared_memory is not None,
        current_device=lambda: 0,
        get_device_properties=lambda _: types.SimpleNamespace(
            shared_memory_per_block_optin=gpu.shared_memory
        ),
    )
    module("torch", cuda=cuda, dtype=object, float="float32")
    for name in ("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.layers.moe"):
        module(name)
    for runner in ("fused_moe_triton", "moe_runner", "moe_runner.triton_utils"):
        module(f"sglang.srt.layers.moe.{runner}", get_config=lambda: None)
    module("sglang.srt.server_args", get_global_server_args=lambda: ANSWERS)
    execution = types.SimpleNamespace(deterministic=ANSWERS)
    module("sglang.srt.runtime_context", get_server_args=lambda: ANSWERS, get_exec=lambda: execution)
    module("sglang.srt.utils", get_device_name=lambda: gpu.name, is_hip=lambda: False)
    return triton, gpu


def answer(lookup: types.ModuleType, case: dict) -> dict:
    """Return what the release makes of ``case``: both projections' configs for each number of tokens."""
    LINES.clear()
    ANSWERS.enable_deterministic_inference = case["deterministic"]
    if case["root"] is None:
        os.environ.pop("SGLANG_MOE_CONFIG_DIR", None)
    else:
        os.environ["SGLANG_MOE_CONFIG_DIR"] = case["root"]
    lookup.get_moe_configs.cache_clear()
    if hasattr(lookup, "_get_cuda_shared_memory_per_block_optin"):
        lookup._get_cuda_shared_memory_per_block_optin.cache_clear()
    said: dict[str, object] = {}
    experts, width = case["experts"], case["width"]
    try:
        said["result"] = [
            lookup.try_get_optimal_moe_config(
                (experts, 2 * width, 64),
                (experts, 64, width),
                8,
                case["dtype"],
                tokens,
                block_shape=case["block_shape"],
                per_channel_quant=case["per_channel"],
                return_down_config=True,
            )
            for tokens in case["tokens"]
        ]
    except Exception as error:  # noqa: BLE001 (whatever the release raises is the answer)
        said["raised"] = f"{type(error).__name__}: {error}"
    said["lines"] = list(LINES)
    return said


def main(source: Path) -> None:
    triton, gpu = stand_ins()
    logging.Logger.warning_once = logging.Logger.warning
    logging.basicConfig(level=logging.INFO, handlers=[_Keep()])
    lookup = types.ModuleType("fused_moe_triton_config")
    lookup.__file__ = str(source)
    exec(compile(source.read_text(), str(source), "exec"), lookup.__dict__)  # noqa: S102
    print("ready", flush=True)
    for line in sys.stdin:
        answers = []
        for case in json.loads(line):
            triton.__version__, gpu.name = case["triton"], case["device"]
            gpu.shared_memory = case.get("shared_memory")
            answers.append(answer(lookup, case))
        print(json.dumps(answers), flush=True)


main(Path(sys.argv[1]))
