"""Tunes shapes on this machine's GPU as `sgdoctor fix --tune-moe` does, and judges the results by a matrix.

    python bench/moe_live.py --sglang WHEEL_OR_FOLDER --release 0.5.13 --shape e256 --shape e128 --out DIR

For each shape: the tuning, from an empty cache of compiled kernels, with its wall time; then, for every batch
size, the chosen pair and the best pair of the measured matrix (tests/tune/matrices) timed against each other,
whole expert computations interleaved, the matrix's pair twice: the ratio of the first two is the loss, that
of the last two the noise floor. DIR/NAME.json has it all, DIR/NAME.journal.jsonl.xz every sample.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from moe_matrix import gpu_state, package

from sgdoctor.tune import kernel, tuner, workers
from sgdoctor.tune.choose import compile_exact
from sgdoctor.tune.compile import problem_from
from sgdoctor.tune.journal import Journal
from sgdoctor.tune.model import EFFORTS, Job, Pair, Progress, Tuning
from sgdoctor.tune.replay import Matrix
from sgdoctor.tune.run import Run
from sgdoctor.tune.space import Config, default_config

MATRICES = Path(__file__).parents[1] / "tests/tune/matrices"
ROUNDS = 31
TURNS = ("first", "second", "third")


def job_of(matrix: Matrix, path: Path, release: str, triton: str) -> Job:
    """Return the job of a matrix's shape, against the release's own file where it has one."""
    problem = problem_from(matrix.problem)
    default = {m: Pair(*[default_config(problem, m)] * 2) for m in matrix.tokens}
    today, source, words = default, "default", "the built-in default"
    if matrix.bundled:
        files = {int(m): {g: Config.from_list(c) for g, c in e.items()} for m, e in matrix.bundled.items()}
        today = {m: Pair(e["up"], e.get("down", e["up"])) for m, e in files.items()}
        source, words = "fallback", "the file of another Triton"
    return Job(
        problem,
        (9, 0),
        "NVIDIA H200",
        release,
        triton,
        str(path),
        "up.json",
        "up_down.json",
        today,
        source,
        words,
        default,
        batch_sizes=tuple(matrix.tokens),
    )


def best_of(matrix: Matrix, tokens: int) -> Pair:
    """Return the matrix's best pair with one BLOCK_SIZE_M, by the sum of its products' times."""
    best: dict[str, dict[int, tuple[float, Config]]] = {"up": {}, "down": {}}
    for (gemm, m, config), time_ in matrix.times.items():
        if m == tokens and gemm in best:
            least = best[gemm].get(config.block_m, (math.inf, config))
            best[gemm][config.block_m] = min(least, (time_, config))
    block = min(best["up"].keys() & best["down"].keys(), key=lambda b: best["up"][b][0] + best["down"][b][0])
    return Pair(best["up"][block][1], best["down"][block][1])


def quality(run: Run, matrix: Matrix, tuning: Tuning) -> list[dict[str, Any]]:
    """Return, for every batch size, the loss against the matrix's best pair and the noise floor."""
    rows = []
    pairs = {line.tokens: (line.tuned, best_of(matrix, line.tokens)) for line in tuning.lines}
    compile_exact(run, [(m, pair) for m, both in pairs.items() for pair in both])
    for tokens, (ours, best) in pairs.items():
        found = _time(run, tokens, ours, best)
        if found is None:
            continue
        whole, floor, products = found
        row = {"tokens": tokens, "same": ours == best, "loss": whole - 1, "floor": abs(floor - 1)}
        rows.append({**row, "products": products - 1, "ours": ours.to_list(), "best": best.to_list()})
    return rows


def _time(run: Run, tokens: int, ours: Pair, best: Pair) -> tuple[float, float, float] | None:
    """Return ours / best, best / best again (whole), ours / best (sum of products), medians of ratios."""
    fields = [[tokens, *pair.to_list()] for pair in (ours, best, best)]
    run.workers.measure.submit({"do": "pairs", "pairs": fields, "rounds": ROUNDS, "parts": True})
    for _ in range(60):
        for outcome in run.workers.measure.outcomes(wait=1.0):
            if outcome.ending != "done" or any(isinstance(each, str) for each in outcome.value):
                print(f"{tokens} tokens: {outcome.ending} {outcome.text} {outcome.value}", flush=True)
                return None
            first, second, third = outcome.value
            sums = [
                [a + b for a, b in zip(each["up"], each["down"], strict=True)] for each in (first, second)
            ]
            return (
                _ratio(first["whole"], second["whole"]),
                _ratio(second["whole"], third["whole"]),
                _ratio(*sums),
            )
    return None


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def show(name: str, tuning: Tuning, rows: list[dict[str, Any]]) -> None:
    """Print a line a batch size and the summary."""
    by_tokens = {row["tokens"]: row for row in rows}
    print(f"{name}: tokens | today, default, new us | new/today, new/default | loss, floor, products | kept")
    for line in tuning.lines:
        row = by_tokens.get(line.tokens, {"loss": math.nan, "floor": math.nan, "products": math.nan})
        times = [line.today.whole, line.default.whole, line.new.whole]
        print(
            f"{line.tokens:5d} | {times[0]:8.1f} {times[1]:8.1f} {times[2]:8.1f} | "
            f"{times[0] / times[2]:.3f} {times[1] / times[2]:.3f} | "
            f"{row['loss']:+.2%} {row['floor']:.2%} {row['products']:+.2%} | "
            f"{line.kept} {line.tuned.up}; {line.tuned.down}"
        )
    losses = [row["loss"] for row in rows]
    floor = statistics.median(row["floor"] for row in rows)
    print(
        f"{name}: {tuning.seconds:.0f} s, gain {tuning.gain:.4f} over today, "
        f"{tuning.gain_over_default:.4f} over the default; "
        f"loss median {statistics.median(losses):+.2%}, worst {max(losses):+.2%}; "
        f"noise floor median {floor:.2%}; dropped {tuning.dropped}; {tuning.about}",
        flush=True,
    )


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sglang", type=Path, required=True)
    parser.add_argument("--release", default="0.5.13")
    parser.add_argument("--triton", default="3.6.0")
    parser.add_argument("--shape", action="append", required=True)
    parser.add_argument("--effort", choices=EFFORTS, default="balanced")
    parser.add_argument("--gpu", action="append", default=None, help="CUDA_VISIBLE_DEVICES of a worker")
    parser.add_argument("--replay", action="store_true", help="replay the matrix in place of a GPU")
    parser.add_argument("--no-quality", dest="quality", action="store_false")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def one(arguments: argparse.Namespace, root: Path, number: int, name: str) -> None:
    """Tune one shape and write what came of it."""
    matrix_file = MATRICES / f"{name}.json.xz"
    matrix = Matrix(matrix_file)
    job = job_of(matrix, kernel.find(root), arguments.release, arguments.triton)
    started, said = time.monotonic(), [0.0]

    def listen(progress: Progress) -> None:
        if time.monotonic() - said[0] > 8:
            said[0] = time.monotonic()
            best = {m: round(gain, 2) for m, gain in progress.best.items()}
            print(
                f"[{said[0] - started:5.1f}] {progress.doing} {progress.done}/{progress.total} {best}",
                flush=True,
            )

    label = f"{number}-{name}"
    with tempfile.TemporaryDirectory() as cache:
        journal = Path(cache) / "journal.jsonl"
        gpus = arguments.gpu or ["0"]
        made = (
            workers.replayed(matrix_file)
            if arguments.replay
            else workers.local(job, gpus, python=sys.executable, cache=Path(cache) / "triton")
        )
        state = gpu_state()
        with made:
            tuning = tuner.tune(job, made, effort=arguments.effort, journal=journal, listen=listen)
            seconds = time.monotonic() - started
            print(f"{label}: from nothing to the proven table in {seconds:.1f} s", flush=True)
            rows = []
            with Journal(Path(cache) / "quality.jsonl", {}) as scratch:
                if arguments.quality:
                    rows = quality(Run(job, made, scratch), matrix, tuning)
        if rows:
            show(label, tuning, rows)
        lines = [
            {
                "tokens": line.tokens,
                "us": [[t.whole, t.error, t.up, t.down] for t in (line.today, line.default, line.new)],
                "kept": line.kept,
                "pair": line.pair.to_list(),
            }
            for line in tuning.lines
        ]
        about = {"gpu": [state, gpu_state()], "command": " ".join(sys.argv), **tuning.about}
        result = {"about": about, "seconds": seconds, "gain": tuning.gain, "lines": lines, "quality": rows}
        (arguments.out / f"{label}.json").write_text(json.dumps(result, indent=1))
        packed = lzma.compress(journal.read_bytes(), preset=1)
        (arguments.out / f"{label}.journal.jsonl.xz").write_bytes(packed)


def main() -> None:
    """Run."""
    arguments = read_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    root = package(arguments.sglang)
    for number, name in enumerate(arguments.shape):
        one(arguments, root, number, name)


if __name__ == "__main__":
    main()
