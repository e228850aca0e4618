"""The step a start is in, by log lines as releases print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdoctor.upstream.log_stage import stage_of

CAPTURES = Path(__file__).parents[1] / "captures"
BANNER = "server_args=ServerArgs(model_path='/m')"
JOIN = "Init torch distributed begin."
JOINED = "Init torch distributed ends. elapsed=0.22 s, mem usage=0.09 GB"
LOAD = "Load weight begin. avail mem=139.13 GB"
LOADED = "Load weight end. elapsed=0.12 s, type=Qwen3ForCausalLM, avail mem=138.67 GB, mem usage=0.46 GB."
POOL = "KV Cache is allocated. #tokens: 8192, K size: 0.5 GB, V size: 0.5 GB"
CAPTURE = "Capture cuda graph begin. This can take up to several minutes. avail mem=68.80 GB"
CAPTURED = "Capture cuda graph end. Time elapsed: 12.09 s. mem usage=0.18 GB. avail mem=68.62 GB."
CAPTURE_NEW = "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1"
UVICORN = "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"
READY = "The server is fired up and ready to roll!"


@pytest.mark.parametrize(
    ("lines", "stage"),
    [
        ([], None),
        ([BANNER], None),
        ([BANNER, JOIN], "joining"),
        ([BANNER, JOIN, JOINED, LOAD], "loading"),
        ([BANNER, LOAD], "loading"),  # 0.5.21 and newer print nothing of the ranks
        ([BANNER, LOAD, LOADED], "sizing"),
        ([BANNER, LOAD, LOADED, POOL], "sizing"),
        ([BANNER, LOAD, LOADED, POOL, CAPTURE, "Capture cuda graph bs [1, 2, 4]"], "capturing"),
        ([BANNER, LOAD, LOADED, POOL, CAPTURE_NEW], "capturing"),
        ([BANNER, LOAD, LOADED, POOL, CAPTURE, CAPTURED], "capturing"),
        ([LOAD, LOADED, CAPTURE, CAPTURED, UVICORN], "warming_up"),
        ([LOAD, LOADED, CAPTURE, CAPTURED, UVICORN, READY], "ready"),
        # One of two ranks is late: the server waits for it.
        ([BANNER, JOIN, JOIN, JOINED], "joining"),
        ([BANNER, LOAD, LOAD, LOADED, POOL], "loading"),
        # A start after a death in the middle of another.
        ([BANNER, LOAD, BANNER, JOIN], "joining"),
        (["Load weight end.", "anything else"], None),
    ],
)
def test_stages(lines: list[str], stage: str | None) -> None:
    assert stage_of(lines) == stage


@pytest.mark.parametrize(
    ("folder", "stage"), [("dense-healthy", "ready"), ("mem-fraction-too-small", "sizing")]
)
def test_captured_starts(folder: str, stage: str) -> None:
    lines = (CAPTURES / folder / "server.log").read_text(errors="replace").splitlines()
    assert stage_of(lines) == stage
