"""The load generator, against a server that counts."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import throughput
from bench.stand_in_server import READY

REPOSITORY = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(REPOSITORY / "bench/stand_in_server.py"), "serve", "--port", str(port)]
    places = ["--capture", str(REPOSITORY / "tests/captures/moe-no-config")]
    places += ["--configs", str(tmp_path_factory.mktemp("configs"))]
    with subprocess.Popen([*command, *places], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if READY in line:
                break
        yield f"http://127.0.0.1:{port}"
        process.kill()


def test_tokens_are_those_that_the_server_counted(url: str) -> None:
    result = throughput.run(url, throughput.Load("decode", 8, 20, 16, 4))
    assert result.failures == ()
    assert (result.input_tokens, result.output_tokens) == (20 * 16, 20 * 4)
    said = result.to_json()
    # The seconds are rounded in both.
    assert said["output_tokens_per_second"] == pytest.approx(80 / result.seconds, abs=0.1)


def test_failures_are_counted_not_raised() -> None:
    result = throughput.run(f"http://127.0.0.1:{free_port()}", throughput.Load("decode", 2, 3, 4, 4))
    assert len(result.failures) == 3
    assert "NewConnectionError" in result.failures[0]
    assert (result.output_tokens, result.latency_median) == (0, None)


def test_repeats_send_other_requests_and_runs_the_same_ones() -> None:
    load = throughput.Load("prefill", 1, 1, 32, 1)
    first, again, other = (throughput.body(load, random.Random(seed)) for seed in (1, 1, 2))  # noqa: S311
    assert first == again != other


def test_a_sweep_runs_every_load_in_every_repeat_until_its_time_is_over(url: str) -> None:
    loads = (throughput.Load("decode", 1, 2, 4, 2), throughput.Load("prefill", 2, 2, 8, 1))
    said: list[str] = []
    results = throughput.sweep(url, loads, repeats=2, say=said.append)
    assert [(r.load.name, r.repeat) for r in results] == [
        ("decode", 0),
        ("prefill", 0),
        ("decode", 1),
        ("prefill", 1),
    ]
    assert throughput.sweep(url, loads, repeats=1, seconds=0, say=said.append) == []
    assert "left out" in said[-1]


def test_before_and_after_are_compared_by_load() -> None:
    def result(name: str, out: float, taken: float) -> dict[str, object]:
        load = {"name": name, "concurrency": 16}
        return {"load": load, "output_tokens_per_second": out, "input_tokens_per_second": taken}

    before = [result("decode", 100, 50), result("decode", 110, 55), result("prefill", 1, 1000)]
    after = [result("decode", 126, 63), result("prefill", 1, 900)]
    decode, prefill = throughput.compare(before, after)
    assert decode == {
        "load": "decode",
        "concurrency": 16,
        "before": 105.0,
        "after": 126.0,
        "ratio": 1.2,
        "spread": 0.1,
    }
    assert prefill["ratio"] == 0.9
