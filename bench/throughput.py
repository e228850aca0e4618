"""Measures the tokens per second of an SGLang server: fixed sets of random requests, in closed loops.

    python3 bench/throughput.py http://127.0.0.1:30000 --out FILE.json

Requests are token ids sent to /generate, different ones in each repeat, so that the prefix cache finds none
of them again; the same in each run of this script, so that two runs can be compared. Answers are sampled at
temperature 1 with the end of sequence ignored: with random weights, greedy decoding would repeat one token
and send all of them to the same experts.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import urllib3

VOCABULARY = range(3, 1000)
REPEATS = 2
REQUEST_SECONDS = 30


@dataclass(frozen=True)
class Load:
    """``requests`` of ``input_tokens`` that ask for ``output_tokens`` each, ``concurrency`` at a time."""

    name: str
    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int

    def part(self, share: int) -> Load:
        """Return this load with one request in ``share``, for warming up; never less than one round."""
        return replace(self, requests=max(self.concurrency, self.requests // share))


@dataclass(frozen=True)
class Result:
    """What one load gave: seconds, tokens as the server counted them, failures by what was said."""

    load: Load
    repeat: int
    seconds: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    latency_median: float | None
    failures: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as a dictionary, with the tokens per second."""
        return asdict(self) | {
            "input_tokens_per_second": round(self.input_tokens / self.seconds, 1),
            "output_tokens_per_second": round(self.output_tokens / self.seconds, 1),
        }


LOADS = (
    *(Load("decode", c, n, 128, 256) for c, n in ((1, 4), (16, 48), (64, 128), (256, 512))),
    *(Load("prefill", c, n, 2048, 1) for c, n in ((1, 24), (16, 96), (64, 192), (256, 256))),
)


def body(load: Load, draw: random.Random) -> bytes:
    """Return one request for /generate, as JSON."""
    sampling = {"max_new_tokens": load.output_tokens, "temperature": 1.0, "ignore_eos": True}
    ids = draw.choices(VOCABULARY, k=load.input_tokens)
    return json.dumps({"input_ids": ids, "sampling_params": sampling}).encode()


def run(url: str, load: Load, repeat: int = 0) -> Result:
    """Send one load to the server at ``url`` and return what came of it; a failed request is counted."""
    # The seed makes the same requests in every run.
    draw = random.Random(f"{load.name} {load.concurrency} {repeat}")  # noqa: S311
    bodies = [body(load, draw) for _ in range(load.requests)]
    timeout = urllib3.Timeout(total=REQUEST_SECONDS)

    def send(content: bytes) -> tuple[float, dict[str, int] | str]:
        began = time.perf_counter()
        try:
            answer = pool.request("POST", "/generate", body=content, headers=headers)
            said = answer.json()["meta_info"] if answer.status == 200 else f"HTTP {answer.status}"
        except (urllib3.exceptions.HTTPError, ValueError, LookupError, TypeError) as error:
            said = f"{type(error).__name__}: {error}"
        return time.perf_counter() - began, said

    headers = {"Content-Type": "application/json"}
    with (
        urllib3.connection_from_url(url, maxsize=load.concurrency, timeout=timeout, retries=False) as pool,
        concurrent.futures.ThreadPoolExecutor(load.concurrency) as threads,
    ):
        began = time.perf_counter()
        answers = list(threads.map(send, bodies))
        seconds = time.perf_counter() - began
    good = [(latency, said) for latency, said in answers if not isinstance(said, str)]
    return Result(
        load=load,
        repeat=repeat,
        seconds=round(seconds, 4),
        input_tokens=sum(said["prompt_tokens"] for _, said in good),
        cached_tokens=sum(said.get("cached_tokens", 0) for _, said in good),
        output_tokens=sum(said["completion_tokens"] for _, said in good),
        latency_median=round(statistics.median(t for t, _ in good), 4) if good else None,
        failures=tuple(said for _, said in answers if isinstance(said, str)),
    )


def sweep(
    url: str,
    loads: Sequence[Load] = LOADS,
    *,
    repeats: int = REPEATS,
    seconds: float = 120,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Warm up, then run all loads ``repeats`` times; after ``seconds`` no further load is begun."""
    until = time.monotonic() + seconds
    for load in loads:
        if time.monotonic() < until:
            run(url, load.part(4), repeat=-1)
    results = []
    for repeat in range(repeats):
        for load in loads:
            if time.monotonic() >= until:
                say(f"{load.name} at {load.concurrency}, repeat {repeat}: left out, {seconds:.0f} s are over")
                continue
            result = run(url, load, repeat)
            results.append(result)
            said = result.to_json()
            say(
                f"{load.name} at {load.concurrency}, repeat {repeat}: {result.seconds:.2f} s, "
                f"in {said['input_tokens_per_second']:.0f}, out {said['output_tokens_per_second']:.0f} "
                f"tokens/s, {len(result.failures)} failed"
            )
    return results


def compare(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, by load, the mean tokens per second before and after, and their ratio.

    Output tokens count, or input tokens where one output each was asked for. ``spread`` is how much repeats
    differ: the noise to hold the ratio against.
    """

    def rates(results: Sequence[dict[str, Any]], name: str, concurrency: int) -> list[float]:
        of = "output" if name == "decode" else "input"
        return [
            result[f"{of}_tokens_per_second"]
            for result in results
            if (result["load"]["name"], result["load"]["concurrency"]) == (name, concurrency)
        ]

    lines = []
    for name, concurrency in dict.fromkeys((r["load"]["name"], r["load"]["concurrency"]) for r in before):
        was, now = rates(before, name, concurrency), rates(after, name, concurrency)
        if now and min(*was, *now) > 0:
            lines.append(
                {
                    "load": name,
                    "concurrency": concurrency,
                    "before": round(statistics.mean(was), 1),
                    "after": round(statistics.mean(now), 1),
                    "ratio": round(statistics.mean(now) / statistics.mean(was), 4),
                    "spread": round(max(max(r) / min(r) - 1 for r in (was, now)), 4),
                }
            )
    return lines


def main() -> None:
    """Measure one server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    results = sweep(arguments.url)
    arguments.out.write_text(json.dumps([result.to_json() for result in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
