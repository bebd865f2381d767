"""The dimensions of Qwen2.5-Coder, from the models' own config.json."""

from __future__ import annotations

from msgspec import Struct


class Dimensions(Struct, frozen=True, kw_only=True):
    """What the cost of a decoder of the Qwen2 kind depends on."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool
    """the head is the embedding"""

    @property
    def parameters(self) -> int:
        """of the matrices"""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.key_heads)
        layer = attention + 3 * self.hidden * self.intermediate
        return self.layers * layer + (1 if self.tied else 2) * self.vocabulary * self.hidden


QWEN = {
    "0.5B": Dimensions(
        hidden=896, layers=24, heads=14, key_heads=2, head_size=64, intermediate=4864, vocabulary=151936,
        tied=True,
    ),
    "1.5B": Dimensions(
        hidden=1536, layers=28, heads=12, key_heads=2, head_size=128, intermediate=8960, vocabulary=151936,
        tied=True,
    ),
    "7B": Dimensions(
        hidden=3584, layers=28, heads=28, key_heads=4, head_size=128, intermediate=18944, vocabulary=152064,
        tied=False,
    ),
    "32B": Dimensions(
        hidden=5120, layers=64, heads=40, key_heads=8, head_size=128, intermediate=27648, vocabulary=152064,
        tied=False,
    ),
}  # fmt: skip
