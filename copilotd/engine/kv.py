"""The KV rows of one sequence, preallocated."""

from __future__ import annotations

import torch

BLOCK = 256
"""Attention reduces over keys in blocks of so many; capacities are whole blocks."""


class KvCache:
    """Implements `Cache`. Keys and values are float32; keys stand transposed, as the product wants them.

    Rows at and beyond `len(ids)` hold what was last written there, always finite, and are masked out.
    """

    def __init__(
        self, layers: int, heads: int, head_size: int, capacity: int, spare: int, device: torch.device
    ) -> None:
        """`capacity` rows can be filled; `spare` more take the padding of a step at fixed shape."""
        self.ids: list[int] = []
        self.capacity = capacity
        rows = padded_rows(capacity + spare)
        self._keys = torch.zeros((layers, heads, head_size, rows), dtype=torch.float32, device=device)
        self._values = torch.zeros((layers, heads, rows, head_size), dtype=torch.float32, device=device)
        self.keys = list(self._keys)
        """per layer, [key heads, head size, rows]"""
        self.values = list(self._values)
        """per layer, [key heads, rows, head size]"""

    def truncate(self, length: int) -> None:
        if not 0 <= length <= len(self.ids):
            raise ValueError(f"cannot cut a cache of {len(self.ids)} rows to {length}")
        del self.ids[length:]

    def become(self, other: KvCache, length: int) -> bool:
        self._keys[..., :length] = other._keys[..., :length]
        self._values[:, :, :length] = other._values[:, :, :length]
        self.ids = other.ids[:length]
        return True


def padded_rows(rows: int) -> int:
    return -(-rows // BLOCK) * BLOCK
