"""A forward pass of our own for decoders of the Qwen2 and Llama kind.

Between the products everything is float32: the residual stream, norms, rotary positions, keys and values.
Only exactly rounded element-wise operations, sums over one row and `attend` stand there, so a row's bits
depend on nothing beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch.nn.functional import rms_norm, silu

from copilotd.engine.attention import attend, causal_mask
from copilotd.engine.kv import KvCache, padded_rows
from copilotd.engine.products import Product, rows_free
from copilotd.engine.runner import Cache, start_of_step


class Shape(Struct, frozen=True, kw_only=True):
    """The numbers of a decoder."""

    hidden: int
    intermediate: int
    heads: int
    key_heads: int
    head_size: int
    rope_theta: float
    norm_epsilon: float
    max_tokens: int
    windows: tuple[int | None, ...]
    """per layer: how many tokens back a position sees, itself included; None: all"""

    @property
    def layers(self) -> int:
        return len(self.windows)


class Layer(Struct, frozen=True):
    """One decoder block. Norm weights and biases are float32."""

    attention_norm: torch.Tensor
    qkv: Product
    """[hidden] to queries, keys, values, in this order"""
    qkv_bias: torch.Tensor | None
    output: Product
    mlp_norm: torch.Tensor
    gate_up: Product
    down: Product


class Embedding(Struct, frozen=True):
    """Rows by id: a float table, or int8 with a float32 scale by row."""

    table: torch.Tensor
    scale: torch.Tensor | None = None

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """float32 [rows, hidden]"""
        rows = self.table[ids].float()
        return rows if self.scale is None else rows.mul_(self.scale[ids, None])


class Decoder(Struct, frozen=True):
    """The weights of a model."""

    shape: Shape
    embedding: Embedding
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Product
    """[hidden] to at least `vocabulary` logits"""

    @property
    def products(self) -> list[Product]:
        blocks = [(layer.qkv, layer.output, layer.gate_up, layer.down) for layer in self.layers]
        return [product for block in blocks for product in block] + [self.head]


class DecoderRunner:
    """Implements `Runner` on a Decoder."""

    def __init__(
        self, decoder: Decoder, vocabulary: int, *, fixed_rows: int, chunk: int = 64, device: str = "cpu"
    ) -> None:
        """`fixed_rows`: the rows of every step where the products' rows are not free; then also the chunk."""
        self.decoder = decoder
        self._fixed = None if rows_free(decoder.products) else fixed_rows
        self._device = torch.device(device)
        self.vocabulary = vocabulary
        self.max_tokens = decoder.shape.max_tokens
        self.chunk = self._fixed or chunk
        # Rows that only pad a step may lie past the model's limit.
        self._rotation = _Rotation(decoder.shape, self.max_tokens + self.chunk, self._device)

    @property
    def rows_free(self) -> bool:
        """Whether M is free; else every step is padded to `chunk` rows."""
        return self._fixed is None

    def new_cache(self, capacity: int) -> KvCache:
        shape = self.decoder.shape
        spare = self._fixed or 0
        return KvCache(shape.layers, shape.key_heads, shape.head_size, capacity, spare, self._device)

    def cache_bytes(self, capacity: int) -> int:
        shape = self.decoder.shape
        rows = padded_rows(capacity + (self._fixed or 0))
        return 2 * 4 * shape.layers * shape.key_heads * shape.head_size * rows

    @torch.inference_mode()
    def step(self, cache: Cache, ids: Sequence[int], rows: int) -> torch.Tensor:
        if not isinstance(cache, KvCache):
            raise TypeError("the cache is another runner's")
        count = len(ids)
        start = start_of_step(self, cache, count, rows)
        padded = [*ids, *[0] * (self._fixed - count)] if self._fixed else ids
        hidden = self._run(cache, torch.tensor(padded, device=self._device), start)
        cache.ids.extend(ids)
        if rows == 0:
            return torch.empty((0, self.vocabulary), device=self._device)
        if self._fixed is None:
            hidden = hidden[-rows:]
        logits = self.decoder.head(_norm(hidden, self.decoder.norm, self.decoder.shape.norm_epsilon))
        return (
            logits[count - rows : count, : self.vocabulary].float()
            if self._fixed
            else (logits[:, : self.vocabulary].float())
        )

    def _run(self, cache: KvCache, ids: torch.Tensor, start: int) -> torch.Tensor:
        """The residual stream after the last layer, [rows, hidden]; the cache's rows are written."""
        shape = self.decoder.shape
        rows = len(ids)
        end = start + rows
        heads, rotated = shape.heads, shape.heads + shape.key_heads
        cosine, sine = self._rotation.at(start, end)
        masks = {
            window: causal_mask(start, rows, window, self._device) for window in dict.fromkeys(shape.windows)
        }
        x = self.decoder.embedding(ids)
        for layer, window, keys, values in zip(
            self.decoder.layers, shape.windows, cache.keys, cache.values, strict=True
        ):
            qkv = layer.qkv(_norm(x, layer.attention_norm, shape.norm_epsilon))
            qkv = qkv.float() if layer.qkv_bias is None else qkv + layer.qkv_bias
            qkv = qkv.view(rows, rotated + shape.key_heads, shape.head_size)
            turned = _rotate(qkv[:, :rotated], cosine, sine)
            keys[:, :, start:end] = turned[:, heads:].permute(1, 2, 0)
            values[:, start:end] = qkv[:, rotated:].transpose(0, 1)
            x = x.add_(layer.output(attend(turned[:, :heads], keys, values, *masks[window])))
            gate_up = layer.gate_up(_norm(x, layer.mlp_norm, shape.norm_epsilon)).float()
            x = x.add_(layer.down(_gated(gate_up)))
        return x


def _norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMSNorm (Zhang & Sennrich 2019), float32."""
    return rms_norm(x, weight.shape, weight, epsilon)


def _gated(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up of float32 [rows, gate and up], which is overwritten.

    torch computes the last elements of a stretch by another exponential than the rest, and several threads
    cut a tensor into stretches anywhere: so silu gets so few rows at a time that one thread does them, row
    by row.
    """
    gate, up = gate_up.chunk(2, dim=1)
    for few in torch.split(gate, max(1, _SERIAL // gate.shape[1])):
        silu(few, inplace=True)
    return gate.mul_(up)


_SERIAL = 32_000
"""elements that torch never divides among threads"""


class _Rotation:
    """RoPE (Su et al. 2021), halves paired, by exactly rounded operations."""

    def __init__(self, shape: Shape, positions: int, device: torch.device) -> None:
        half = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), shape.rope_theta**-half)
        self._cosine = torch.cat((angles.cos(), angles.cos()), dim=1).float().to(device)
        self._sine = torch.cat((-angles.sin(), angles.sin()), dim=1).float().to(device)
        scale = torch.ones(shape.heads + shape.key_heads, 1)
        scale[: shape.heads] = shape.head_size**-0.5
        self._scale = scale.to(device)
        """attention's 1/sqrt(head size) rides along on the queries"""

    def at(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin, float32 [rows, query and key heads, head size]"""
        return self._cosine[start:end, None] * self._scale, self._sine[start:end, None] * self._scale


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    rows, heads, size = x.shape
    swapped = x.view(rows, heads, 2, size // 2).flip(2).view(rows, heads, size)
    return (x * cosine).add_(swapped.mul_(sine))
