"""A model without weights: the logits of a position are a pure function of the rows before it.

The rows are kept apart from `ids`, and truncation leaves them in place as a real cache does, so that a loop
that rolls back wrongly reads stale rows and writes something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Law = Callable[[Sequence[int]], torch.Tensor]
"""float32 [vocabulary] logits of what follows these ids"""


def hashed(vocabulary: int, seed: int, order: int = 6, scale: float = 4.0, noise: float = 0.0) -> Law:
    """Random logits by the last `order` ids. Laws of one seed and different noise are alike, not equal."""
    table: dict[tuple[int, ...], torch.Tensor] = {}

    def law(ids: Sequence[int]) -> torch.Tensor:
        key = tuple(ids[-order:])
        if key not in table:
            generator = torch.Generator().manual_seed(hash((seed, key)) & 0x7FFFFFFF)
            row = torch.randn(vocabulary, generator=generator) * scale
            generator = torch.Generator().manual_seed(hash((seed + 1_000_003, key)) & 0x7FFFFFFF)
            table[key] = row + torch.randn(vocabulary, generator=generator) * scale * noise
        return table[key]

    return law


class ToyCache:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.ids: list[int] = []
        self.rows = [-1] * capacity

    def truncate(self, length: int) -> None:
        del self.ids[length:]

    def become(self, other: ToyCache, length: int) -> bool:
        self.ids, self.rows[:length] = other.ids[:length], other.rows[:length]
        return True


class ToyRunner:
    def __init__(self, law: Law, vocabulary: int, *, max_tokens: int = 512, chunk: int = 16) -> None:
        self.law = law
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        self.chunk = chunk
        self.steps: list[tuple[int, int]] = []
        """(ids, rows) of every step"""

    def new_cache(self, capacity: int) -> ToyCache:
        return ToyCache(capacity)

    def cache_bytes(self, capacity: int) -> int:
        return 8 * capacity

    def step(self, cache: ToyCache, ids: Sequence[int], rows: int) -> torch.Tensor:
        if not 0 < len(ids) <= self.chunk or rows > len(ids):
            raise ValueError(f"a step of {len(ids)} ids and {rows} rows")
        if len(cache.ids) + len(ids) > cache.capacity:
            raise ValueError("the cache has no room")
        if max(ids) >= self.vocabulary:
            raise ValueError("an id out of the vocabulary")
        self.steps.append((len(ids), rows))
        start = len(cache.ids)
        cache.rows[start : start + len(ids)] = ids
        cache.ids.extend(ids)
        ends = range(len(cache.ids) - rows + 1, len(cache.ids) + 1)
        if not rows:
            return torch.empty(0, self.vocabulary)
        return torch.stack([self.law(cache.rows[:end])[: self.vocabulary] for end in ends])
