"""Behaves as SGLang's tuner does towards who starts it: flags, what it prints, the file, and how it fails.

STAND_IN says what goes wrong, FAILS_AT at which batch size (0: at all).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from common_utils import file_name, model_shape

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--tp-size", type=int, default=2)
parser.add_argument("--ep-size", type=int, default=1)
parser.add_argument(
    "--dtype", choices=["auto", "fp8_w8a8", "int8_w8a16", "int8_w8a8", "int4_w4a16"], default="auto"
)
parser.add_argument("--per-channel-quant", action="store_true")
parser.add_argument("--batch-size", type=int)
parser.add_argument("--tune", action="store_true")
parser.add_argument("--disable-shared-experts-fusion", action="store_true")
args = parser.parse_args()

Path("asked.json").write_text(
    json.dumps(
        {
            "flags": sys.argv[1:],
            "pid": os.getpid(),
            "environment": {k: v for k, v in os.environ.items() if k.startswith(("RAY_", "CUDA_"))},
        }
    )
)
fails = int(os.environ.get("FAILS_AT", "0")) in (0, args.batch_size)
trouble = os.environ.get("STAND_IN", "") if fails else ""

if trouble == "import":
    import sglang_of_another_release  # noqa: F401
if trouble == "ray":
    raise ModuleNotFoundError("No module named 'ray'")
shape = model_shape(args)
if trouble == "no GPU":
    raise KeyError("GPU")

total = 1920
name = file_name(shape, args)
print(f"Start tuning over {total} configurations to create {name}...", flush=True)
for done in range(0, total + 1, 480):
    # as ray.experimental.tqdm_ray draws it: coloured, rounded, redrawn with a carriage return
    shown = f"{done:.1f}" if done < 1000 else f"{done / 1000:.2f}k"
    who = f"\x1b[2m\x1b[36m(pid={os.getpid()}) \x1b[0m"
    sys.stderr.write(f"\r{who}: {done // 20}%|█  | {shown}/1.92k [00:01<00:01, 20.9it/s]")
    sys.stderr.flush()
    if done and trouble == "out of memory":
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has 139.81 GiB in total")
    if done and trouble == "CUDA error":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if done and trouble == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if done and trouble == "hang":
        time.sleep(3600)
if trouble == "nothing ran":
    best_config = None
    assert best_config is not None
if trouble == "strange":
    raise ZeroDivisionError("division by zero")
if trouble != "no file":
    block_k = 256 if trouble == "BLOCK_SIZE_K" else 64
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": 1}
    content = {args.batch_size: {**config, "num_warps": 4, "num_stages": 4}}
    Path(name).write_text(json.dumps(content) if trouble != "half a file" else '{"1": {')
print(f"Completed tuning for batch_size={args.batch_size}")
