"""Tiny decoders of our own forward with random weights, in every way of holding them."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from copilotd.engine.forward import Decoder, DecoderRunner, Embedding, Layer, Shape
from copilotd.engine.native.products import Compiled, pack_int8, pack_nf4
from copilotd.engine.native.runner import NativeRunner, computes
from copilotd.engine.products import Dense, Int8, Int8WeightOnly, Nf4, Product, quantise_rows

Hold = Callable[[torch.Tensor], Product]
"""How a weight [outputs, inputs] is held"""

HOLDS: dict[str, Hold] = {
    "fp32": Dense,
    "bf16": lambda weight: Dense(weight.to(torch.bfloat16)),
    "int8": lambda weight: Int8(*quantise_rows(weight)),
    "int8-weights": lambda weight: Int8WeightOnly(*quantise_rows(weight)),
    "nf4": Nf4,
    "compiled-int8": lambda weight: Compiled(*pack_int8(*quantise_rows(weight)), *weight.shape),
    "compiled-nf4": lambda weight: Compiled(pack_nf4(weight), None, *weight.shape),
}
FREE = ("int8", "int8-weights", "nf4", "compiled-int8", "compiled-nf4")
"""whose rows are free"""


class OutlierInt8:
    """LLM.int8 (Dettmers et al. 2022) with its outlier columns, chosen over all rows of a step: above the
    threshold a column is multiplied in float. At 0.0 there are none, and rows are free."""

    rows_free = True  # which is a lie for thresholds above 0

    def __init__(self, weight: torch.Tensor, threshold: float) -> None:
        self._weight = weight
        self._int8 = Int8(*quantise_rows(weight))
        self._threshold = threshold
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self._threshold:
            return self._int8(x)
        outliers = (x.abs() > self._threshold).any(dim=0)
        return self._int8(x.masked_fill(outliers, 0.0)) + (x * outliers) @ self._weight.T


def decoder(
    hold: Hold,
    *,
    vocabulary: int,
    seed: int,
    noise: float = 0.0,
    windows: tuple[int | None, ...] = (None, None),
    gain: float = 12.0,
    hidden: int = 64,
    intermediate: int = 128,
    heads: int = 4,
    key_heads: int = 2,
    size: int = 16,
) -> Decoder:
    """As many layers as windows. The gain makes its text restless: without it a random model falls into a loop
    and a test proves nothing. Models of one seed and some noise are alike, not equal."""
    own = torch.Generator().manual_seed(seed)
    apart = torch.Generator().manual_seed(seed + 77_777)

    def weight(outputs: int, inputs: int) -> torch.Tensor:
        value = torch.randn(outputs, inputs, generator=own)
        return (value + noise * torch.randn(outputs, inputs, generator=apart)) * 0.02 * gain

    layers = tuple(
        Layer(
            attention_norm=torch.ones(hidden),
            qkv=hold(weight((heads + 2 * key_heads) * size, hidden)),
            qkv_bias=weight(1, (heads + 2 * key_heads) * size)[0],
            output=hold(weight(hidden, heads * size)),
            mlp_norm=torch.ones(hidden),
            gate_up=hold(weight(2 * intermediate, hidden)),
            down=hold(weight(hidden, intermediate)),
        )
        for _ in windows
    )
    shape = Shape(
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        key_heads=key_heads,
        head_size=size,
        rope_theta=1e6,
        norm_epsilon=1e-6,
        max_tokens=1024,
        windows=windows,
    )
    return Decoder(
        shape=shape,
        embedding=Embedding(weight(vocabulary, hidden)),
        layers=layers,
        norm=torch.ones(hidden),
        head=hold(weight(vocabulary, hidden)),
    )


def runner(
    hold: Hold,
    *,
    vocabulary: int = 256,
    rows: int = 0,
    seed: int = 0,
    noise: float = 0.0,
    windows: tuple[int | None, ...] = (None, None),
    chunk: int = 64,
) -> DecoderRunner | NativeRunner:
    """`rows` is the size of the head, at least the vocabulary. Fixed shapes have 9 rows: 8 drafts and one."""
    model = decoder(hold, vocabulary=max(rows, vocabulary), seed=seed, noise=noise, windows=windows)
    if computes(model):
        return NativeRunner(model, vocabulary, chunk=chunk)
    return DecoderRunner(model, vocabulary, fixed_rows=9, chunk=chunk)


def source_prompts(number: int, longest: int = 120) -> Iterator[list[int]]:
    """Byte ids cut from Python's own modules at random places, always the same ones."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*.py"))
    rng = random.Random(20)
    for _ in range(number):
        text = rng.choice(files).read_bytes()
        end = rng.randrange(1, len(text))
        yield list(text[max(0, end - rng.randrange(1, longest)) : end])
