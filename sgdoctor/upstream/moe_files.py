"""What the content of a deployment's fused-MoE configuration files means for its server."""

from __future__ import annotations

from pathlib import Path

import msgspec
from packaging.version import Version

from sgdoctor.upstream import config_checks, config_pairs, config_table
from sgdoctor.upstream.config_problem import Gpu, Problem, Severity
from sgdoctor.upstream.config_table import BrokenFile, Table
from sgdoctor.upstream.moe_config import Found, Lookup, Shape


class FileCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the content of the files in use means for the server.

    ``read`` is False for files that SGLang ships and that are not on this machine: of these the errors and
    warnings are known, not what is only worth knowing.
    """

    block_m_mismatch: bool
    problems: tuple[Problem, ...] = ()
    read: bool = True
    error: str | None = None  # the exception that SGLang's lookup and reading, in their order, end in

    def of(self, severity: Severity) -> list[str]:
        """Return the problems of this severity, each with its file's name."""
        return [str(problem) for problem in self.problems if problem.severity == severity]


# The one file of all that SGLang 0.5.7 to 0.5.23 ship and look for that has an error (from 0.5.9 on); none
# has a warning, and no two files of one folder differ in BLOCK_SIZE_M. tests/configs/test_lint.py.
_SHIPPED_WRONG = {
    (
        "3.5.1",
        "E=512,N=256,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128].json",
    ): config_checks.crosses_blocks([256], [64, 128, 256, 512], 128)
}


def check(release: Version, shape: Shape, lookup: Lookup, *, gpu: Gpu | None = None) -> FileCheck:
    """Check the files that ``lookup`` found, by their own content.

    ``gpu`` decides what fits its shared memory and which options its compiler takes. Raises OSError when a
    file cannot be read.
    """
    gpu = gpu or Gpu()
    try:
        up = _table(lookup.up)
        if lookup.error is not None:
            return FileCheck(block_m_mismatch=False, error=lookup.error)
        down = _table(lookup.down)
    except BrokenFile as broken:
        problem = Problem(code=broken.code, severity="error", file=broken.file, text=broken.text)
        return FileCheck(block_m_mismatch=False, problems=(problem,), error=broken.raised)
    problems: list[Problem] = []
    for found, table, is_down in ((lookup.up, up, False), (lookup.down, down, True)):
        if table is not None:
            problems += config_checks.moe(release, found.file, table, shape, down=is_down, gpu=gpu)
    other = "the up file in use" if up else "the built-in up config"
    down_file, shared = lookup.down.file, gpu.shared_memory
    pair = config_pairs.problem(release, down_file, shape, up or {}, down or {}, other, shared)
    mismatch = pair is not None and pair.code == config_pairs.DIFFERS
    if pair is not None and not mismatch:
        problems.append(pair)
    return FileCheck(block_m_mismatch=mismatch, problems=tuple(problems))


def check_shipped(lookup: Lookup) -> FileCheck | None:
    """Judge the files that ``lookup`` found in a release's own folder, without reading them.

    None where that was not looked at: an up and a down file of different Triton versions.
    """
    if lookup.error is not None:
        return FileCheck(block_m_mismatch=False, read=False, error=lookup.error)
    own_down = lookup.down.source in ("exact", "fallback")
    if own_down and lookup.up.triton != lookup.down.triton:
        return None
    wrong = _SHIPPED_WRONG.get((lookup.up.triton or "", lookup.up.file))
    problems = (Problem(code="block-k", severity="error", file=lookup.up.file, text=wrong),) if wrong else ()
    return FileCheck(block_m_mismatch=False, problems=problems, read=False)


def _table(found: Found) -> Table | None:
    if found.path is None or found.source == "up":
        return None
    return config_table.read(Path(found.path))
