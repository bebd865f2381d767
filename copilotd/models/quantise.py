"""From a checkpoint's weights to products, and which kind is fastest here."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Iterator
from itertools import cycle

import torch
from msgspec import Struct

from copilotd.engine.native.build import CannotBuild
from copilotd.engine.native.products import Compiled, exact, pack_int8
from copilotd.engine.native.products import pack_nf4 as pack_compiled_nf4
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
    pack_cuda_nf4,
    pack_nf4,
    quantise_rows,
)
from copilotd.models.checkpoint import Weight
from copilotd.models.errors import ModelError
from copilotd.models.memory import Quantisation


class Processor(Struct, frozen=True):
    """Where products are computed."""

    device: torch.device
    compiled: bool = False
    """by kernels compiled for it"""
    why_torch: str = ""
    """what keeps it to torch's"""

    def __str__(self) -> str:
        return f"{self.device.type} compiled" if self.compiled else self.device.type


def why_not_compiled() -> str:
    """What keeps this machine's own kernels from being compiled; empty where they are there."""
    try:
        return "" if exact() else "the compiled kernels do not sum exactly"
    except CannotBuild as error:
        return str(error)


class Packed(Struct, frozen=True):
    """A quantised product's weights, in a layout that can be kept on disk."""

    kind: str
    """int8: `weight` int8 [outputs, inputs], `scale` float32 [outputs]; nf4: `weight` and `scale` as
    `products.pack_nf4` gives them; compiled-int8, compiled-nf4: as `native.products` packs them; cuda-nf4: what
    `products.pack_cuda_nf4` gives"""
    tensors: dict[str, torch.Tensor]
    outputs: int
    inputs: int


def keepable(quantisation: Quantisation) -> bool:
    """Whether `pack` can; else the weights are not quantised."""
    return quantisation in ("int8", "nf4")


def pack(weight: Weight, quantisation: Quantisation, processor: Processor) -> Packed:
    """The weights quantised, where that is `keepable`. Raises ModelError where there is no kernel for them."""
    shape: tuple[int, int] = (weight.values.shape[0], weight.values.shape[1])
    if quantisation == "int8":
        values, scale = _by_parts(weight.values) if weight.scale is None else (weight.values, weight.scale)
        if processor.compiled:
            values, scale = pack_int8(values, scale)
            return Packed("compiled-int8", {"weight": values, "scale": scale}, *shape)
        return Packed("int8", {"weight": values, "scale": scale}, *shape)
    if processor.compiled:
        tiles = torch.cat([pack_compiled_nf4(part.floating()) for part in _parts(weight)])
        return Packed("compiled-nf4", {"weight": tiles}, *shape)
    if processor.device.type == "cuda":
        _require_bitsandbytes()
        return Packed("cuda-nf4", pack_cuda_nf4(weight.floating().to(processor.device)), *shape)
    _require_fused_nf4()
    levels, absmax = _joined(pack_nf4(part.floating()) for part in _parts(weight))
    return Packed("nf4", {"weight": levels, "scale": absmax}, *shape)


def product(packed: Packed, processor: Processor, *, residual: bool) -> Product:
    """`residual`: (nearly) exact activations, for a target's head. Raises ModelError without the kernel."""
    device = processor.device
    if packed.kind == "cuda-nf4":
        _require_bitsandbytes()
        return CudaNf4({name: tensor.to(device) for name, tensor in packed.tensors.items()})
    weight, scale = packed.tensors["weight"], packed.tensors.get("scale")
    if packed.kind in ("compiled-int8", "compiled-nf4"):
        return Compiled(weight, scale, packed.outputs, packed.inputs)
    assert scale is not None
    if packed.kind == "nf4":
        _require_fused_nf4()
        return Nf4.packed(weight, scale, packed.outputs, packed.inputs)
    if device.type == "cuda":
        return CudaInt8(weight.to(device), scale.to(device))
    if int8_products_are_exact():
        return Int8(weight, scale, residual)
    return Int8WeightOnly(weight, scale)


def layer_product(weight: Weight, quantisation: Quantisation, processor: Processor) -> Product:
    """A product inside the layers. Raises ModelError where the device has no kernel for it."""
    if keepable(quantisation):
        return product(pack(weight, quantisation, processor), processor, residual=False)
    kind = torch.bfloat16 if quantisation == "bf16" else torch.float32
    return Dense(weight.floating().to(processor.device, kind))


def _require_bitsandbytes() -> None:
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError("quantisation \"nf4\" needs bitsandbytes: pip install '/path/to/copilotd[local]'")


def _require_fused_nf4() -> None:
    if not nf4_is_fused():
        raise ModelError(
            'quantisation "nf4" needs a C compiler, or bitsandbytes and a processor with AVX512_BF16, or a GPU: '
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


def fastest(inputs: int, outputs: int, processor: Processor) -> Quantisation:
    """The kind whose products take least time at one and four rows, by a measurement of some 0.2 s.

    On a GPU memory decides, and NF4 reads least, where its library is installed.
    """
    if processor.device.type == "cuda":
        return "nf4" if importlib.util.find_spec("bitsandbytes") else "int8"
    if not processor.compiled and not nf4_is_fused():
        return "int8"
    weight = Weight(torch.randn(outputs, inputs))
    copies = max(2, min(8, 32_000_000 // (inputs * outputs)))  # more than the caches hold

    def cost(quantisation: Quantisation) -> float:
        products = [layer_product(weight, quantisation, processor) for _ in range(copies)]
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
