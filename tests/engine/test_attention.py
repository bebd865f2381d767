"""Attention against its definition, and its rows against one another."""

from __future__ import annotations

import math

import pytest
import torch

from copilotd.engine.attention import attend, causal_mask

SHAPES = [(14, 2, 64), (12, 2, 128), (9, 3, 64), (4, 2, 16), (3, 3, 12), (2, 1, 32), (40, 8, 128)]
"""heads, key heads, head size"""


def case(
    heads: int, key_heads: int, size: int, length: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries of every position, and a cache of 1,024 rows of which those past `length` hold old numbers."""
    random = torch.Generator().manual_seed(heads * size)
    queries = torch.randn(length, heads, size, generator=random)
    keys = torch.randn(key_heads, 1024, size, generator=random)
    values = torch.randn(key_heads, 1024, size, generator=random)
    return queries, keys, values


def stepwise(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, rows: int, window: int | None
) -> torch.Tensor:
    mask = causal_mask(start, rows, window, torch.device("cpu"))
    return attend(queries[start : start + rows], keys.mT.contiguous(), values, *mask)


@pytest.mark.parametrize("window", [None, 8, 300])
@pytest.mark.parametrize(("heads", "key_heads", "size"), SHAPES)
def test_it_is_attention(heads: int, key_heads: int, size: int, window: int | None) -> None:
    length = 600
    queries, keys, values = case(heads, key_heads, size, length)
    per_group = heads // key_heads
    wide_keys = keys.repeat_interleave(per_group, dim=0)[:, :length]
    wide_values = values.repeat_interleave(per_group, dim=0)[:, :length]
    position = torch.arange(length)
    seen = position[None, :] <= position[:, None]
    if window is not None:
        seen &= position[None, :] > position[:, None] - window
    scores = torch.einsum("thd,hsd->hts", queries, wide_keys).masked_fill(~seen, -math.inf)
    expected = torch.einsum("hts,hsd->thd", scores.softmax(-1), wide_values).reshape(length, -1)
    for start, rows in ((0, 1), (0, 5), (255, 3), (511, 1), (300, 300)):
        got = stepwise(queries, keys, values, start, rows, window)
        torch.testing.assert_close(got, expected[start : start + rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize(("heads", "key_heads", "size"), SHAPES)
def test_a_row_has_the_same_bits_in_every_step(
    heads: int, key_heads: int, size: int, window: int | None
) -> None:
    """Every number of rows, at and across the borders of key blocks, so that more keys are offered too."""
    queries, keys, values = case(heads, key_heads, size, 800)
    for position in (0, 1, 250, 255, 256, 511, 700):
        alone = stepwise(queries, keys, values, position, 1, window)[0]
        for rows in (2, 3, 4, 5, 8, 9, 16, 33, 64):
            for before in (0, rows // 2, rows - 1):
                start = position - before
                if start >= 0:
                    row = stepwise(queries, keys, values, start, rows, window)[before]
                    assert torch.equal(row, alone), (position, rows, before)


def test_what_stands_past_the_row_does_not_matter() -> None:
    queries, keys, values = case(4, 2, 16, 300)
    first = stepwise(queries, keys, values, 290, 2, None)
    keys[:, 292:], values[:, 292:] = 1e6, -1e6
    assert torch.equal(stepwise(queries, keys, values, 290, 2, None), first)
