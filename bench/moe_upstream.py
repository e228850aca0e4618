"""What SGLang's own tuner takes: its worker class on a random sample of its configurations, extrapolated.

    python3 bench/moe_upstream.py --source CHECKOUT --sample 40 --tokens 1,16,64,2048 --seconds 240 --out DIR
    python3 bench/moe_upstream.py --source CHECKOUT --tuner-check --configurations 100 --out DIR

CHECKOUT is SGLang's source at the commit of the installed release, or its benchmark/kernels/fused_moe_triton.
Needs a GPU and an importable SGLang; Ray is not needed: a small package of that name, one worker in this
process, takes its place. The first form runs the worker's tune() and notes what every configuration costs;
the second the whole script through `sgdoctor.fix.sglang_tuner`, its search space cut and for one batch size.
Triton's cache starts empty. DIR/upstream.json or DIR/tuner-check.json holds all that was seen.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sgdoctor.fix import sglang_tuner, sglang_tuner_files
from sgdoctor.tune.model import Job, Pair, Progress
from sgdoctor.tune.space import BATCH_SIZES, Problem, default_config

PROBLEM = Problem(experts=256, width=256, hidden=3072, topk=8)
TENSOR_PARALLEL = 4
ITERATIONS = 10  # of upstream's tune()

RAY = '''"""Ray's name for one worker in this process."""


class _Method:
    def __init__(self, method):
        self.remote = method


class _Actor:
    def __init__(self, worker):
        self.worker = worker

    def __getattr__(self, name):
        return _Method(getattr(self.worker, name))


def remote(**_):
    def wrap(cls):
        cls.remote = classmethod(lambda made, *a, **k: _Actor(made(*a, **k)))
        return cls

    return wrap


def init(*_, **__):
    pass


def get(results):
    return results


def get_gpu_ids():
    return [0]


def available_resources():
    return {"GPU": 1.0}
'''
TQDM = '''"""Prints a bar as tqdm does."""
import sys


def tqdm(items, **_):
    items = list(items)
    for done, item in enumerate(items):
        sys.stderr.write(f"\\r {done}/{len(items)} [")
        sys.stderr.flush()
        yield item
    sys.stderr.write(f"\\r {len(items)}/{len(items)} [\\n")
'''
CUT = """

import random as _random

_all_configurations = get_configs_compute_bound


def get_configs_compute_bound():
    return _random.Random({seed}).sample(_all_configurations(), {configurations})
"""


def write_stub(folder: Path) -> Path:
    """Write the package that stands in for Ray into ``folder``; return ``folder``."""
    experimental = folder / "ray" / "experimental"
    experimental.mkdir(parents=True)
    (folder / "ray" / "__init__.py").write_text(RAY)
    (experimental / "__init__.py").write_text("")
    (experimental / "tqdm_ray.py").write_text(TQDM)
    return folder


def write_model(folder: Path) -> Path:
    """Write the config.json of a model whose share of one GPU in four is PROBLEM."""
    folder.mkdir()
    config = sglang_tuner.made_config(PROBLEM)
    config["moe_intermediate_size"] *= TENSOR_PARALLEL
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def cut(
    checkout: sglang_tuner.Checkout, folder: Path, configurations: int, seed: int
) -> sglang_tuner.Checkout:
    """Copy the tuner, its search space replaced by ``configurations`` of it drawn at random."""
    target = folder / sglang_tuner.FOLDER
    shutil.copytree(checkout.folder, target)
    with (target / "common_utils.py").open("a") as file:
        file.write(CUT.format(seed=seed, configurations=configurations))
    return sglang_tuner.find(folder, None)


def machine() -> dict[str, Any]:
    """Return the GPU, the driver, the versions and the date."""
    import torch
    import triton

    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    try:
        gpu = subprocess.run(smi, capture_output=True, text=True, check=False).stdout.strip()
    except OSError as error:
        gpu = str(error)
    try:
        sglang = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        sglang = "not installed"
    versions = {"torch": torch.__version__, "triton": triton.__version__, "sglang": sglang}
    return {"gpu": gpu, **versions, "date": time.strftime("%Y-%m-%d"), "command": " ".join(sys.argv)}


@dataclasses.dataclass
class Tried:
    """One configuration at one batch size: what it cost, and µs of the whole computation or why not."""

    tokens: int
    config: dict[str, int]
    seconds: float
    microseconds: float | None
    failure: str = ""


class OutOfTime(RuntimeError):  # noqa: N818 (upstream's tune() passes over a RuntimeError)
    """The time for the sample is used up."""


def recorder(function: Callable[..., float], tried: list[Tried], until: float) -> Callable[..., float]:
    """Wrap upstream's benchmark_config: note what each call costs and gives; none begins after ``until``."""

    def record(config: dict[str, int], tokens: int, *rest: Any, **options: Any) -> float:
        began = time.monotonic()
        if began > until:
            raise OutOfTime
        try:
            value = function(config, tokens, *rest, **options)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[:200]
            tried.append(Tried(tokens, config, time.monotonic() - began, None, failure))
            raise
        tried.append(Tried(tokens, config, time.monotonic() - began, value))
        return value

    return record


def load(checkout: sglang_tuner.Checkout, model: Path) -> Any:
    """Import upstream's script as a module; from 0.5.13 on its functions read the global ``args``."""
    sys.path.insert(0, str(checkout.folder))
    spec = importlib.util.spec_from_file_location("upstream_tuner", checkout.script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.args = argparse.Namespace(model=str(model))  # type: ignore[attr-defined]
    return module


def sample(module: Any, model: Path, arguments: argparse.Namespace) -> list[Tried]:
    """Run the worker's tune() on the sample, batch size after batch size as upstream does."""
    import torch

    tried: list[Tried] = []
    until = time.monotonic() + arguments.seconds
    draw = random.Random(arguments.seed)  # noqa: S311
    space = draw.sample(module.get_configs_compute_bound(), arguments.sample)
    server = module.ServerArgs(model_path=str(model), tp_size=TENSOR_PARALLEL, ep_size=1)
    module.benchmark_config = recorder(module.benchmark_config, tried, until)
    worker = module.BenchmarkWorker(0, server)
    shape = (PROBLEM.experts, 2 * PROBLEM.width, PROBLEM.hidden, PROBLEM.topk)
    for tokens in arguments.tokens:
        quantization = (False,) * 5  # fp8, int8, int8 weights, int4 weights, scales per channel
        try:
            best = worker.tune(tokens, *shape, torch.bfloat16, *quantization, None, space)
            print(f"batch size {tokens}: {best}", flush=True)
        except Exception as error:  # noqa: BLE001 (here upstream's run would end; what was timed is kept)
            print(f"batch size {tokens}: {type(error).__name__}: {error}", flush=True)
    return tried


def specialisation(tokens: int) -> tuple[bool, bool]:
    """Return what Triton compiles for anew: whether 16 divides the slots, and whether it divides their rows.

    They are the kernel's num_valid_tokens and EM (fused_moe_triton_kernels.py and moe_align_block_size.py of
    0.5.12): few slots get a block each, more than there are experts all but a block's last row an expert,
    which is an odd number here. BLOCK_SIZE_M, a multiple of 16 throughout, changes nothing of that.
    """
    slots, block = tokens * PROBLEM.topk, 16
    last = PROBLEM.experts + 1
    rows = slots * block if slots < last else slots + last * (block - 1)
    return slots % 16 == 0, rows % 16 == 0


def nearest(known: Iterable[int], tokens: int) -> int:
    """Return the batch size nearest to ``tokens``, as a ratio."""
    return min(known, key=lambda other: abs(math.log2(other / tokens)))


def extrapolate(tried: Sequence[Tried], configurations: int) -> dict[str, Any]:
    """Return seconds a configuration by batch size and the hours of the whole protocol.

    Of the 18 batch sizes the first of each specialisation pays for compiling: it costs what the first one
    sampled of it did. Every other costs what the nearest does that was sampled with the kernels there.
    """
    seconds: dict[int, float] = {}
    for tokens in dict.fromkeys(each.tokens for each in tried):
        spent = [each.seconds for each in tried if each.tokens == tokens]
        seconds[tokens] = sum(spent) / len(spent)
    first: dict[tuple[bool, bool], int] = {}
    for tokens in seconds:
        first.setdefault(specialisation(tokens), tokens)
    cold = {tokens: seconds[tokens] for tokens in first.values()}
    warm = {tokens: value for tokens, value in seconds.items() if tokens not in cold}
    total = 0.0
    compiled: set[tuple[bool, bool]] = set()
    for tokens in BATCH_SIZES:
        kind = specialisation(tokens)
        if kind in compiled:
            near = warm or cold
            total += near[nearest(near, tokens)]
        else:
            total += cold[first.get(kind, nearest(cold, tokens))]
            compiled.add(kind)
    return {
        "seconds_a_configuration": seconds,
        "compiling": sorted(cold),
        "specialisations": len(compiled),
        "hours": configurations * total / 3600,
        "warm_measured": bool(warm),
    }


def measure(checkout: sglang_tuner.Checkout, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the sample, print the table, return what was seen."""
    sys.path.insert(0, str(write_stub(folder / "stub")))
    model = write_model(folder / "model")
    module = load(checkout, model)
    configurations = len(module.get_configs_compute_bound())
    tried = sample(module, model, arguments)
    if not tried:
        sys.exit("nothing was timed: --seconds is too short")
    whole = extrapolate(tried, configurations)
    print(f"\n{'tokens':>6} {'tried':>5} {'failed':>6} {'s each':>7} {'best µs':>8}")
    for tokens, seconds in whole["seconds_a_configuration"].items():
        here = [each for each in tried if each.tokens == tokens]
        ran = [each.microseconds for each in here if each.microseconds is not None]
        best = f"{min(ran):8.1f}" if ran else "       -"
        print(f"{tokens:6} {len(here):5} {len(here) - len(ran):6} {seconds:7.2f} {best}")
    print(f"{configurations} configurations at {len(BATCH_SIZES)} batch sizes: {whole['hours']:.2f} hours")
    return {"configurations": configurations, **whole, "tried": [dataclasses.asdict(each) for each in tried]}


def make_job(device: str, tokens: int) -> Job:
    """Return the job that the command would make for PROBLEM, with the built-in default as today's."""
    default = {tokens: Pair(default_config(PROBLEM, tokens), default_config(PROBLEM, tokens))}
    name = f"E={PROBLEM.experts},N={PROBLEM.width},device_name={device}"
    return Job(
        problem=PROBLEM,
        capability=(9, 0),
        device=device,
        release="0.5.12",
        triton="3.6.0",
        kernel="upstream check",
        up_file=f"{name}.json",
        down_file=f"{name}_down.json",
        today=default,
        source="default",
        today_is="the built-in default",
        default=default,
    )


def tuner_check(
    checkout: sglang_tuner.Checkout, arguments: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Run the whole script as the command does; return its table, notes and progress."""
    stub = str(write_stub(folder / "stub"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (stub, os.environ.get("PYTHONPATH"))))
    small = cut(checkout, folder / "cut", arguments.configurations, arguments.seed)
    model = sglang_tuner.Model(write_model(folder / "model"), tp=TENSOR_PARALLEL)
    job = make_job(arguments.device_name, arguments.tokens[0])
    said: list[Progress] = []

    def listen(progress: Progress) -> None:
        if not said or progress.done >= said[-1].done + 10:
            left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left else ""
            print(f"{progress.doing}: {progress.done} of {progress.total}{left}", flush=True)
        said.append(progress)

    began = time.monotonic()
    try:
        written = sglang_tuner.run(
            small, job, model, gpus=["0"], python=sys.executable, output=arguments.out, listen=listen
        )
    finally:
        for log in arguments.out.glob("sglang-*/tokens-*/log.txt"):
            print(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}", flush=True)
    seconds = time.monotonic() - began
    found = sglang_tuner_files.read(written.files, job)
    for tokens, pair in found.table.items():
        print(f"batch size {tokens}: up {pair.up}; down {pair.down}")
    print("\n".join((*found.notes, *written.notes, f"{seconds:.0f} s")))
    return {
        "seconds": seconds,
        "files": [file.name for file in written.files],
        "table": {tokens: pair.to_list() for tokens, pair in found.table.items()},
        "notes": [*written.notes, *found.notes],
        "progress": [[each.done, each.total] for each in said],
    }


def main() -> None:
    """Run one of the two and write what it saw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--tokens", default="1,16,64,2048", type=lambda text: [int(m) for m in text.split(",")]
    )
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=240.0, help="no configuration is begun after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tuner-check", action="store_true")
    parser.add_argument("--configurations", type=int, default=100, help="of the cut search space")
    parser.add_argument("--device-name", default="NVIDIA_H200")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    checkout = sglang_tuner.find(arguments.source, None)
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        act = tuner_check if arguments.tuner_check else measure
        seen = act(checkout, arguments, Path(folder))
    name = "tuner-check.json" if arguments.tuner_check else "upstream.json"
    (arguments.out / name).write_text(json.dumps({**machine(), **seen}, indent=1) + "\n")
    print(f"{arguments.out / name}")


if __name__ == "__main__":
    main()
