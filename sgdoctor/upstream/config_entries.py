"""What any kernel needs of the entries of its configuration file, and what of it Triton refuses.

Where an entry is handed to the kernel as keywords, a missing one and one that is neither the kernel's nor an
option of Triton's compiler end the launch (JITFunction._pack_args of Triton 3.6: "Keyword argument ... was
specified but unrecognised"). Block sizes and num_warps have to be powers of two (tl.arange, CUDAOptions).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from sgdoctor.upstream.config_problem import Gpu, Problem, Severity, at_keys
from sgdoctor.upstream.config_table import Table

# What Triton's compiler takes besides a kernel's own parameters: on NVIDIA, on AMD, on both.
_OPTIONS = frozenset(
    "num_warps num_stages num_ctas extern_libs debug enable_fp_fusion launch_cooperative_grid warp_size arch "
    "sanitize_overflow backend_name supported_fp8_dtypes deprecated_fp8_dot_operand_dtypes "
    "default_dot_input_precision allowed_dot_input_precisions max_num_imprecise_acc_default "
    "instrumentation_mode".split()
)
_NVIDIA_OPTIONS = frozenset(
    "maxnreg cluster_dims ptx_version ptx_options ir_override launch_pdl enable_reflect_ftz "
    "enable_warp_specialization".split()
)
_AMD_OPTIONS = frozenset(
    "waves_per_eu matrix_instr_nonkdim kpack allow_flush_denorm schedule_hint "
    "instruction_sched_variant".split()
)

TILES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
_FAR = 16  # a batch this many times larger or smaller than the key it runs on is far from it
_BATCHES = 2**31  # no batch is larger
_LARGEST = 4096  # the largest batch of SGLang's own tuning grid


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel takes from an entry.

    ``needs``: numbers that must be there. ``own``: further keys that it understands. ``keywords``: the whole
    entry is handed over, so that other keys end the launch. ``null``: an entry may be null. ``key``: what the
    table is keyed by.
    """

    needs: tuple[str, ...]
    own: frozenset[str] = frozenset()
    keywords: bool = True
    null: bool = False
    key: str = "M"


MOE = Kernel(needs=(*TILES, "GROUP_SIZE_M"), own=frozenset({"USE_TMA"}))
BLOCK_GEMM = Kernel(needs=(*TILES, "GROUP_SIZE_M"), own=frozenset({"SWAP_AB", "SPLIT_K"}))
CHANNELWISE = Kernel(needs=(*TILES, "num_warps", "num_stages"), keywords=False, null=True)
LORA = Kernel(needs=("BLOCK_N", "BLOCK_K"), keywords=False, key="chunk")


class Reporter:
    """Makes the problems of one file."""

    def __init__(self, file: str, kernel: Kernel) -> None:
        self.file = file
        self.kernel = kernel

    def problem(self, code: str, severity: Severity, text: str) -> Problem:
        """Return a problem of the file."""
        return Problem(code=code, severity=severity, file=self.file, text=text)

    def at(self, keys: Iterable[int]) -> str:
        """Return keys of the file's table in words."""
        return at_keys(keys, self.kernel.key)


def usable(kernel: Kernel, entry: Any) -> bool:
    """Whether the kernel has what it needs of an entry."""
    return isinstance(entry, dict) and not any(
        _lacks(entry, name) or _odd(entry, name) for name in kernel.needs
    )


def check(report: Reporter, table: Table, gpu: Gpu) -> Iterator[Problem]:
    """Yield what is wrong with the entries whatever the kernel computes with them."""
    kernel = report.kernel
    plain = [
        key
        for key, entry in table.items()
        if not isinstance(entry, dict) and not (kernel.null and entry is None)
    ]
    if plain:
        text = f"has entries that are no objects at {report.at(plain)}"
        yield report.problem("entry-not-an-object", "error", text)
    entries = {key: entry for key, entry in table.items() if isinstance(entry, dict)}
    for name in kernel.needs:
        lacking = [key for key, entry in entries.items() if _lacks(entry, name)]
        if lacking:
            yield report.problem("key-missing", "error", f"lacks {name} at {report.at(lacking)}")
    yield from _values(report, entries)
    if kernel.keywords:
        yield from _unknown(report, entries, gpu)


def _lacks(entry: Mapping[str, Any], name: str) -> bool:
    return entry.get(name) is None


def _odd(entry: Mapping[str, Any], name: str) -> bool:
    """Whether a value is there and no number that Triton takes for it."""
    value = entry.get(name)
    if value is None:
        return False
    least = 0 if name == "num_stages" else 1
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        return True
    return _power(name) and bool(value & (value - 1))


def _power(name: str) -> bool:
    return name.startswith("BLOCK_") or name == "num_warps"


def _values(report: Reporter, entries: Mapping[int, Any]) -> Iterator[Problem]:
    for name in dict.fromkeys((*report.kernel.needs, "num_warps", "num_stages")):
        odd = [key for key, entry in entries.items() if _odd(entry, name)]
        if odd:
            power = "power of two" if _power(name) else "number of that kind"
            shown = ", ".join(dict.fromkeys(repr(entries[key][name])[:20] for key in odd[:3]))
            text = f"has {name} {shown}, which is no {power}, at {report.at(odd)}"
            yield report.problem("value-unusable", "error", text)


def _unknown(report: Reporter, entries: Mapping[int, Any], gpu: Gpu) -> Iterator[Problem]:
    known = {*report.kernel.needs, *report.kernel.own, *_OPTIONS}
    if gpu.vendor != "amd":
        known |= _NVIDIA_OPTIONS
    if gpu.vendor != "nvidia":
        known |= _AMD_OPTIONS
    names = dict.fromkeys(str(name) for entry in entries.values() for name in entry if name not in known)
    for name in names:
        keys = [key for key, entry in entries.items() if name in entry]
        which = "an option of AMD's compiler" if name in _AMD_OPTIONS else "neither the kernel's nor Triton's"
        shown = name if name.isidentifier() else repr(name)
        text = f"has {shown[:60]}, {which}: the launch fails at {report.at(keys)}"
        yield report.problem("key-unknown", "error", text)


def partial(report: Reporter, table: Table, default: Mapping[str, Any] | None) -> Iterator[Problem]:
    """Yield batch sizes up to 4096 that run on the entry of a batch at least 16 times larger or smaller.

    Not where the author closed the range on purpose: with the built-in config (``default``) as its last
    entry, or with the same entry on both sides of a gap.
    """
    keys = sorted(key for key in table if 0 < key <= _BATCHES)
    if not keys:
        return
    first, last = keys[0], keys[-1]
    if first >= _FAR:
        text = f"has no key below {first}: every smaller batch, down to 1, runs on the entry for {first}"
        yield report.problem("keys-far", "info", text)
    if last * _FAR <= _LARGEST and not _same(table[last], default):
        text = f"has no key above {last}: every larger batch runs on the entry for {last}"
        yield report.problem("keys-far", "info", text)
    for left, right in itertools.pairwise(keys):
        middle = (left + right) // 2
        if middle >= left * _FAR and table[left] != table[right]:
            text = f"has no key between {left} and {right}: M up to {middle} run on the entry for {left}"
            yield report.problem("keys-far", "info", text)


def _same(entry: Any, default: Mapping[str, Any] | None) -> bool:
    return (
        default is not None
        and isinstance(entry, dict)
        and all(entry.get(name) == value for name, value in default.items())
    )
