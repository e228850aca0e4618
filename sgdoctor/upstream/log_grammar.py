"""SGLang's own log lines, 0.5.7 to 0.5.23, as patterns and pure functions over one record's text.

The patterns are in the syntax that Python's `re` and RE2 share. Where releases differ the comment says so.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

# Short patterns by which the records that set facts are found in a large log.
INTERESTING: dict[str, bytes] = {
    "entrypoint": rb"'sglang serve' is the recommended entrypoint",  # sglang/launch_server.py, 0.5.10 on
    # argparse's usage, and what raises in srt/server_args.py: both before the banner, in all releases
    "refused": rb"usage: (?:sglang serve|launch_server\.py) |, line \d+, in prepare_server_args",
    # frames of the main process whose next line may be an import that fails
    "entering": rb"(?:sglang/launch_server\.py|bin/sglang)\", line \d+, in <module>"
    rb"|sglang/cli/(?:main|serve)\.py\", line \d+, in ",
    "traceback": rb"Traceback \(most recent call last\):|multiprocessing/spawn\.py\", line ",
    "banner": rb"server_args=(?:ServerArgs\(|\{)",
    "begin": rb"Init torch distributed begin\.|Load weight begin\. avail mem=",  # the former up to 0.5.20
    "weights": rb"Load weight end\. (?:elapsed=[\d.]+ s, )?type=",
    "capacity": rb"max_total_num_tokens=\d+, chunked_prefill_size=",
    "moe": rb"MoE kernel config|Using default MoE config\.|Down MoE config file not found|Fallback to triton",
    "gemm": rb"Using default W8A8 Block",
    "listening": rb"Uvicorn running on ",
    "ready": rb"The server is fired up and ready to roll!",
    "retraction": rb"Retract requests\. #retracted_reqs: \d",
    "pause": rb"/(?:pause|continue)_generation[? ]|/(?:release|resume)_memory_occupation[? ]",
}

# uvicorn's access log of what stops the scheduler and lets it go on, srt/entrypoints/http_server.py
_PAUSE = re.compile(
    r"\"(?:POST|GET) \S*/(?P<what>(?:pause|continue)_generation|(?:release|resume)_memory_occupation)"
    r"(?:\?\S*)? HTTP/[\d.]+\" 200"
)
# What was told to stop, and what ends it.
PAUSES = {
    "pause_generation": "continue_generation",
    "release_memory_occupation": "resume_memory_occupation",
}

# srt/model_executor/model_runner.py: elapsed from 0.5.9 on; dtype up to 0.5.9, later quantization
_WEIGHTS = re.compile(
    r"Load weight end\. (?:elapsed=[\d.]+ s, )?type=(?P<type>\w+), (?:dtype=(?:torch\.)?(?P<dtype>\w+), )?"
    r"(?:quant=(?P<quant>[\w.-]+), (?:\w+=[^,]+, )*?)?avail mem=[\d.]+ GB"
    r"(?:, mem usage=(?P<use>-?[\d.]+) GB)?"
)
# srt/managers/scheduler.py; 0.4.6 has no available memory
_CAPACITY = re.compile(
    r"max_total_num_tokens=(?P<tokens>\d+), chunked_prefill_size=(?:-?\d+|None), max_prefill_tokens=\d+, "
    r"max_running_requests=(?P<requests>\d+), context_len=(?P<context>\d+)"
    r"(?:, available_gpu_mem=(?P<gpu>[\d.]+) GB)?"
)
_RETRACTION = re.compile(r"Retract requests\. #retracted_reqs: (?P<number>\d+)")

# fused_moe_triton_config.py. Up to 0.5.15 a missing _down file has a line of its own (down_moe=False); from
# 0.5.16 on it is the "Down MoE config" line where the up projection has a file, else that projection's line.
_MOE = (
    ("exact", re.compile(r"Using MoE kernel config from (?P<used>/?\S.*?\.json)\.")),
    (
        "fallback",
        re.compile(
            r"Config file not found at (?P<wanted>.+?\.json)\. Fallback to triton version (?P<version>\S+) "
            r"and use MoE kernel config from (?P<used>.+?\.json)\."
        ),
    ),
    (
        "default",
        re.compile(
            r"Using default MoE (?:kernel )?config\. Performance might be sub-optimal! "
            r"Config file not found at (?P<wanted>.+?\.json)"
        ),
    ),
    (
        "up",
        re.compile(
            r"Using MoE kernel config with down_moe=False\. Performance might be sub-optimal! "
            r"Config file not found at (?P<wanted>.+?\.json)"
        ),
    ),
    ("up", re.compile(r"Down MoE config file not found at (?P<wanted>.+?\.json); reusing the tuned")),
)
MOE_DETERMINISTIC = "Deterministic inference is enabled, using default MoE kernel config."

# fp8_kernel.py and int8_kernel.py, the same in all releases (kernels/ops from 0.5.16 on)
_GEMM = re.compile(
    r"Using default W8A8 Block (?:FP8|INT8) kernel config\. Performance might be sub-optimal! "
    r"Config file not found at (?P<wanted>.+?\.json)"
)

_CONFIG_PATH = re.compile(r"(?P<root>.*?)/?(?:triton_(?P<triton>[^/]+)/)?(?P<file>E=\d+,N=\d+,[^/]*\.json)\Z")
_CONFIG_FILE = re.compile(
    r"E=(?P<experts>\d+),N=(?P<width>\d+),device_name=(?P<device>.*?)(?:,dtype=(?P<dtype>[a-z0-9_]+?))?"
    r"(?:,block_shape=\[(?P<block_n>\d+), ?(?P<block_k>\d+)\])?(?P<channel>,per_channel_quant=True)?"
    r"(?P<down>_down)?\.json\Z"
)
_PACKAGE = re.compile(r"(?P<folder>(?:/[^/\s\"':]+)*/sglang)/(?:srt/|kernels/|launch_server\.py|cli/)")

MoeSource = Literal["exact", "fallback", "default", "up"]


class Weights(NamedTuple):
    """`Load weight end.`: the model's class, dtype (up to 0.5.9), the checkpoint's quantization (0.5.10+)."""

    architecture: str
    dtype: str | None
    quantization: str | None
    gigabytes: float | None


class Capacity(NamedTuple):
    """The line that says what a scheduler has room for, one a DP (and PP) rank."""

    tokens: int
    running_requests: int
    context_length: int
    available_gb: float | None


class ConfigPath(NamedTuple):
    """Where a fused-MoE config file is or would be: configs/ folder, Triton version, file name."""

    path: str
    root: str
    triton: str | None
    file: str


class ConfigName(NamedTuple):
    """What the name of a fused-MoE config file says."""

    experts: int
    width: int
    device: str
    dtype: str | None
    block_shape: tuple[int, int] | None
    down: bool


class MoeLine(NamedTuple):
    """One lookup of a fused-MoE config: what was not there (if anything), and the file in use (if any)."""

    source: MoeSource
    wanted: ConfigPath | None
    used: ConfigPath | None

    @property
    def looked_for(self) -> ConfigPath:
        """The file that the lookup was for, there or not."""
        found = self.wanted or self.used
        assert found is not None  # noqa: S101 (every pattern has one of the two)
        return found

    @property
    def down(self) -> bool:
        """Whether it is the down projection's."""
        return self.looked_for.file.endswith("_down.json")


def weights(text: str) -> Weights | None:
    """Return what `Load weight end.` says."""
    found = _WEIGHTS.search(text)
    if not found:
        return None
    return Weights(
        found["type"], found["dtype"], found["quant"], float(found["use"]) if found["use"] else None
    )


def capacity(text: str) -> Capacity | None:
    """Return what the line with max_total_num_tokens says."""
    found = _CAPACITY.search(text)
    if not found:
        return None
    available = float(found["gpu"]) if found["gpu"] else None
    return Capacity(int(found["tokens"]), int(found["requests"]), int(found["context"]), available)


def retracted(text: str) -> int:
    """Return how many running requests this line says were retracted."""
    found = _RETRACTION.search(text)
    return int(found["number"]) if found else 0


def pause(text: str) -> str | None:
    """Return the request, one of PAUSES, that ``text`` says was answered; None for any other line."""
    found = _PAUSE.search(text)
    return found["what"] if found else None


def moe(text: str) -> MoeLine | None:
    """Return the fused-MoE config lookup that ``text`` reports; None when it is another line, or cut."""
    for source, pattern in _MOE:
        if found := pattern.search(text):
            groups = found.groupdict()
            wanted = config_path(groups["wanted"]) if groups.get("wanted") else None
            used = config_path(groups["used"]) if groups.get("used") else None
            if wanted is None and used is None:
                return None
            return MoeLine(source, wanted, used)  # type: ignore[arg-type]
    return None


def gemm(text: str) -> str | None:
    """Return the path of the block-wise FP8 or INT8 GEMM config that ``text`` says is missing."""
    found = _GEMM.search(text)
    return found["wanted"] if found else None


def config_path(path: str) -> ConfigPath | None:
    """Take the path of a fused-MoE config apart; None when it is not one's.

    The folder is ``triton_`` and Triton's version with underscores for dots, a local part included.
    """
    found = _CONFIG_PATH.match(path)
    if not found:
        return None
    triton = found["triton"]
    return ConfigPath(path, found["root"], triton.replace("_", ".") if triton else None, found["file"])


def config_name(file: str) -> ConfigName | None:
    """Take the name of a fused-MoE config file apart (get_config_file_name)."""
    found = _CONFIG_FILE.match(file)
    if not found:
        return None
    block = (int(found["block_n"]), int(found["block_k"])) if found["block_n"] else None
    return ConfigName(
        int(found["experts"]),
        int(found["width"]),
        found["device"].replace("_", " "),
        found["dtype"],
        block,
        found["down"] is not None,
    )


def package_folder(text: str) -> str | None:
    """Return the folder of the sglang package that a path in ``text`` lies in."""
    found = _PACKAGE.search(text)
    return found["folder"] if found else None


# 0.4 has a full stop behind `batch`; SGLANG_LOG_FORWARD_ITERS adds the iteration
_BATCH = re.compile(r"(?:Prefill|Decode) batch(?: \[\d+\])?[.,] ")


def batch(text: str) -> dict[str, str]:
    """Return the values of a `Prefill batch` or `Decode batch` line by name; nothing for any other line.

    Names and their order changed in nearly every release; hybrid models, speculative decoding and
    disaggregation add some.
    """
    found = _BATCH.search(text)
    values: dict[str, str] = {}
    for part in text[found.end() :].split(", ") if found else ():
        name, colon, value = part.strip(" ,").rpartition(": ")
        if colon:
            values[name] = value
    return values
