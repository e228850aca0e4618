"""Answers for SGLang's own LoRA config lookup: the real source of one release, run in this process.

Started as a child with the folder of an unpacked wheel (0.5.11 and newer). One JSON request a line, one JSON
answer a line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import types
from pathlib import Path


class Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(wheel: Path) -> None:
    keep = Keep()
    logging.basicConfig(level=logging.INFO, handlers=[keep])
    gpu = types.SimpleNamespace(name="")
    triton = types.ModuleType("triton")
    sys.modules["triton"] = triton
    for name in ("sglang", "sglang.srt"):
        sys.modules[name] = types.ModuleType(name)
    utils = types.ModuleType("sglang.srt.utils")
    utils.get_device_name = lambda: gpu.name  # type: ignore[attr-defined]
    sys.modules["sglang.srt.utils"] = utils
    (source,) = wheel.rglob("lora_tuning_config.py")
    lookup = types.ModuleType("lora_tuning_config")
    lookup.__file__ = str(source)
    exec(compile(source.read_text(), str(source), "exec"), lookup.__dict__)  # noqa: S102
    print("ready", flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        keep.lines.clear()
        triton.__version__, gpu.name = case["triton"], case["device"]  # type: ignore[attr-defined]
        os.environ["SGLANG_LORA_CONFIG_DIR"] = case["root"]
        lookup.get_lora_configs.cache_clear()
        choose = getattr(lookup, f"get_lora_{case['kernel']}_config")
        answer: dict[str, object] = {}
        try:
            answer["entry"] = choose(case["size"], case["rank"], case["slices"], case["chunk"])
        except Exception as error:  # noqa: BLE001 (whatever the release raises is the answer)
            answer["raised"] = f"{type(error).__name__}: {error}"
        answer["lines"] = list(keep.lines)
        print(json.dumps(answer), flush=True)


main(Path(sys.argv[1]))
