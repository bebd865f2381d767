"""From a checkpoint's weights to products, and which kind is fastest here."""

from __future__ import annotations

import importlib.util
import time

import torch

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
    quantise_rows,
)
from copilotd.models.checkpoint import Weight
from copilotd.models.errors import ModelError
from copilotd.models.memory import Quantisation


def layer_product(weight: Weight, quantisation: Quantisation, device: torch.device) -> Product:
    """A product inside the layers. Raises ModelError where the device has no kernel for it."""
    if quantisation == "int8":
        return _int8(weight, device, residual=False)
    if quantisation == "nf4":
        return _nf4(weight, device)
    kind = torch.bfloat16 if quantisation == "bf16" else torch.float32
    return Dense(weight.floating().to(device, kind))


def head_product(weight: Weight, quantisation: Quantisation, device: torch.device, *, draft: bool) -> Product:
    """A target's head is never below int8 by row with (nearly) exact activations; a draft's head is free."""
    if quantisation in ("bf16", "fp32") or draft:
        return layer_product(weight, quantisation, device)
    return _int8(weight, device, residual=True)


def _int8(weight: Weight, device: torch.device, *, residual: bool) -> Product:
    values, scale = weight.values, weight.scale
    if scale is None:
        values, scale = quantise_rows(values)
    if device.type == "cuda":
        return CudaInt8(values.to(device), scale.to(device))
    if int8_products_are_exact():
        return Int8(values, scale, residual)
    return Int8WeightOnly(values, scale)


def _nf4(weight: Weight, device: torch.device) -> Product:
    if device.type == "cuda":
        try:
            return CudaNf4(weight.floating().to(device))
        except ImportError:
            raise ModelError('quantisation "nf4" needs bitsandbytes: pip install "copilotd[local]"') from None
    if not nf4_is_fused():
        raise ModelError(
            'quantisation "nf4" needs bitsandbytes and a processor with AVX512_BF16, or a GPU: '
            'set quantisation to "auto" or "int8"'
        )
    return Nf4(weight.floating())


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
