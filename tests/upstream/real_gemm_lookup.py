"""Answers for SGLang's own GEMM config lookups: the real functions of one release, run in this process.

Started as a child with the folder of an unpacked wheel. The functions are taken out of fp8_kernel.py and
int8_kernel.py, whose kernels need torch and Triton; what the functions ask of these is a stand-in. One JSON
request a line, one JSON answer a line.
"""

from __future__ import annotations

import ast
import functools
import json
import logging
import os
import sys
import types
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 (the functions' annotations)

FUNCTIONS = {
    "fp8_w8a8": "get_w8a8_block_fp8_configs",
    "int8_w8a8": "get_w8a8_block_int8_configs",
    "fp8_w8a8_channelwise": "get_w8a8_channelwise_fp8_configs",
}


class Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def functions(package: Path, world: dict[str, Any]) -> dict[str, Any]:
    for file in (*package.rglob("fp8_kernel.py"), *package.rglob("int8_kernel.py")):
        if "multimodal_gen" in file.parts:
            continue
        tree = ast.parse(file.read_text())
        wanted = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS.values()
        ]
        exec(compile(ast.Module(wanted, []), str(file), "exec"), world)  # noqa: S102
    return {dtype: world.get(name) for dtype, name in FUNCTIONS.items()}


def main(wheel: Path) -> None:
    keep = Keep()
    logger = logging.getLogger("lookup")
    logger.setLevel(logging.INFO)
    logger.addHandler(keep)
    now = types.SimpleNamespace(device="", compiling=False)
    dynamo = types.SimpleNamespace(is_compiling=lambda: now.compiling)
    world: dict[str, Any] = {
        "functools": functools,
        "json": json,
        "os": os,
        "logger": logger,
        "log_info_on_rank0": lambda logger, text: logger.info(text),
        "get_device_name": lambda: now.device,
        "torch": types.SimpleNamespace(_dynamo=dynamo),
        "Any": Any,
        "Dict": Dict,  # noqa: UP006
        "List": List,  # noqa: UP006
        "Optional": Optional,
        "Tuple": Tuple,  # noqa: UP006
    }
    lookups = functions(wheel / "sglang", world)
    print("ready", flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        keep.lines.clear()
        now.device, now.compiling = case["device"], case["compiling"]
        world["_is_cuda"] = case["cuda"]
        world["__file__"] = f"{case['root']}/fp8_kernel.py"
        lookup = lookups[case["dtype"]]
        answer: dict[str, Any] = {"known": lookup is not None}
        if lookup is not None:
            lookup.cache_clear()
            try:
                answer["table"] = lookup(case["rows"], case["depth"], *case["block"])
            except Exception as error:  # noqa: BLE001 (whatever the release raises is the answer)
                answer["raised"] = f"{type(error).__name__}: {error}"
        answer["lines"] = keep.lines
        print(json.dumps(answer), flush=True)


main(Path(sys.argv[1]))
