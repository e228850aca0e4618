"""Checks the fused-MoE kernel of several releases, every quantization, against float32 on a GPU.

    python bench/moe_kinds.py --kernels FOLDER --out FILE.json [--jobs 12]

FOLDER holds a folder a release (`0.5.13/sglang/...`). For each: up, down, down through TMA, up in sorted
order and up through TMA (where the launcher takes it), several tiles, ragged batch sizes, and experts that
are on other GPUs. Two combinations are expected to be wrong and prove that the check sees it: TMA with one
scale a token, and a BLOCK_SIZE_K larger than the quantization block.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sgdoctor.tune import kernel
from sgdoctor.tune.pool import Pool, WorkersFailed
from sgdoctor.tune.space import KINDS, Config, Problem, fits_quantization, takes_tma

TILES = (
    Config(16, 64, 64, 1),
    Config(32, 128, 128, 8),
    Config(64, 128, 64, 16, 4, 4),
    Config(128, 128, 64, 8, 8),
)
TOO_DEEP = Config(16, 128, 256, 1)
BLOCKS = {"fp8_block": (128, 128), "int8_block": (128, 128), "int4": (0, 64)}


def units(problem: Problem, tokens: list[int]) -> list[tuple[str, int, Config]]:
    """Return what to check for one problem."""
    tiles = [*TILES, TOO_DEEP]
    found = [(gemm, m, c) for gemm in ("up", "down") for c in tiles for m in tokens]
    if problem.kind != "int4" and not problem.absent_experts:
        for c in tiles[:3]:
            tma = dataclasses.replace(c, tma=True)
            found += [
                (gemm, m, k) for m in tokens for gemm, k in (("up_sorted", c), ("down", tma), ("up", tma))
            ]
    return found


def expected_wrong(problem: Problem, gemm: str, config: Config) -> bool:
    """Whether the tuner holds this combination to be wrong."""
    return not fits_quantization(config, problem) or (
        config.tma and gemm == "down" and not takes_tma(problem)
    )


def check(release: Path, kind: str, routed: int | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """Check one release and kind in a process of its own."""
    problem = Problem(16, 256, 512, 4, kind, BLOCKS.get(kind), routed)  # type: ignore[arg-type]
    settings = {
        "path": str(kernel.find(release / "sglang")),
        "problem": dataclasses.asdict(problem),
        "tokens": max(arguments.tokens),
        "device": arguments.device,
        "runtime_group": False,
    }
    environment = {"TRITON_INTERPRET": "1"} if arguments.device == "cpu" else {}
    todo = units(problem, arguments.tokens)
    result: dict[str, Any] = {
        "release": release.name,
        "kind": kind,
        "routed": routed,
        "checked": 0,
        "largest": 0.0,
    }
    result |= {"surprises": [], "seen_wrong": 0}
    try:
        with Pool("measure", settings, timeout=200, environment=environment) as pool:
            for i in range(0, len(todo), 6):
                part = todo[i : i + 6]
                pool.submit({"do": "verify", "units": [(g, m, c.to_list()) for g, m, c in part]})
                while pool.unfinished:
                    for outcome in pool.outcomes(wait=5):
                        errors = outcome.value if outcome.ending == "done" else [outcome.text] * len(part)
                        for (g, m, c), error in zip(part, errors, strict=True):
                            note(result, problem, (g, m, c), error)
    except WorkersFailed as error:
        result["surprises"].append(str(error))
    return result


def note(result: dict[str, Any], problem: Problem, unit: tuple[str, int, Config], error: float | str) -> None:
    """Count one comparison."""
    gemm, tokens, config = unit
    result["checked"] += 1
    right = not isinstance(error, str) and error < 0.01
    if right:
        result["largest"] = max(result["largest"], error)
    if right == expected_wrong(problem, gemm, config):
        result["surprises"].append([gemm, tokens, str(config), error])
    elif not right:
        result["seen_wrong"] += 1


def main() -> None:
    """Check everything and print what was not as expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--tokens", type=lambda s: [int(x) for x in s.split(",")], default=[1, 33, 300])
    parser.add_argument("--kinds", type=lambda s: s.split(","), default=list(KINDS))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    jobs = [
        (release, kind, routed)
        for release in sorted(arguments.kernels.iterdir())
        for kind in arguments.kinds
        for routed in ((None, 32) if kind in ("bf16", "fp8_block", "int4") else (None,))
    ]
    results = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as executor:
        for future in concurrent.futures.as_completed(
            executor.submit(check, *job, arguments) for job in jobs
        ):
            results.append(future.result())
            arguments.out.write_text(json.dumps(results, indent=0))
    for r in sorted(results, key=lambda r: (r["release"], r["kind"], str(r["routed"]))):
        name = f"{r['release']:8s} {r['kind']:12s}{' absent experts' if r['routed'] else '':15s}"
        wrong = f"{r['seen_wrong']:2d} wrong as expected"
        print(f"{name} {r['checked']:3d} checked, largest error {r['largest']:.5f}, {wrong}")
        for surprise in r["surprises"][:3]:
            print("    SURPRISE", str(surprise)[:300])


if __name__ == "__main__":
    main()
