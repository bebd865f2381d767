"""Any other architecture, through transformers' forward: slower, and unquantised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from copilotd.engine.runner import Cache, start_of_step


class TransformersCache:
    """Implements `Cache` on a transformers cache of the same ids."""

    def __init__(self, inner: Any, capacity: int) -> None:
        self.ids: list[int] = []
        self.capacity = capacity
        self.inner = inner

    def truncate(self, length: int) -> None:
        if not 0 <= length <= len(self.ids):
            raise ValueError(f"cannot cut a cache of {len(self.ids)} rows to {length}")
        if length < len(self.ids):
            self.inner.crop(length - len(self.ids))
            del self.ids[length:]

    def become(self, other: TransformersCache, length: int) -> bool:
        return False


class TransformersRunner:
    """Implements `Runner`. Every step has one fixed number of rows; the rows that only pad it are cropped."""

    def __init__(self, folder: Path, vocabulary: int, *, fixed_rows: int, device: str) -> None:
        from transformers import AutoModelForCausalLM

        kind = torch.float32 if device == "cpu" else torch.bfloat16
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=kind
        ).to(device)
        self._model.eval()
        self._device = torch.device(device)
        self._text = self._model.config.get_text_config()
        self.vocabulary = vocabulary
        self.max_tokens = int(getattr(self._text, "max_position_embeddings", 2048)) - fixed_rows
        self.chunk = fixed_rows
        self.nbytes = sum(parameter.nbytes for parameter in self._model.parameters())

    def new_cache(self, capacity: int) -> TransformersCache:
        from transformers import DynamicCache

        # Without the configuration every layer keeps all its rows: windows are masked, so that a cut is exact.
        return TransformersCache(DynamicCache(), capacity)

    def cache_bytes(self, capacity: int) -> int:
        text = self._text
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return int(
            2 * text.num_hidden_layers * heads * size * self._model.dtype.itemsize * (capacity + self.chunk)
        )

    @torch.inference_mode()
    def step(self, cache: Cache, ids: Sequence[int], rows: int) -> torch.Tensor:
        if not isinstance(cache, TransformersCache):
            raise TypeError("the cache is another runner's")
        count = len(ids)
        start_of_step(self, cache, count, rows)
        padding = self.chunk - count
        padded = torch.tensor([[*ids, *[0] * padding]], device=self._device)
        output = self._model(padded, cache=cache.inner, use_cache=True)
        if padding:
            cache.inner.crop(-padding)
        cache.ids.extend(ids)
        logits: torch.Tensor = output.logits[0, count - rows : count, : self.vocabulary].float()
        return logits
