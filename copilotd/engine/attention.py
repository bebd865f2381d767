"""Causal attention whose rows do not depend on how many other rows or masked keys ride along.

Scores: each is a sum over the head's size alone, so more keys change nothing. Softmax: masked keys come
last or are exact zeros, and a zero added to a partial sum changes no bit. Weighted values: reduced over
blocks of 256 keys, each by itself, the partial results added in block order; a masked block adds zeros.
Fewer than four query rows would send the matrix product to kernels that sum in another order: see `_ROWS`.
"""

from __future__ import annotations

import math

import torch

from copilotd.engine.kv import BLOCK

_ROWS = 4
"""A product of at least four rows keeps its order of summation whatever the number of rows (MKL, measured
for 4 to 2,048 rows); with one to three rows other kernels are chosen."""


def visible_keys(end: int) -> int:
    """How many keys a step that ends at row `end` is offered: whole blocks."""
    return -(-end // BLOCK) * BLOCK


def causal_mask(start: int, rows: int, window: int | None, device: torch.device) -> tuple[int, torch.Tensor]:
    """(first, mask): add `mask`, float32 [rows, keys - first] of 0 and -inf, to the scores from `first` on.

    Row i stands at position start + i and sees the keys 0 … start + i; with a window, only the last
    `window` of them. Without one the keys before `start` need no mask.
    """
    keys = visible_keys(start + rows)
    first = start if window is None else 0
    position = torch.arange(start, start + rows, device=device)[:, None]
    key = torch.arange(first, keys, device=device)[None, :]
    hidden = key > position
    if window is not None:
        hidden |= key <= position - window
    return first, torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -math.inf)


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first: int, mask: torch.Tensor
) -> torch.Tensor:
    """float32 [rows, heads x size] of queries [rows, heads, size], scaled already, over a layer's cache.

    `keys` are [key heads, size, cache rows], `values` [key heads, cache rows, size]; heads is a multiple of
    key heads.
    """
    rows, heads, size = queries.shape
    groups = keys.shape[0]
    per_group = heads // groups
    offered = first + mask.shape[1]
    grouped = (
        queries.view(rows, groups, per_group, size).transpose(0, 1).reshape(groups, rows * per_group, size)
    )
    if rows * per_group < _ROWS:
        grouped = torch.nn.functional.pad(grouped, (0, 0, 0, _ROWS - rows * per_group))
    scores = torch.bmm(grouped, keys[:, :, :offered])
    real = scores[:, : rows * per_group]
    if rows == 1:
        real[:, :, first:] += mask
    else:
        real.view(groups, rows, per_group, offered)[..., first:] += mask[:, None]
    weights = torch.softmax(scores, dim=-1)
    mixed = torch.bmm(weights[:, :, :BLOCK], values[:, :BLOCK])
    for block in range(BLOCK, offered, BLOCK):
        mixed.baddbmm_(weights[:, :, block : block + BLOCK], values[:, block : block + BLOCK])
    mixed = mixed[:, : rows * per_group].view(groups, rows, per_group, size)
    return mixed.transpose(0, 1).reshape(rows, heads * size)
