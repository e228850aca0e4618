"""What the deployment consists of: model, GPUs, versions, kernel configs, environment variables."""

from __future__ import annotations

from collections.abc import Iterator

from sgdoctor.compare import causes
from sgdoctor.compare.model import Difference, Kind, Verdict
from sgdoctor.compare.values import Pair, same, shown
from sgdoctor.report.words import bare

_VERSIONS = {
    "sglang.version": "SGLang",
    "torch.version": "torch",
    "torch.cuda": "torch's CUDA",
    "triton.version": "Triton",
    "package.flashinfer_python": "FlashInfer",
    "package.sglang_kernel": "sglang-kernel",
    "package.sgl_kernel": "sgl-kernel",
    "package.transformers": "transformers",
    "host.driver": "NVIDIA driver",
    "host.python": "Python",
}
_TWINS = ("package.sglang", "package.torch", "package.triton")
_GPUS = {
    "gpu.name": "GPU",
    "gpu.count": "Number of GPUs",
    "gpu.memory_mib": "Memory of a GPU in MiB",
}
# How good a config's source is. "up": the down projection runs on the up projection's config.
_RANK = {"error": 0, "default": 1, "up": 2, "fallback": 2, "exact": 3}
_SOURCES = {
    "exact": "a file for this Triton",
    "fallback": "a file of another Triton",
    "default": "none, the kernel's built-in config",
    "up": "none, the up projection's config",
    "error": "the lookup fails",
}


def differences(pair: Pair) -> Iterator[Difference]:
    """Yield what differs in the parts of the deployment."""
    yield from _model(pair)
    yield from _named(pair, _GPUS, "gpu")
    yield from _named(pair, _VERSIONS, "version")
    yield from _packages(pair)
    yield from _configs(pair)
    yield from _environment(pair)


def _one(
    kind: Kind, name: str, words: str, both: tuple[object, object], *, minor: bool = False
) -> Difference:
    before, after = (
        bare(value) if name == "gpu.name" and isinstance(value, str) else _installed(name, value)
        for value in both
    )
    return Difference(
        kind=kind,
        subject=name,
        before=before,
        after=after,
        verdict="changed",
        message=f"{words}: {before} to {after}.",
        minor=minor,
    )


def _installed(name: str, value: object) -> str:
    return "not installed" if value is None and name.startswith("package.") else shown(value)


def _named(pair: Pair, names: dict[str, str], kind: Kind) -> Iterator[Difference]:
    for name, words in names.items():
        both = pair.both(name)
        if both is not None and not same(*both):
            yield _one(kind, name, words, both)


def _model(pair: Pair) -> Iterator[Difference]:
    for name, words in (("model.path", "Model"), ("model.architecture", "Architecture")):
        both = pair.both(name)
        if both is not None and not same(*both):
            yield _one("model", name, words, both)
            return
    for dest in ("served_model_name", "tokenizer_path"):
        both = pair.both(f"arg.{dest}")
        if both is not None and not same(*both):
            yield _one("flag", pair.option(dest), pair.option(dest), both)


def _packages(pair: Pair) -> Iterator[Difference]:
    for name in pair.names():
        both = pair.both(name)
        own = name in _VERSIONS or name in _TWINS
        if name.startswith("package.") and not own and both is not None and not same(*both):
            yield _one("version", name, name.removeprefix("package.").replace("_", "-"), both, minor=True)


def _environment(pair: Pair) -> Iterator[Difference]:
    for name in pair.names():
        both = pair.both(name)
        if name.startswith("env.") and both is not None and not same(*both):
            yield _one("environment", name, name.removeprefix("env."), both)


def _configs(pair: Pair) -> Iterator[Difference]:
    """Yield where the fused-MoE configs come from, where such a config is used at all."""
    used = pair.both("moe.config_matters")
    if used is not None and False in used:
        if used[0] != used[1]:
            yield _one("config", "moe.config_matters", "Fused-MoE configs are used", used)
        return
    for projection in ("up", "down"):
        name = f"moe.{projection}.source"
        both = pair.both(name)
        if both is None:
            continue
        files = pair.both(f"moe.{projection}.expected_file")
        tritons = pair.both(f"moe.{projection}.triton")
        if same(*both) and (tritons is None or same(*tritons)):
            continue
        texts = [
            _source(source, tritons[number] if tritons else None, files[number] if files else None)
            for number, source in enumerate(both)
        ]
        yield Difference(
            kind="config",
            subject=name,
            before=texts[0],
            after=texts[1],
            verdict=_verdict(*both),
            message=f"Fused-MoE config of the {projection} projection: {texts[1]}; it was {texts[0]}.",
            together_with=causes.of_derived(pair, name),
        )


def _source(source: str, triton: str | None, file: str | None) -> str:
    if source in ("exact", "fallback"):
        where = f" (Triton {triton})" if triton else ""
        return f"{_SOURCES[source]}{where}"
    return f"{_SOURCES[source]} (no {file})" if file and source != "error" else _SOURCES[source]


def _verdict(before: str, after: str) -> Verdict:
    if _RANK[before] == _RANK[after]:
        return "changed"
    return "better" if _RANK[after] > _RANK[before] else "worse"
