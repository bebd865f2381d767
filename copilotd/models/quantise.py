"""From a checkpoint's weights to products, and which kind is fastest here."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Iterator
from itertools import cycle

import torch
from msgspec import Struct

from copilotd.engine.products import (
    CudaInt8,
    CudaNf4,
    Dense,
    Int8,
    Int8WeightOnly,
    Nf4,
    Product,
    int8_products_are_exact,
    nf4_is_fused,
    pack_nf4,
    quantise_rows,
)
from copilotd.models.checkpoint import Weight
from copilotd.models.errors import ModelError
from copilotd.models.memory import Quantisation


class Packed(Struct, frozen=True):
    """A quantised product's weights, in a layout that can be kept on disk."""

    kind: str
    """int8: int8 [outputs, inputs] and float32 scale [outputs]; nf4: as `products.pack_nf4` gives them"""
    weight: torch.Tensor
    scale: torch.Tensor
    outputs: int
    inputs: int


def keepable(quantisation: Quantisation, device: torch.device) -> bool:
    """Whether `pack` can; else weights are not quantised, or by a library that keeps them its own way."""
    return quantisation == "int8" or (quantisation == "nf4" and device.type == "cpu")


def pack(weight: Weight, quantisation: Quantisation, device: torch.device) -> Packed:
    """The weights quantised, where that is `keepable`. Raises ModelError where there is no kernel for them."""
    if quantisation == "int8":
        rows = _by_parts(weight.values) if weight.scale is None else (weight.values, weight.scale)
        return Packed("int8", *rows, *weight.values.shape)
    _require_nf4()
    joined = _joined(pack_nf4(part.floating()) for part in _parts(weight))
    return Packed("nf4", *joined, *weight.values.shape)


def product(packed: Packed, device: torch.device, *, residual: bool) -> Product:
    """`residual`: (nearly) exact activations, for a target's head."""
    if packed.kind == "nf4":
        _require_nf4()
        return Nf4.packed(packed.weight, packed.scale, packed.outputs, packed.inputs)
    if device.type == "cuda":
        return CudaInt8(packed.weight.to(device), packed.scale.to(device))
    if int8_products_are_exact():
        return Int8(packed.weight, packed.scale, residual)
    return Int8WeightOnly(packed.weight, packed.scale)


def layer_product(weight: Weight, quantisation: Quantisation, device: torch.device) -> Product:
    """A product inside the layers. Raises ModelError where the device has no kernel for it."""
    if keepable(quantisation, device):
        return product(pack(weight, quantisation, device), device, residual=False)
    if quantisation == "nf4":
        try:
            return CudaNf4(weight.floating().to(device))
        except ImportError:
            raise ModelError('quantisation "nf4" needs bitsandbytes: pip install "copilotd[local]"') from None
    kind = torch.bfloat16 if quantisation == "bf16" else torch.float32
    return Dense(weight.floating().to(device, kind))


def _require_nf4() -> None:
    if not nf4_is_fused():
        raise ModelError(
            'quantisation "nf4" needs bitsandbytes and a processor with AVX512_BF16, or a GPU: '
            'set quantisation to "auto" or "int8"'
        )


_PART_ELEMENTS = 1 << 24
"""of a matrix that are in float at once, while it is quantised"""


def _few(inputs: int) -> int:
    """Rows of a part: whole tiles of every layout."""
    return max(1, _PART_ELEMENTS // inputs // 64) * 64


def _by_parts(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`quantise_rows` with less memory; rows know nothing of each other."""
    parts = [quantise_rows(part) for part in torch.split(values, _few(values.shape[1]))]
    return torch.cat([weight for weight, _ in parts]), torch.cat([scale for _, scale in parts])


def _parts(weight: Weight) -> Iterator[Weight]:
    few = _few(weight.values.shape[1])
    scales = [None] if weight.scale is None else torch.split(weight.scale, few)
    for values, scale in zip(torch.split(weight.values, few), cycle(scales), strict=False):
        yield Weight(values, scale)


def _joined(parts: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    weights, absmax = zip(*parts, strict=True)
    return torch.cat(weights), torch.cat(absmax, dim=1)


_ROWS = (1, 4)
_WORTH = 1.15
"""NF4 loses more of the model than int8 does: it must be faster by so much to be chosen"""


def fastest(inputs: int, outputs: int, device: torch.device) -> Quantisation:
    """The kind whose products take least time at one and four rows, by a measurement of some 0.2 s.

    On a GPU memory decides, and NF4 reads least, where its library is installed.
    """
    if device.type == "cuda":
        return "nf4" if importlib.util.find_spec("bitsandbytes") else "int8"
    if not nf4_is_fused():
        return "int8"
    weight = Weight(torch.randn(outputs, inputs))
    copies = max(2, min(8, 32_000_000 // (inputs * outputs)))  # more than the caches hold

    def cost(quantisation: Quantisation) -> float:
        products = [layer_product(weight, quantisation, device) for _ in range(copies)]
        return sum(_least_time(products, torch.randn(rows, inputs)) for rows in _ROWS)

    return "nf4" if cost("nf4") * _WORTH < cost("int8") else "int8"


def _least_time(products: list[Product], x: torch.Tensor) -> float:
    """Seconds; the least of several, since a busy neighbour only adds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for product in products:
            product(x)
        times.append(time.perf_counter() - start)
    return min(times)
