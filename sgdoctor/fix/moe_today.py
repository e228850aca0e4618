"""The configurations that a server uses today: its config files, else the built-in default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.tune.model import Pair, Table
from sgdoctor.tune.space import Capability, Config, Problem, default_config, shared_memory_limit
from sgdoctor.upstream import config_pairs, config_table, moe_config

# fused_moe.py pops USE_TMA off the up config from 0.5.18 on; 0.5.9 to 0.5.17 hand it to the kernel, which
# does not know it.
UP_TMA = Version("0.5.18")

# get_moe_configs returns the up table for a missing down file from 0.5.16 on, its USE_TMA included.
UP_FOR_DOWN = Version("0.5.16")


def default(problem: Problem, tokens: Iterable[int], capability: Capability, release: Version) -> Table:
    """Return the built-in configurations of ``release`` on a GPU of ``capability``, both products alike."""
    little = shared_memory_limit(capability) < config_pairs.LOW_SHARED_MEMORY
    low = little and release >= config_pairs.LOW_SHARED_MEMORY_DEFAULT
    found = {number: default_config(problem, number, low_shared_memory=low) for number in tokens}
    return {number: Pair(config, config) for number, config in found.items()}


def today(facts: Facts, root: Path, builtin: Table, release: Version) -> Table:
    """Return what the server uses at each number of tokens of ``builtin``, the built-in configurations.

    ``root`` is the folder whose triton_* folders the server reads. Where the down file has another
    BLOCK_SIZE_M than the up file, the down product runs with the up product's (0.5.13 and newer; older
    releases die there, so that nothing is lost by comparing with that). Raises UsageError for a file in use
    that is not what SGLang reads.
    """
    up = _table(facts, root, "up")
    own_down = facts.value("moe.down.source") in ("exact", "fallback")
    down = _table(facts, root, "down") if own_down else None
    found = {}
    for tokens, pair in builtin.items():
        entry = config_pairs.nearest(up, tokens) if up else pair.up
        other = config_pairs.nearest(down, tokens) if down else entry
        if not down and release < UP_FOR_DOWN:
            other = replace(other, tma=False)
        if release < UP_TMA:
            entry = replace(entry, tma=False)
        found[tokens] = Pair(entry, replace(other, block_m=entry.block_m))
    return found


def source(facts: Facts) -> tuple[str, str]:
    """Return where the up configuration comes from (default, fallback, exact), and that in words."""
    kind = facts.value("moe.up.source")
    if kind == "default":
        return kind, "the built-in default"
    triton = facts.value("moe.up.triton")
    return kind, f"the file for Triton {triton}"


def _table(facts: Facts, root: Path, projection: str) -> dict[int, Config] | None:
    """Read the file that a product's configurations come from, null for the built-in ones."""
    if facts.value(f"moe.{projection}.source") not in ("exact", "fallback"):
        return None
    folder = moe_config.folder_of(str(facts.value(f"moe.{projection}.triton")))
    path = root / folder / str(facts.value(f"moe.{projection}.expected_file"))
    try:
        table = config_table.read(path)
        return {key: Config.from_sglang(entry) for key, entry in table.items()}
    except OSError as error:
        raise UsageError(
            f"{path}, which the server uses, cannot be read: {error.strerror or error}"
        ) from None
    except (config_table.BrokenFile, KeyError, TypeError) as error:
        said = f"has an entry without {error}" if isinstance(error, KeyError) else f"is broken: {error}"
        raise UsageError(f"{path} {said}; move it away, and tune again") from None
