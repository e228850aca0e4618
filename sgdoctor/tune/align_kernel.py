"""`moe_align_block_size` as Triton kernels, for timing whole expert computations: nothing waits for the host.

SGLang's own lies in sgl_kernel, which this tuner does without; both sides of a comparison run this one. The
kernels' parameters have no types: Triton compiles the text and takes an annotation for a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from sgdoctor.tune.align import capacity

_CHUNK = 1024


@triton.jit
def _reset(sorted_ids, counts, size, experts, sentinel, CHUNK: tl.constexpr):
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    tl.store(sorted_ids + at, sentinel, mask=at < size)
    tl.store(counts + at, 0, mask=at < experts + 1)


@triton.jit
def _count(ids, counts, slots, CHUNK: tl.constexpr):
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = at < slots
    expert = tl.load(ids + at, mask=inside, other=0) + 1
    tl.atomic_add(counts + expert, 1, mask=inside)


@triton.jit
def _offsets(
    counts,
    cursor,
    ends,
    padded,
    experts,
    block,
    ALL: tl.constexpr,
):
    at = tl.arange(0, ALL)
    inside = at < experts + 1
    count = tl.load(counts + at, mask=inside, other=0)
    whole = (count + block - 1) // block * block
    end = tl.cumsum(whole, 0)
    tl.store(cursor + at, end - whole, mask=inside)
    tl.store(ends + at, end, mask=inside)
    tl.store(padded, tl.sum(whole, 0))


@triton.jit
def _scatter(ids, cursor, sorted_ids, slots, CHUNK: tl.constexpr):
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = at < slots
    expert = tl.load(ids + at, mask=inside, other=0) + 1
    place = tl.atomic_add(cursor + expert, 1, mask=inside)
    tl.store(sorted_ids + place, at, mask=inside)


@triton.jit
def _experts(
    ends,
    expert_ids,
    blocks,
    experts,
    block,
    ALL: tl.constexpr,
    CHUNK: tl.constexpr,
):
    each = tl.arange(0, ALL)
    end = tl.load(ends + each, mask=each < experts + 1, other=2147483647)
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    before = tl.sum((end[None, :] <= (at * block)[:, None]).to(tl.int32), 1)
    tl.store(expert_ids + at, tl.where(before > experts, -1, before - 1), mask=at < blocks)


@dataclass
class Aligned:
    """The buffers of one routing and BLOCK_SIZE_M, filled anew by ``run``."""

    ids: Any
    experts: int
    block: int

    def __post_init__(self) -> None:
        device, slots = self.ids.device, self.ids.numel()
        size = capacity(slots, self.experts, self.block)

        def empty(length: int) -> Any:
            return torch.empty(length, dtype=torch.int32, device=device)

        self.sorted_ids, self.expert_ids, self.padded = empty(size), empty(-(-size // self.block)), empty(1)
        self._counts, self._cursor, self._ends = (empty(self.experts + 1) for _ in range(3))

    def run(self) -> None:
        """Sort the slots by expert, each expert's padded to whole blocks."""
        slots, size, experts = self.ids.numel(), self.sorted_ids.numel(), self.experts
        every = triton.next_power_of_2(experts + 1)
        blocks = self.expert_ids.numel()
        reset = triton.cdiv(max(size, experts + 1), _CHUNK)
        _reset[(reset,)](self.sorted_ids, self._counts, size, experts, slots, CHUNK=_CHUNK)
        chunks = (triton.cdiv(slots, _CHUNK),)
        _count[chunks](self.ids, self._counts, slots, CHUNK=_CHUNK)
        _offsets[(1,)](self._counts, self._cursor, self._ends, self.padded, experts, self.block, ALL=every)
        _scatter[chunks](self.ids, self._cursor, self.sorted_ids, slots, CHUNK=_CHUNK)
        width = max(16, 8192 // every)
        _experts[(triton.cdiv(blocks, width),)](
            self._ends, self.expert_ids, blocks, experts, self.block, ALL=every, CHUNK=width
        )
