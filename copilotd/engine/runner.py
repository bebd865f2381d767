"""One model on one device, as the speculation loop sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import torch


class Cache(Protocol):
    """The KV rows of one sequence, preallocated; `ids[i]` is the token whose K and V stand in row i."""

    ids: list[int]
    capacity: int

    def truncate(self, length: int) -> None:
        """Forget the rows from `length` on. O(1): the rows stay in memory and are overwritten later."""
        ...

    def become(self, other: Self, length: int) -> bool:
        """Hold the first `length` rows of another cache of the same runner, to the bit. False: it cannot."""
        ...


class Runner(Protocol):
    """Row-invariant forward steps: a row's logits depend on the ids before it, on nothing beside it.

    Either M is free (kernels whose rows do not depend on M), or every step is padded inside the runner to
    one fixed M and cropped; the loop never sees which.
    """

    vocabulary: int
    """real entries; logits are cut to it, so padding rows are never seen"""
    max_tokens: int
    """the longest sequence the model's positions allow"""
    chunk: int
    """most rows of one step; longer prompts are fed in chunks so that work can be cancelled between them"""

    def new_cache(self, capacity: int) -> Cache: ...

    def cache_bytes(self, capacity: int) -> int:
        """What `new_cache(capacity)` will take, in bytes."""
        ...

    def step(self, cache: Cache, ids: Sequence[int], rows: int) -> torch.Tensor:
        """Append `ids` (1 … chunk) to the cache; logits, float32 [rows, vocabulary], of the last `rows`.

        rows = 0 skips the head and gives an empty tensor. Raises ValueError when the cache has no room.
        """
        ...


def start_of_step(runner: Runner, cache: Cache, count: int, rows: int) -> int:
    """The first row that a step of so many ids writes. Raises ValueError where there can be no such step."""
    start = len(cache.ids)
    if not 1 <= count <= runner.chunk or not 0 <= rows <= count:
        raise ValueError(f"a step of {count} ids with {rows} rows of logits; the chunk is {runner.chunk}")
    if start + count > min(cache.capacity, runner.max_tokens):
        raise ValueError(f"no room for {count} more rows after {start}")
    return start
