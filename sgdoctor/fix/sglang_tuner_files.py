"""What SGLang's tuner wrote, as a table: read, checked, and put right where its mistake is a known one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgdoctor.configs import names
from sgdoctor.errors import UsageError
from sgdoctor.tune.model import Job, Pair, Table
from sgdoctor.tune.space import Config, fits_quantization, takes_tma
from sgdoctor.upstream import config_table
from sgdoctor.upstream.moe_config import Shape


@dataclass(frozen=True)
class Read:
    """The table that the files come to, for every batch size of the job, and what was caught in them."""

    table: dict[int, Pair]
    notes: tuple[str, ...]


def read(files: Iterable[Path], job: Job) -> Read:
    """Return what the files hold for ``job``: one of all batch sizes, or several that have some each.

    A `_down` file is optional. A batch size without an entry gets the nearest's, as SGLang's lookup would; an
    entry that would compute wrong results is replaced by what is in use today. Raises UsageError for files of
    another shape, GPU or kind of weights, for one that cannot be read, and when there is no entry at all.
    """
    up: dict[int, Config] = {}
    down: dict[int, Config] = {}
    notes: list[str] = []
    for file in files:
        name, note = check_name(file.name, job)
        notes += [note] if note else []
        (down if name.down else up).update(_entries(file))
    if not up:
        raise UsageError("SGLang's tuner left no configuration for the up product: nothing to install")
    if not down:
        notes.append("no _down file: the down product gets the up product's configurations, without TMA")
    table = {m: _pair(m, up, down, job, notes) for m in job.tokens}
    missing = [m for m in job.tokens if m not in up]
    if missing:
        listed = ", ".join(map(str, missing))
        notes.append(f"no configuration for batch sizes {listed}: the nearest's stands in, as at start-up")
    return Read(table, tuple(dict.fromkeys(notes)))


def check_name(file: str, job: Job) -> tuple[names.Name, str]:
    """Return the parts of a file's name, and a sentence when it is a wrong one for the right shape.

    For int4 the lookup takes the packed width for N (upstream.moe_shapes). So does the tuner of releases
    that know --dtype int4_w4a16; from SGLang's pull request 35260 (2026-08) on it names the file with the
    width, twice as much, though it times the same weights. Both are results for this shape. Raises UsageError
    for every other difference.
    """
    try:
        name = names.parse(file, "moe")
    except names.Unreachable as error:
        raise UsageError(f"SGLang's tuner wrote {file}, which {error}") from error
    wanted_file = job.down_file if name.down else job.up_file
    if file == wanted_file:
        return name, ""
    wanted = names.parse(wanted_file, "moe")
    if name.device != wanted.device:
        raise UsageError(f"{file} was tuned on {name.device}; wanted is {wanted.device}: tune on that GPU")
    there, want = name.key, wanted.key
    assert isinstance(there, Shape)  # noqa: S101 (what a moe name's key is)
    assert isinstance(want, Shape)  # noqa: S101
    halves = {job.problem.width, job.problem.width // 2}
    if job.problem.kind == "int4" and _but_width(there) == _but_width(want) and there.width in halves:
        return (
            name,
            f"{file}: SGLang would never read this name (its pull request 35260); it becomes {wanted_file}",
        )
    raise UsageError(f"{file} is for another shape: {_difference(there, want)}; {_way_out(there, want)}")


def _but_width(shape: Shape) -> tuple[Any, ...]:
    return shape.experts, shape.dtype, shape.block_shape, shape.per_channel


def _difference(there: Shape, want: Shape) -> str:
    said = {"experts": "E", "width": "N", "dtype": "dtype", "block_shape": "block_shape"}
    for field, label in (*said.items(), ("per_channel", "per_channel_quant")):
        if getattr(there, field) != getattr(want, field):
            return f"{label} is {getattr(there, field)}, this deployment has {getattr(want, field)}"
    return "its name"


def _way_out(there: Shape, want: Shape) -> str:
    if abs(there.experts - want.experts) == 1:
        return "the tuner counts the shared expert otherwise than this server: use sgdoctor's own tuner"
    return "check --tp, --ep and --dtype, or use sgdoctor's own tuner"


def _entries(file: Path) -> dict[int, Config]:
    try:
        content = config_table.read(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    except config_table.BrokenFile as error:
        raise UsageError(f"{file} {error.text}: run SGLang's tuner again") from error
    return {tokens: _config(file, tokens, entry) for tokens, entry in content.items()}


def _config(file: Path, tokens: int, entry: Any) -> Config:
    config = None
    if isinstance(entry, Mapping):
        with contextlib.suppress(KeyError):
            config = Config.from_sglang(entry)
    if config is None or not all(type(field) is int and field > 0 for field in config.to_list()[:6]):
        raise UsageError(f"{file}: the entry of batch size {tokens} is no configuration: {str(entry)[:80]}")
    return config


def _nearest(table: Mapping[int, Any], tokens: int) -> Any:
    """Return the entry that SGLang's lookup picks: the nearest key, of two the first in the file."""
    return table[min(table, key=lambda key: abs(key - tokens))]


def _pair(
    tokens: int, up: Mapping[int, Config], down: Mapping[int, Config], job: Job, notes: list[str]
) -> Pair:
    """Return one batch size's configurations; today's, with a note, where these cannot work."""
    first: Config = _nearest(up, tokens)
    if first.tma and not job.up_tma:
        notes.append(f"SGLang {job.release} reads no USE_TMA in an up file: left out")
        first = replace(first, tma=False)
    second: Config = _nearest(down, tokens) if down else replace(first, tma=False)
    if second.tma and not takes_tma(job.problem):
        notes.append(f"USE_TMA computes wrong results for {job.problem.kind} weights: left out")
        second = replace(second, tma=False)
    reason = ""
    if first.block_m != second.block_m:
        reason = f"BLOCK_SIZE_M differs, {first.block_m} up and {second.block_m} down"
    for config in (first, second):
        if not fits_quantization(config, job.problem):
            block = list(job.problem.block or ())
            reason = f"{config} does not fit the quantization block {block} and would compute wrong results"
    if not reason:
        return Pair(first, second)
    notes.append(f"batch size {tokens}: {reason}; what is in use today stays")
    return _today(job.today, tokens)


def _today(table: Table, tokens: int) -> Pair:
    pair: Pair = _nearest(table, tokens)
    return pair
