"""A model's config.json: where it lies, and the facts it gives, read as SGLang reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.input_file import read_json
from sgdoctor.upstream import architectures, expert_weights

MAX_BYTES = 16 * 2**20
SOURCE = "model"

# get_context_length (srt/utils/hf_transformers/, 0.5.7 to 0.5.23): the first of these that is there.
_CONTEXT_FIELDS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
# get_total_num_kv_heads (srt/configs/model_config.py)
_KV_FIELDS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
    "num_attention_heads",
)
_OTHER_SENSES = (
    "vision_config",
    "audio_config",
    "vision_tower",
    "mm_vision_tower",
    "visual",
    "speech_config",
    "sound_config",
    "vision_model",
    "thinker_config",
)
_MOE_FACTS = ("model.experts", "model.experts_per_token", "model.moe_intermediate_size",
              "model.shared_experts", "model.shared_intermediate_size")  # fmt: skip
_QUANTIZED_IN_LANGUAGE_PART = ("kimi_k25", "kimi_k3", "glm5_next")
_DTYPES = {"float16", "bfloat16", "float32"}


def read_model(facts: Facts, path: Path, overrides: Mapping[str, Any] | None = None) -> None:
    """Set model.* from a model folder or a config.json; ``overrides`` are --json-model-override-args.

    Raises UsageError when there is none, or when it is no JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    config = overridden(_read_json(file), overrides or {})
    text = text_part(config)
    reader = _Reader(facts, str(file))
    architecture = _architecture(config)
    if architecture is None:
        facts.notes.append(f"{file} names no architecture: SGLang does not start such a model")
    else:
        reader.put("model.architecture", architecture)
    reader.put("model.is_multimodal", any(config.get(field) is not None for field in _OTHER_SENSES))
    reader.put("model.is_hybrid", architectures.is_hybrid(config, text))
    reader.number("model.hidden_size", text, ("hidden_size", "n_embd", "d_model"))
    reader.put("model.intermediate_size", _number(text.get("intermediate_size")))
    reader.number("model.layers", text, ("num_hidden_layers", "n_layer", "num_layers", "n_layers"))
    reader.number("model.attention_heads", text, ("num_attention_heads",))
    reader.kv_heads(text)
    reader.dtype(config, text)
    reader.context(text)
    reader.rope_theta(text)
    reader.experts(architecture, text)
    reader.quantization(config, file.parent)


def overridden(config: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``config`` as SGLang changes it: key by key, parts of a part merged.

    get_config in srt/utils/hf_transformers (0.5.7, 0.5.12: replaced key by key; 0.5.23: parts merged).
    """
    merged = dict(config)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part about the language model (get_hf_text_config, the order of 0.5.10 and newer)."""
    name = _architecture(config) or ""
    if name.startswith("Llava") and name.endswith("ForCausalLM"):
        return config
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict):
        inner = thinker.get("text_config")
        return inner if isinstance(inner, dict) else thinker
    for field in ("llm_config", "language_config", "text_config"):
        part = config.get(field)
        if isinstance(part, dict):
            return part
    return config


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _read_json(file: Path) -> dict[str, Any]:
    config = read_json(file, MAX_BYTES, "no config.json")
    if not isinstance(config, dict):
        raise UsageError(f"{file}: not the config.json of a model: {type(config).__name__}, no object")
    return config


def _number(value: Any) -> int | None:
    """Return a whole number of a size that counts something, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _of_all_layers(value: Any) -> Any:
    """Return what a list with an entry a layer says of all of them, None when they differ."""
    if not isinstance(value, list):
        return value
    return value[0] if value and all(each == value[0] for each in value) else None


class _Reader:
    """Sets facts as read from one file."""

    def __init__(self, facts: Facts, place: str) -> None:
        self.facts = facts
        self.place = place

    def put(self, name: str, value: Any) -> None:
        self.facts.set(name, value, source=SOURCE, place=self.place)

    def lacks(self, *names: str, what: str = "does not give it") -> None:
        for name in names:
            self.facts.set_unknown(name, f"{self.place} {what}")

    def number(self, name: str, text: Mapping[str, Any], fields: tuple[str, ...]) -> None:
        for field in fields:
            if text.get(field) is not None:
                value = _number(_of_all_layers(text[field]))
                if value is None:
                    self.lacks(name, what=f"has {field}, but it is not one number")
                else:
                    self.put(name, value)
                return
        self.lacks(name)

    def kv_heads(self, text: Mapping[str, Any]) -> None:
        falcon = text.get("model_type") in ("falcon", "RefinedWeb", "RefinedWebModel")
        if text.get("multi_query") is True and not (falcon and text.get("new_decoder_architecture")):
            self.put("model.kv_heads", 1)
        else:
            self.number("model.kv_heads", text, _KV_FIELDS)

    def dtype(self, config: Mapping[str, Any], text: Mapping[str, Any]) -> None:
        for part in (text, config):
            for field in ("dtype", "torch_dtype"):
                value = part.get(field)
                if isinstance(value, str) and value.removeprefix("torch.") in _DTYPES:
                    self.put("model.dtype", value.removeprefix("torch."))
                    return
        self.lacks("model.dtype")

    def context(self, text: Mapping[str, Any]) -> None:
        """Set the context length: the first of the fields there is, times the factor of rope scaling."""
        name = "model.max_position_embeddings"
        field = next((each for each in _CONTEXT_FIELDS if text.get(each) is not None), None)
        if field is None:
            self.lacks(name, what="does not give it: a default of transformers applies")
            return
        length, factor = _number(text[field]), _rope_factor(text)
        if length is None:
            self.lacks(name, what=f"has {field}, but it is no number")
        elif factor is None:
            self.lacks(name, what="scales it in a way that depends on the transformers release")
        else:
            self.put(name, int(factor * length))

    def rope_theta(self, text: Mapping[str, Any]) -> None:
        name, theta = "model.rope_theta", text.get("rope_theta")
        parameters = text.get("rope_parameters")
        if theta is None and isinstance(parameters, dict):
            theta = parameters.get("rope_theta")
        if theta is None:
            self.put(name, None)
        elif isinstance(theta, int | float) and not isinstance(theta, bool) and abs(theta) < 1e300:
            self.put(name, float(theta))
        else:
            self.lacks(name, what="has rope_theta, but it is no number")

    def experts(self, architecture: str | None, text: Mapping[str, Any]) -> None:
        moe = None if architecture is None else architectures.is_moe(architecture, text)
        if moe is None:
            what = "does not settle whether SGLang builds experts"
            self.lacks("model.is_moe", *_MOE_FACTS, what=what)
            return
        self.put("model.is_moe", moe)
        if not moe:
            for name in _MOE_FACTS:
                self.put(name, None)
            return
        fields = architectures.ARCHITECTURES.get(architecture or "")
        if fields is None:
            what = f"is of {architecture}, whose fields sgdoctor does not know"
            self.lacks(*_MOE_FACTS, what=what)
            return
        self.number("model.experts", text, (fields.count,))
        self.number("model.experts_per_token", text, (fields.per_token,))
        self.number("model.moe_intermediate_size", text, fields.widths)
        self.shared_experts(text)

    def shared_experts(self, text: Mapping[str, Any]) -> None:
        """Set the number of shared experts as get_num_shared_experts does, and their width."""
        width = _number(text.get("shared_expert_intermediate_size"))
        count = _number(text.get("n_shared_experts"))
        if count is None and width:
            count = 1
        self.put("model.shared_experts", count)
        self.put("model.shared_intermediate_size", width)

    def quantization(self, config: Mapping[str, Any], folder: Path) -> None:
        """Set what the checkpoint says of its quantization: in config.json, else in hf_quant_config.json."""
        given = config.get("quantization_config") or _of_language_part(config)
        given = given or config.get("compression_config")
        if given is None:
            given = _beside(folder)
        if given is not None and not isinstance(given, dict):
            what = "has a quantization_config that is no object"
            self.lacks("model.checkpoint_quantization", "model.expert_weights", what=what)
            return
        stored = expert_weights.from_checkpoint(given or {})
        self.put("model.checkpoint_quantization", stored.method)
        self.put("model.expert_weights", stored.weights)
        self.put("model.weight_block_size", list(stored.block) if stored.block else None)
        self.put("model.quantization_group_size", stored.group)
        self.put("model.kv_cache_scales", any(map(_kv_cache_scales, (given or {}, _beside(folder) or {}))))


def _kv_cache_scales(config: Mapping[str, Any]) -> bool:
    """Whether a checkpoint holds k_scale and v_scale, by its quantization config.

    ModelOpt and AutoFP8 say so at kv_cache_scheme or kv_cache_quant_algo, Quark at export.kv_cache_group
    (modelopt_quant.py, fp8.py and quark.py in srt/layers/quantization of 0.5.7 to 0.5.23 load them);
    compressed-tensors at kv_cache_scheme (compressed_tensors.py, from 0.5.19 on).
    """
    scheme, export = config.get("kv_cache_scheme"), config.get("export")
    if isinstance(scheme, dict):
        scheme = scheme.get("strategy", "tensor") == "tensor" and not scheme.get("dynamic")
    group = export.get("kv_cache_group") if isinstance(export, dict) else None
    return bool(scheme or config.get("kv_cache_quant_algo") or group)


def _of_language_part(config: Mapping[str, Any]) -> Any:
    """Return the quantization that some models keep with the language part; SGLang takes it for the whole.

    In srt/configs/ kimi_k25.py of 0.5.9 to 0.5.23, kimi_k3.py of 0.5.17 and glm5_next.py of 0.5.20 on do so,
    and no other.
    """
    if config.get("model_type") not in _QUANTIZED_IN_LANGUAGE_PART:
        return None
    return text_part(config).get("quantization_config")


def _beside(folder: Path) -> dict[str, Any] | None:
    """Return what ModelOpt wrote beside config.json, None when there is nothing usable."""
    try:
        content = _read_json(folder / "hf_quant_config.json")
    except UsageError:
        return None
    inner = content.get("quantization")
    return inner if isinstance(inner, dict) else None


def _rope_factor(text: Mapping[str, Any]) -> float | None:
    """Return by what get_context_length multiplies the length, None when that depends on transformers."""
    scaling = text.get("rope_scaling")
    moved = not isinstance(scaling, dict)
    if moved:
        scaling = text.get("rope_parameters")
    if not isinstance(scaling, dict) or "original_max_position_embeddings" in scaling:
        return 1.0
    kind = scaling.get("rope_type", scaling.get("type"))
    factor = scaling.get("factor", 1)
    if kind == "llama3":
        return 1.0
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not math.isfinite(factor):
        return None
    if factor == 1:
        return 1.0
    # transformers 5 moves rope_scaling to rope_parameters and fills in the original length of these kinds.
    return None if moved or kind in ("yarn", "longrope") or not 0 < factor < 2**20 else float(factor)


# --- where a model lies -------------------------------------------------------------------------------------


def find_model(
    name: str, host_path: Callable[[str], str] = str, variables: Mapping[str, str] | None = None
) -> Path | None:
    """Return the folder (or file) of the model that ``--model-path NAME`` means, if it is on this machine.

    ``host_path`` maps a path inside the server's container to one outside; ``variables`` are the server's
    environment variables. A name on the Hub is looked for in the caches of Hugging Face and ModelScope.
    Never raises.
    """
    variables = variables or {}
    try:
        path = Path(host_path(name)).expanduser()
        if path.is_dir() or path.is_file():
            return path
        found = [_hugging_face(name, cache) for cache in _hub_caches(variables, host_path)]
        scope: list[Path | None] = []
        for cache in _modelscope_caches(variables, host_path):
            scope += _modelscope(name, cache)
        first = variables.get("SGLANG_USE_MODELSCOPE", "").lower() in ("1", "true", "yes", "on")
        candidates = [*scope, *found] if first else [*found, *scope]
        return next((each for each in candidates if each and (each / "config.json").is_file()), None)
    except (OSError, ValueError, RuntimeError):
        return None


def _hub_caches(variables: Mapping[str, str], host_path: Callable[[str], str]) -> list[Path]:
    """Return where huggingface_hub keeps models, in the order in which it asks its variables."""
    for variable, rest in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if variables.get(variable):
            return [Path(host_path(variables[variable])).expanduser() / rest]
    if variables.get("XDG_CACHE_HOME"):
        return [Path(host_path(variables["XDG_CACHE_HOME"])) / "huggingface" / "hub"]
    return [Path(host_path(f"{home}/.cache/huggingface/hub")) for home in _homes(variables)]


def _modelscope_caches(variables: Mapping[str, str], host_path: Callable[[str], str]) -> list[Path]:
    if variables.get("MODELSCOPE_CACHE"):
        return [Path(host_path(variables["MODELSCOPE_CACHE"])).expanduser()]
    return [Path(host_path(f"{home}/.cache/modelscope")) for home in _homes(variables)]


def _homes(variables: Mapping[str, str]) -> list[str]:
    """Return the home directory of the server, which is root's in a container."""
    return list(dict.fromkeys([variables.get("HOME") or str(Path.home()), "/root"]))


def _hugging_face(name: str, cache: Path) -> Path | None:
    """Return the snapshot of a model in a Hub cache: the one that ``refs/main`` names, else the newest."""
    if name.startswith((".", "/")) or name.count("/") != 1:
        return None
    folder = cache / ("models--" + name.replace("/", "--"))
    if not folder.is_dir():
        return None
    reference = folder / "refs" / "main"
    if reference.is_file():
        snapshot = folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
        if (snapshot / "config.json").is_file():
            return snapshot
    snapshots = [each for each in (folder / "snapshots").glob("*") if (each / "config.json").is_file()]
    return max(snapshots, key=lambda each: each.stat().st_mtime, default=None)


def _modelscope(name: str, cache: Path) -> list[Path]:
    """Return the folders in which ModelScope keeps a model; it writes a dot as three underscores."""
    if name.startswith((".", "/")) or name.count("/") != 1:
        return []
    owner, model = name.split("/")
    return [
        cache / inner / owner / each
        for inner in ("models", "hub/models", "hub")
        for each in (model, model.replace(".", "___"))
    ]
