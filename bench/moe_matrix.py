"""Times the whole filtered grid of the fused-MoE kernel for one shape: the matrix that replay tests stand on.

    python bench/moe_matrix.py --sglang WHEEL_OR_FOLDER --experts 256 --width 256 --hidden 3072 --topk 8 \
        --kind bf16 --out DIR [--seconds 300] [--check]

Compiles in a pool of processes while the GPU times what is ready. Every tile is timed at GROUP_SIZE_M 1 and
16 and all batch sizes; what comes within 30% of the best, at 8, 32 and 64 too; the best dozen, the built-in
default and the bundled files' entries are then timed again, interleaved, in two separate passes whose
difference is the noise. Every result is in DIR/journal.jsonl as soon as it is there; DIR/matrix.json is the
fixture, DIR/table.txt the table. With --check: outputs of random configurations against the float32
reference, whether a compile without a GPU filled the cache that a launch reads, and what the run-time
GROUP_SIZE_M costs. --device cpu rehearses it all under Triton's interpreter; its times mean nothing.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from moe_check import check
from moe_fixture import AGAIN, EXPLORE, REFINE, SORTED, SUSTAINED, WIDEN, Key, Points, fixture, notes, table

from sgdoctor.tune import kernel
from sgdoctor.tune.journal import Journal
from sgdoctor.tune.pool import Outcome, Pool
from sgdoctor.tune.space import (
    BATCH_SIZES,
    Config,
    Problem,
    candidates,
    default_config,
    shared_memory_limit,
    takes_tma,
)

FIRST_GROUPS = (1, 16)
MORE_GROUPS = (8, 32, 64)
NEAR = 1.3
FINALISTS = 12
EXPECTED = {"shared memory", "spills", "OutOfResources"}


def package(source: Path) -> Path:
    """Return the `sglang` folder of a wheel (unpacked as far as needed) or of a folder."""
    if source.is_dir():
        return source / "sglang" if (source / "sglang").is_dir() else source
    target = Path(tempfile.mkdtemp(prefix="sglang-"))
    with zipfile.ZipFile(source) as wheel:
        names = [n for n in wheel.namelist() if "fused_moe_triton_kernels" in n or "/configs/triton_" in n]
        wheel.extractall(target, names)
    return target / "sglang"


def bundled(root: Path, problem: Problem, device: str) -> dict[str, dict[int, Config]]:
    """Return the entries of the release's files for this shape, of the newest Triton that has them."""
    dtype = "" if problem.kind in ("bf16", "fp16") else f",dtype={problem.kind.split('_')[0]}_w8a8"
    block = f",block_shape=[{problem.block[0]}, {problem.block[1]}]" if problem.block else ""
    stem = f"E={problem.experts},N={problem.width},device_name={device}{dtype}{block}"
    folders = sorted(
        root.rglob("configs/triton_*"), key=lambda p: [int(x) for x in p.name.split("_")[1:]], reverse=True
    )
    found: dict[str, dict[int, Config]] = {}
    for gemm, suffix in (("up", ""), ("down", "_down")):
        for folder in folders:
            file = folder / f"{stem}{suffix}.json"
            if file.is_file() and gemm not in found:
                entries = json.loads(file.read_text())
                found[gemm] = {int(m): Config.from_sglang(e) for m, e in entries.items()}
                print(f"bundled {gemm}: {folder.name}/{file.name}", flush=True)
    return found


def nearest(entries: dict[int, Config], tokens: int) -> Config:
    """Return the entry that SGLang picks for a batch size."""
    return entries[min(entries, key=lambda key: abs(key - tokens))]


@dataclasses.dataclass
class Matrix:
    """The run: what is compiled, what is timed, what is left to do."""

    arguments: argparse.Namespace
    problem: Problem
    root: Path
    measure: Pool
    compiler: Pool
    journal: Journal
    deadline: float
    points: Points
    started: float = dataclasses.field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print a line with the time."""
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)

    @property
    def tokens(self) -> list[int]:
        """The batch sizes."""
        return self.arguments.tokens

    def incumbents(self) -> dict[str, list[Config]]:
        """Return, for each product, what SGLang could use today: the default, and the bundled entries."""
        files = bundled(self.root, self.problem, self.arguments.device_name)
        both: dict[str, list[Config]] = {"up": [], "down": []}
        for m in self.tokens:
            both["up"].append(default_config(self.problem, m))
            both["down"].append(default_config(self.problem, m))
            for gemm, entries in files.items():
                both[gemm].append(nearest(entries, m))
                if gemm == "up":
                    both["down"].append(nearest(entries, m))
        return {gemm: list(dict.fromkeys(configs)) for gemm, configs in both.items()}

    def tiles(self, incumbents: dict[str, list[Config]]) -> list[tuple[str, Config]]:
        """Return what is to be compiled: incumbents first, then the grid in random order, TMA last."""
        order = [(gemm, c.tile) for gemm, configs in incumbents.items() for c in configs]
        plain, tma = [], []
        for gemm in ("up", "down"):
            for c in candidates(self.problem, gemm, (9, 0), groups=(1,)):
                plain.append((gemm, c))
                if gemm == "down" and takes_tma(self.problem) and self.arguments.tma:
                    tma.append((gemm, dataclasses.replace(c, tma=True)))
        shuffled = random.Random(0)  # noqa: S311
        shuffled.shuffle(plain)
        shuffled.shuffle(tma)
        plain = plain[: self.arguments.limit]
        return list(dict.fromkeys(order + plain + tma[: self.arguments.limit]))

    def explore(self, incumbents: dict[str, list[Config]], until: float) -> None:
        """Compile and time every tile at all batch sizes, at the first groups and the incumbents' own."""
        for gemm, tile in self.tiles(incumbents):
            self.compiler.submit({"gemm": gemm, "config": tile.to_list()})
        ready: collections.deque[dict[str, Any]] = collections.deque()
        last = 0.0
        while (self.compiler.unfinished or ready or self.measure.unfinished) and time.monotonic() < until:
            for outcome in self.compiler.outcomes():
                tile = self.judge(outcome)
                if tile is not None:
                    groups = set(FIRST_GROUPS) | {c.group_m for c in incumbents[tile[0]] if c.tile == tile[1]}
                    ready.append(self.task(tile[0], tile[1], sorted(groups), rounds=2))
            while ready and self.measure.free > 0:
                self.measure.submit(ready.popleft())
            for outcome in self.measure.outcomes(wait=0.05):
                self.note(outcome)
            if time.monotonic() - last > 15:
                last = time.monotonic()
                timed = len(self.points.samples)
                self.say(f"to compile {self.compiler.unfinished}, to time {len(ready)}, timed {timed}")
        self.say(
            f"explored {len(self.points.samples)}; dropped {dict(self.points.dropped)}, untimed {len(ready)}"
        )

    def task(self, gemm: str, tile: Config, groups: list[int], rounds: int) -> dict[str, Any]:
        """Return the task that times a tile at all batch sizes."""
        units = [
            (gemm, m, dataclasses.replace(tile, group_m=g).to_list()) for m in self.tokens for g in groups
        ]
        return {"do": "time", "units": units, "rounds": rounds, "phase": EXPLORE}

    def judge(self, outcome: Outcome) -> tuple[str, Config] | None:
        """Return the tile when what came out of the compiler can run without spilling."""
        gemm, tile = outcome.task["gemm"], Config.from_list(outcome.task["config"])
        record = {"compile": [gemm, tile.to_list()], "ending": outcome.ending}
        record["result"] = outcome.value if outcome.ending == "done" else outcome.text
        self.keep(record)
        if outcome.ending != "done":
            return None
        if outcome.value["shared"] > shared_memory_limit((9, 0)):
            self.points.dropped["shared memory"] += 1
            return None
        if outcome.value["stack"] and not self.arguments.spilling:
            self.points.dropped["spills"] += 1
            return None
        return gemm, tile

    def note(self, outcome: Outcome) -> None:
        """Keep the samples of a task."""
        units = outcome.task["units"]
        if outcome.ending != "done":
            self.keep({"units": units, "ending": outcome.ending, "text": outcome.text})
            self.say(f"{outcome.ending}: {outcome.text} in {units[0]}")
            return
        rounded = [r if isinstance(r, str) else [round(x, 3) for x in r] for r in outcome.value]
        self.keep({"phase": outcome.task["phase"], "units": units, "samples": rounded})

    def drain(self) -> None:
        """Wait for what is still being timed."""
        while self.measure.unfinished:
            for outcome in self.measure.outcomes(wait=1.0):
                self.note(outcome)

    def keep(self, record: dict[str, Any]) -> None:
        """Write a record and take it in."""
        self.journal.append(record)
        self.points.add(record)

    def run_all(self, batches: list[dict[str, Any]], phase: int, until: float) -> None:
        """Time batches one after the other."""
        queue = collections.deque(batches)
        while (queue or self.measure.unfinished) and time.monotonic() < until:
            while queue and self.measure.free > 0:
                self.measure.submit({**queue.popleft(), "phase": phase})
            for outcome in self.measure.outcomes(wait=0.5):
                self.note(outcome)
        self.say(f"phase {phase}: {len(batches) - len(queue)} of {len(batches)} batches")

    def widen(self, until: float) -> None:
        """Time what came near the best at all groups."""
        batches = []
        for gemm in ("up", "down"):
            points = []
            for product, m, tma in self.products():
                if product != gemm:
                    continue
                ranked = self.points.ranked(gemm, m, tma=tma)
                tiles = dict.fromkeys(c.tile for t, c in ranked if t <= NEAR * ranked[0][0])
                points += [
                    (gemm, m, dataclasses.replace(c, group_m=g).to_list())
                    for c in tiles
                    for g in (*FIRST_GROUPS, *MORE_GROUPS)
                ]
            # large batches one after the other would meet the power limit
            random.Random(2).shuffle(points)  # noqa: S311
            batches += [
                {"do": "time", "units": points[i : i + 40], "rounds": 3} for i in range(0, len(points), 40)
            ]
        self.run_all(batches, WIDEN, until)

    def products(self) -> list[tuple[str, int, bool]]:
        """Return what has a best of its own: product, batch size, with TMA or not."""
        return sorted({(g, m, c.tma) for g, m, c in self.points.samples}, key=lambda p: (p[1], p[0], p[2]))

    def finalists(self, incumbents: dict[str, list[Config]], count: int) -> list[Key]:
        """Return the best points of every product and the incumbents, of all batch sizes in turn."""
        columns = []
        for gemm, m, tma in self.products():
            if gemm in incumbents:
                best = [c for _, c in self.points.ranked(gemm, m, tma=tma)[:count]]
                known = [c for c in incumbents[gemm] if c.tma == tma and (gemm, m, c) in self.points.samples]
                columns.append([(gemm, m, c) for c in dict.fromkeys(best + known)])
        return [key for row in itertools.zip_longest(*columns) for key in row if key]

    def refine(self, incumbents: dict[str, list[Config]], until: float) -> None:
        """Time the best and the incumbents again, interleaved, in two passes."""
        points = self.finalists(incumbents, FINALISTS)
        batches = [
            {"do": "time", "units": [(g, m, c.to_list()) for g, m, c in points if g == gemm], "rounds": 11}
            for gemm in ("up", "down")
        ]
        self.run_all(batches, REFINE, until)
        self.run_all(list(reversed(batches)), AGAIN, until)

    def sort(self, until: float) -> None:
        """Time the best up products as they write for a down product with TMA: in sorted order."""
        keys = [k for k in self.finalists({"up": []}, 6) if not k[2].tma]
        for tile in dict.fromkeys(c.tile for _, _, c in keys):
            self.compiler.submit({"gemm": "up_sorted", "config": tile.to_list()})
        while self.compiler.unfinished and time.monotonic() < until:
            for outcome in self.compiler.outcomes(wait=0.2):
                self.judge(outcome)
        units = [
            (g, m, c.to_list())
            for _, m, c in keys
            for g in ("up", "up_sorted")
            if ("up_sorted", c.tile) in self.points.compiled
        ]
        batches = [{"do": "time", "units": units[i : i + 60], "rounds": 11} for i in range(0, len(units), 60)]
        self.run_all(batches, SORTED, until)

    def sustain(self, incumbents: dict[str, list[Config]], until: float) -> None:
        """Time large batches one after the other, as a long prefill does: at the power limit."""
        batches = []
        for gemm in ("up", "down"):
            for m in (m for m in self.tokens if m >= self.arguments.large):
                points = [k for k in self.finalists(incumbents, FINALISTS) if k[0] == gemm and k[1] == m]
                units = [(g, n, c.to_list()) for g, n, c in points]
                batches.append({"do": "time", "units": units, "rounds": 15})
        self.run_all(batches, SUSTAINED, until)


def gpu_state() -> str:
    """Return what nvidia-smi says of clocks, power and throttling."""
    fields = (
        "name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active,uuid"
    )
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except OSError:
        return "no nvidia-smi"
    return done.stdout.strip()


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sglang", type=Path, required=True)
    parser.add_argument("--release", default="")
    for name in ("experts", "width", "hidden", "topk"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--kind", default="bf16")
    parser.add_argument("--block", type=int, nargs=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--tokens", type=lambda s: [int(x) for x in s.split(",")], default=list(BATCH_SIZES))
    parser.add_argument("--check-tokens", type=lambda s: [int(x) for x in s.split(",")], default=[1, 48, 512])
    parser.add_argument("--limit", type=int)
    parser.add_argument(
        "--large", type=int, default=1024, help="batch sizes that are timed sustained as well"
    )
    parser.add_argument("--no-tma", dest="tma", action="store_false")
    parser.add_argument("--spilling", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when --check finds anything amiss")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--device-name", default="NVIDIA_H200")
    return parser.parse_args()


def main() -> None:
    """Run."""
    arguments = read_arguments()
    started = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    problem = Problem(
        arguments.experts,
        arguments.width,
        arguments.hidden,
        arguments.topk,
        arguments.kind,
        tuple(arguments.block) if arguments.block else None,
    )
    root = package(arguments.sglang)
    path = kernel.find(root)
    cache = Path(os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="triton-")))
    cache.mkdir(parents=True, exist_ok=True)
    shared = {"path": str(path), "problem": dataclasses.asdict(problem)}
    measuring = {
        **shared,
        "tokens": max(*arguments.tokens, *arguments.check_tokens),
        "device": arguments.device,
    }
    interpreter = {"TRITON_INTERPRET": "1"} if arguments.device == "cpu" else {}
    identity = {
        "kernel": kernel.fingerprint(path),
        "problem": dataclasses.asdict(problem),
        "gpu": gpu_state(),
    }
    with (
        Journal(arguments.out / "journal.jsonl", identity) as journal,
        Pool("measure", measuring, depth=2, timeout=180, environment=interpreter) as measure,
        Pool(
            "compile", {**shared, "capability": (9, 0)}, size=arguments.jobs, depth=2, timeout=90
        ) as compiler,
    ):
        run = Matrix(
            arguments, problem, root, measure, compiler, journal, started + arguments.seconds, Points(problem)
        )
        run.started = started
        run.say(f"{problem}; kernel {path}; {gpu_state()}")
        incumbents = run.incumbents()
        run.explore(incumbents, run.deadline - 0.28 * arguments.seconds)
        run.widen(run.deadline - 0.12 * arguments.seconds)
        run.refine(incumbents, run.deadline)
        run.say(gpu_state())
        run.sort(run.deadline)
        run.sustain(incumbents, run.deadline)
        run.say(gpu_state())
        files = bundled(root, problem, arguments.device_name)
        by_m = {m: {g: nearest(e, m) for g, e in files.items()} for m in arguments.tokens} if files else {}
        about = {
            "sglang": arguments.release,
            "kernel": identity["kernel"],
            **(measure.about or {}),
            "gpu_state": [identity["gpu"], gpu_state()],
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "dropped": dict(run.points.dropped),
            "seconds": round(time.monotonic() - started),
            "command": " ".join(sys.argv),
        }
        text = "\n".join((table(run.points, by_m), notes(run.points), json.dumps(about, indent=1)))
        (arguments.out / "table.txt").write_text(text + "\n")
        (arguments.out / "matrix.json").write_text(fixture(run.points, about, by_m))
        print(text, flush=True)
        if arguments.check:
            run.drain()
            found = check(
                run.points,
                measure,
                lambda: Pool("measure", {**measuring, "runtime_group": False}, timeout=240),
                cache,
                tokens=arguments.check_tokens,
                gpu=arguments.device != "cpu",
            )
            (arguments.out / "check.json").write_text(json.dumps(found, indent=1))
            run.say(json.dumps(found))
            if arguments.strict and (found["wrong"] or set(run.points.dropped) - EXPECTED):
                sys.exit(f"not as expected: {found['wrong']} {run.points.dropped}")
        run.say("done")


if __name__ == "__main__":
    main()
