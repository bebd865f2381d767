"""A decoder's steps by the compiled kernels: one call a step."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from copilotd.engine.forward import Decoder, Shape
from copilotd.engine.native import library
from copilotd.engine.native.products import Compiled
from copilotd.engine.runner import Cache, start_of_step

KEY_BLOCK = 256
GROUP = 16
"""keys stand in groups of so many"""


def computes(decoder: Decoder) -> bool:
    """Whether the kernels know this decoder."""
    shape = decoder.shape
    return all(isinstance(product, Compiled) for product in decoder.products) and all(
        size % GROUP == 0 for size in (shape.hidden, shape.intermediate, shape.head_size)
    )


class HalfCache:
    """Implements `Cache`: keys and values as halves."""

    def __init__(self, shape: Shape, capacity: int) -> None:
        self.ids: list[int] = []
        self.capacity = capacity
        rows = padded(capacity)
        by_head = (shape.layers * shape.key_heads, rows)
        self._keys = torch.zeros((by_head[0], rows // GROUP, shape.head_size, GROUP), dtype=torch.half)
        self._values = torch.zeros((*by_head, shape.head_size), dtype=torch.half)
        self.structure = library.Cache(self._keys.data_ptr(), self._values.data_ptr(), rows)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= len(self.ids):
            raise ValueError(f"cannot cut a cache of {len(self.ids)} rows to {length}")
        del self.ids[length:]

    def become(self, other: HalfCache, length: int) -> bool:
        groups = -(-length // GROUP)
        self._keys[:, :groups] = other._keys[:, :groups]
        self._values[:, :length] = other._values[:, :length]
        self.ids = other.ids[:length]
        return True


def padded(rows: int) -> int:
    return -(-rows // KEY_BLOCK) * KEY_BLOCK


class NativeRunner:
    """Implements `Runner` on a Decoder that the kernels know. Uses as many threads as torch is set to."""

    rows_free = True

    def __init__(self, decoder: Decoder, vocabulary: int, *, chunk: int = 64) -> None:
        """Raises CannotBuild, and ValueError where the head has fewer rows than the vocabulary."""
        if vocabulary > _compiled(decoder.head).structure.outputs:
            raise ValueError(f"the head has fewer than {vocabulary} rows")
        self.decoder = decoder
        self.vocabulary = vocabulary
        self.max_tokens = decoder.shape.max_tokens
        self.chunk = chunk
        self._kernels = library.kernels()
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._structure = self._structures()

    def new_cache(self, capacity: int) -> HalfCache:
        return HalfCache(self.decoder.shape, capacity)

    def cache_bytes(self, capacity: int) -> int:
        shape = self.decoder.shape
        return 2 * 2 * shape.layers * shape.key_heads * shape.head_size * padded(capacity)

    def step(self, cache: Cache, ids: Sequence[int], rows: int) -> torch.Tensor:
        if not isinstance(cache, HalfCache):
            raise TypeError("the cache is another runner's")
        count = len(ids)
        start = start_of_step(self, cache, count, rows)
        with torch.inference_mode():
            x = self.decoder.embedding(torch.tensor(ids))
        logits = torch.empty((rows, self.vocabulary))
        needed = self._kernels.scratch_bytes(ctypes.byref(self._structure), count, start + count)
        if needed > self._scratch.nbytes:
            self._scratch = torch.empty(needed, dtype=torch.uint8)
        self._structure.head.outputs = self.vocabulary
        self._kernels.step(
            ctypes.byref(self._structure), ctypes.byref(cache.structure), x.data_ptr(), count, start,
            logits.data_ptr(), rows, self.vocabulary, self._scratch.data_ptr(), torch.get_num_threads(),
        )  # fmt: skip
        cache.ids.extend(ids)
        return logits

    def _structures(self) -> library.Decoder:
        decoder, shape = self.decoder, self.decoder.shape
        half = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
        angles = torch.outer(torch.arange(shape.max_tokens, dtype=torch.float64), shape.rope_theta**-half)
        self._cosine, self._sine = angles.cos().float(), angles.sin().float()
        layers = (library.Layer * shape.layers)()
        for structure, layer, window in zip(layers, decoder.layers, shape.windows, strict=True):
            structure.attention_norm = layer.attention_norm.data_ptr()
            structure.qkv_bias = None if layer.qkv_bias is None else layer.qkv_bias.data_ptr()
            structure.mlp_norm = layer.mlp_norm.data_ptr()
            structure.window = window or 0
            for name in ("qkv", "output", "gate_up", "down"):
                setattr(structure, name, _compiled(getattr(layer, name)).structure)
        return library.Decoder(
            hidden=shape.hidden,
            intermediate=shape.intermediate,
            heads=shape.heads,
            key_heads=shape.key_heads,
            head_size=shape.head_size,
            layers=shape.layers,
            layer=layers,
            norm=decoder.norm.data_ptr(),
            head=_compiled(decoder.head).structure,
            cosine=self._cosine.data_ptr(),
            sine=self._sine.data_ptr(),
            epsilon=shape.norm_epsilon,
        )


def _compiled(product: object) -> Compiled:
    if not isinstance(product, Compiled):
        raise TypeError("the product is not compiled")
    return product
