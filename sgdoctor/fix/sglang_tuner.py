"""SGLang's own tuner, run for what is missing: found, started, watched, and its files collected.

benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py, in the repository and the Docker images, in no
wheel. Read at the commits of 0.5.9 (2026-02-10), 0.5.12 (127b9e3) and 0.5.15 (2026-07-14): all three take
--model, --tp-size, --ep-size, --dtype, --per-channel-quant, --batch-size, --disable-shared-experts-fusion and
--tune; int4 from 0.5.12 on. They write one file in the current directory when the last batch size is done, so
a run that breaks has nothing to show: here every batch size is a run of its own, on one GPU, and what is done
is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgdoctor.errors import UsageError
from sgdoctor.fix.sglang_tuner_crew import Crew
from sgdoctor.tune.model import Job, Listener
from sgdoctor.tune.space import Kind, Problem

FOLDER = Path("benchmark/kernels/fused_moe_triton")
SCRIPT = "tuning_fused_moe_triton.py"
IMAGE = Path("/sgl-workspace/sglang")  # docker/Dockerfile of 0.5.9 to 0.5.23

# The longest silence of a tuner that works: compiling one configuration took up to 48 s.
PATIENCE = 900.0

_FLAGS: Mapping[Kind, tuple[str, ...]] = {
    "bf16": (),
    "fp16": (),
    "fp8_tensor": ("--dtype", "fp8_w8a8"),
    "fp8_channel": ("--dtype", "fp8_w8a8", "--per-channel-quant"),
    "fp8_block": ("--dtype", "fp8_w8a8"),
    "int8_channel": ("--dtype", "int8_w8a8", "--per-channel-quant"),
    "int8_block": ("--dtype", "int8_w8a8"),
    "int4": ("--dtype", "int4_w4a16"),
}


@dataclass(frozen=True)
class Checkout:
    """A source checkout of SGLang: its folder with the tuner, and how it was found."""

    folder: Path
    found: str

    @property
    def script(self) -> Path:
        """The tuner."""
        return self.folder / SCRIPT


@dataclass(frozen=True)
class Model:
    """What the tuner is told to read: a folder with config.json or a hub name, and how it is spread.

    ``path`` null: a config.json of just this shape is made for it, with TP and EP 1.
    """

    path: Path | str | None = None
    tp: int = 1
    ep: int = 1


@dataclass(frozen=True)
class Written:
    """What the tuner left: its files, and a sentence for every batch size that it failed at."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def find(source: Path | None, sglang_path: Path | None) -> Checkout:
    """Return the checkout named (``--sglang-source``), else that of an editable install, else the image's.

    ``sglang_path`` is the folder of the installed package. Raises UsageError when there is none.
    """
    if source is not None:
        for folder in (source / FOLDER, source):
            if (folder / SCRIPT).is_file():
                return Checkout(folder.resolve(), "--sglang-source")
        raise UsageError(f"{source} has no {FOLDER / SCRIPT}: it is no source checkout of SGLang")
    places = [(IMAGE, "the image's checkout")]
    if sglang_path is not None:  # python/sglang of a checkout
        places.insert(0, (sglang_path.resolve().parents[1], "the checkout that SGLang is installed from"))
    for root, found in places:
        if (root / FOLDER / SCRIPT).is_file():
            return Checkout(root / FOLDER, found)
    raise UsageError(
        f"SGLang's tuner is not here: no wheel has it, and neither has {IMAGE}; name a source checkout of "
        "the installed release with --sglang-source DIR, or leave out --tuner sglang"
    )


def run(  # noqa: PLR0913 (what the deployment has, what the operator chose)
    checkout: Checkout,
    job: Job,
    model: Model,
    *,
    gpus: Sequence[str],
    python: str,
    output: Path,
    listen: Listener = lambda _: None,
    patience: float = PATIENCE,
    python_path: Sequence[Path] = (),
) -> Written:
    """Tune ``job`` with SGLang's tuner, one child process a batch size, one at a time on each of ``gpus``.

    ``gpus`` are UUIDs or indices, ``python`` the deployment's interpreter, ``python_path`` the folders of its
    PYTHONPATH. ``output`` keeps, for every batch
    size, the child's files and its log; what an interrupted run has finished there is not run again. A child
    that prints nothing for ``patience`` seconds is killed; all are when this is interrupted. Raises
    UsageError or Undecided, with the cause, when a run fails before any has succeeded; later failures
    become notes.
    """
    indices = visible(gpus)
    folder = output / _identity(job, model)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        arguments = _arguments(job, model, folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    crew = Crew(checkout.script, python, arguments, folder, listen, patience, python_path)
    crew.tune(job.tokens, indices)
    return Written(tuple(crew.files[m] for m in sorted(crew.files)), tuple(crew.notes))


def visible(gpus: Sequence[str]) -> list[str]:
    """Return the indices, in PCI order, of GPUs given as UUIDs; indices stay as they are.

    Up to 0.5.12 the tuner's worker reads what Ray calls its GPU as a number, and Ray calls it as
    CUDA_VISIBLE_DEVICES does. Raises UsageError for a GPU that nvidia-smi does not list.
    """
    if all(gpu.isdecimal() for gpu in gpus):
        return list(gpus)
    from sgdoctor.collect import child

    asked = child.run(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], 10.0)
    rows = [line.partition(", ") for line in asked.stdout.splitlines()]
    known = {uuid.strip(): index.strip() for index, _, uuid in rows}
    for gpu in gpus:
        if not gpu.isdecimal() and gpu not in known:
            reason = asked.failure or "it is not listed"
            raise UsageError(f"nvidia-smi does not say which GPU {gpu} is ({reason}): name it by its index")
    return [gpu if gpu.isdecimal() else known[gpu] for gpu in gpus]


def _identity(job: Job, model: Model) -> str:
    """Return a folder's name for what a result depends on: another shape or kernel is not resumed."""
    what = (
        job.up_file,
        job.release,
        job.triton,
        job.kernel,
        job.problem,
        str(model.path),
        model.tp,
        model.ep,
    )
    return "sglang-" + hashlib.sha256(repr(what).encode()).hexdigest()[:12]


def _arguments(job: Job, model: Model, folder: Path) -> list[str]:
    """Return the tuner's flags, all but the batch size; writes the made config.json where it is needed."""
    path = model.path
    tp, ep = model.tp, model.ep
    if path is None:
        path, tp, ep = folder / "model", 1, 1
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(made_config(job.problem), indent=1))
    elif isinstance(path, Path):
        path = (path.parent if path.is_file() else path).resolve()
    flags = ["--model", str(path), "--tp-size", str(tp), "--ep-size", str(ep), *_FLAGS[job.problem.kind]]
    if isinstance(path, Path) and _shared_expert_apart(path, job.problem, ep):
        flags.append("--disable-shared-experts-fusion")
    return [*flags, "--tune"]


def _shared_expert_apart(model: Path, problem: Problem, ep: int) -> bool:
    """Whether this deployment has the routed experts alone: the tuner would count a shared one with them."""
    try:
        config = json.loads((model / "config.json").read_text())
        text = config.get("text_config") or config
        routed = text.get("n_routed_experts") or text.get("num_local_experts") or 0
        return int(routed) // ep == problem.experts
    except (OSError, ValueError, AttributeError, TypeError):
        return False  # the tuner itself will say what it cannot read


def made_config(problem: Problem) -> dict[str, Any]:
    """Return a config.json for a model of just this shape, of an architecture that every release knows."""
    config: dict[str, Any] = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "torch_dtype": "float16" if problem.kind == "fp16" else "bfloat16",
        "num_experts": problem.experts,
        "num_experts_per_tok": problem.topk,
        "moe_intermediate_size": problem.width,
        "intermediate_size": problem.width,
        "hidden_size": problem.hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "vocab_size": 32000,
    }
    if problem.kind == "int4" and problem.block:
        weights = {"group_size": problem.block[1], "num_bits": 4, "type": "int", "strategy": "group"}
        group = {"group_0": {"targets": ["Linear"], "weights": {**weights, "symmetric": True}}}
        config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": group,
        }
    elif problem.block:
        config["quantization_config"] = {
            "quant_method": "fp8" if problem.kind == "fp8_block" else "blockwise_int8",
            "activation_scheme": "dynamic",
            "weight_block_size": list(problem.block),
        }
    return config
