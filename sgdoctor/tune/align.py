"""`moe_align_block_size` of sgl_kernel, in torch: tokens sorted by expert, each padded to whole blocks."""

from __future__ import annotations

from typing import Any


def capacity(slots: int, experts: int, block: int, *, padded_to: int = 1) -> int:
    """Return the length that SGLang gives `sorted_token_ids`, rounded up to ``padded_to``.

    moe_align_block_size.py, 0.5.9 to 0.5.21; from 0.5.22 on it is rounded up to 4.
    """
    size = slots * block if slots < experts + 1 else slots + (experts + 1) * (block - 1)
    return -(-size // padded_to) * padded_to


def align(ids: Any, block: int, experts: int, *, padded_to: int = 1, sentinel: int | None = None) -> Any:
    """Return (sorted_token_ids, expert_ids, num_tokens_post_padded) for ``ids`` of shape (tokens, topk).

    An id of -1 is an expert of another GPU: its tokens form blocks of expert -1, before all others.
    ``sentinel`` marks the padding (SGLang: the number of ids).
    """
    import torch

    flat = ids.flatten().to(torch.int64) + 1
    slots = flat.numel()
    size = capacity(slots, experts, block, padded_to=padded_to)
    counts = torch.bincount(flat, minlength=experts + 1)
    padded = (counts + block - 1) // block * block
    ends = torch.cumsum(padded, 0)
    order = torch.argsort(flat, stable=True)
    rank = torch.arange(slots, device=flat.device) - (torch.cumsum(counts, 0) - counts)[flat[order]]
    sorted_ids = torch.full(
        (size,), slots if sentinel is None else sentinel, dtype=torch.int32, device=ids.device
    )
    sorted_ids[(ends - padded)[flat[order]] + rank] = order.to(torch.int32)
    expert_ids = torch.full((-(-size // block),), -1, dtype=torch.int32, device=ids.device)
    blocks = torch.repeat_interleave(torch.arange(-1, experts, device=flat.device), padded // block)
    expert_ids[: blocks.numel()] = blocks.to(torch.int32)
    return sorted_ids, expert_ids, ends[-1:].to(torch.int32)
