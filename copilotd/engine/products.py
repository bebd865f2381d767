"""Matrix products x·Wᵀ, one class per way of holding W.

A product says whether its rows are free of one another: then a step may have any number of rows. Otherwise
the runner keeps every step at one fixed number of rows, where library kernels treat all rows alike.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch


class Product(Protocol):
    rows_free: bool
    """a row's bits do not depend on the number or the content of the other rows"""
    nbytes: int
    """what the weights take"""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, outputs], in any floating type, of float32 x [rows, inputs]."""
        ...


class Dense:
    """Weights as they are, bfloat16 or float32."""

    rows_free = False

    def __init__(self, weight: torch.Tensor) -> None:
        """`weight` is [outputs, inputs]."""
        self._weight = weight.contiguous()
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x.to(self._weight.dtype), self._weight)


# ---- int8 by row -------------------------------------------------------------------------------------------


def quantise_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8 [outputs, inputs], float32 scale [outputs]) with weight ≈ int8 · scale, symmetric by row."""
    weight = weight.float()
    scale = weight.abs().amax(dim=1).clamp_min(1e-30) / 127
    return (weight / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8), scale


class Int8:
    """int8 weights by row, int8 activations by token: LLM.int8 with threshold 0.0 (Dettmers et al. 2022).

    Sums are exact in int32, so rows are free by construction. oneDNN's kernel wants unsigned activations:
    128 is added and taken out again inside, exactly.

    With `residual` the rounding error of the activations, rounded to int8 in its turn, rides along as a
    second row: 15 bits of activation, for twice the rows.
    """

    rows_free = True

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, residual: bool = False) -> None:
        """`weight` int8 [outputs, inputs], `scale` float32 [outputs]."""
        self._weight = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        self._scale = scale.float().contiguous()
        self._zero_points = torch.zeros(len(scale), dtype=torch.long)
        self._middle = torch.tensor(128.5)
        self._residual = residual
        self.nbytes = weight.nbytes + self._scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        step = torch.linalg.vector_norm(x, torch.inf, dim=1, keepdim=True).clamp_min_(1e-30).div_(127)
        levels = torch.div(x, step).add_(self._middle).to(torch.uint8)  # truncation rounds: all are positive
        if not self._residual:
            return self._multiply(levels).mul_(step)
        fine = step / 254
        left = x - (levels.float().sub_(128)).mul_(step)
        levels = torch.cat((levels, left.div_(fine).add_(self._middle).clamp_(1, 255).to(torch.uint8)))
        coarse, rest = self._multiply(levels).mul_(torch.cat((step, fine))).chunk(2)
        return coarse.add_(rest)

    def _multiply(self, levels: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, 128, self._weight, self._scale, self._zero_points,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


class Int8WeightOnly:
    """int8 weights by row, bfloat16 activations, by torch's own kernel: for processors without exact
    int8 products."""

    rows_free = True
    LANES = 16
    """the kernel reads so many inputs at once, and what lies behind the last ones too"""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        self._rest = -weight.shape[1] % self.LANES
        if self._rest:
            weight = torch.nn.functional.pad(weight, (0, self._rest))
        self._weight = weight.contiguous()
        self._scale = scale.to(torch.bfloat16)
        self.nbytes = self._weight.nbytes + self._scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(torch.bfloat16)
        if self._rest:
            x = torch.nn.functional.pad(x, (0, self._rest))
        return torch._weight_int8pack_mm(x, self._weight, self._scale)


@cache
def int8_products_are_exact() -> bool:
    """Whether oneDNN's int8 product sums exactly here: without VNNI it may saturate at 16 bits."""
    try:
        weight = torch.full((32, 64), 127, dtype=torch.int8)
        got = Int8(weight, torch.ones(32))(torch.full((2, 64), 127.0))
    except RuntimeError:
        return False
    return bool((got == 127.0 * 127.0 * 64).all())


# ---- NF4 on the CPU ----------------------------------------------------------------------------------------

NF4_BLOCK = 64
NF4_LEVELS = torch.tensor(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0]
)  # fmt: skip
"""The 16 levels of NormalFloat4 (Dettmers et al. 2023, QLoRA, appendix E)."""


def quantise_nf4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(uint8 level [outputs, inputs], float32 absmax [outputs, inputs / 64]): the nearest level by block."""
    outputs, inputs = weight.shape
    absmax = weight.reshape(outputs, -1, NF4_BLOCK).abs().amax(dim=2).float().clamp_min_(1e-30)
    borders = ((NF4_LEVELS[1:] + NF4_LEVELS[:-1]) / 2).tolist()
    level = torch.zeros((outputs, inputs // NF4_BLOCK, NF4_BLOCK), dtype=torch.uint8, device=weight.device)
    few = max(1, _CACHED // inputs)  # fifteen passes, so over parts that stay in the processor's cache
    for part, rows, most in zip(
        torch.split(level, few), torch.split(weight, few), torch.split(absmax, few), strict=True
    ):
        relative = rows.float().reshape(part.shape) / most[..., None]
        for border in borders:
            part += relative > border
    return level.reshape(outputs, inputs), absmax


_CACHED = 200_000
"""elements of float32 that fit well into a core's own cache"""


@cache
def _nf4_routine() -> Any | None:
    """bitsandbytes' fused CPU routine, or None where the library or AVX512_BF16 is missing.

    The shared library is opened by itself: importing bitsandbytes would take seconds and ask the hub.
    """
    package = importlib.util.find_spec("bitsandbytes")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for path in sorted(Path(folder).glob("libbitsandbytes_cpu.*")):
            try:
                library = ctypes.CDLL(str(path))
                if not library.has_avx512bf16_cpu():
                    return None
                routine = library.gemv_4bit_inference_cpu_nf4_bf16
            except (OSError, AttributeError):
                return None
            size, pointer = ctypes.c_int64, ctypes.c_void_p
            routine.argtypes = [size, size, size, pointer, pointer, pointer, pointer, size, size, size]
            routine.restype = None
            return routine
    return None


def nf4_is_fused() -> bool:
    """Whether NF4 has its fused kernel on this processor; without it NF4 is far slower than int8."""
    return _nf4_routine() is not None


NF4_TILE = 32
"""outputs come in tiles of so many"""


def pack_nf4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As the fused CPU routine wants a matrix [outputs, inputs]: uint8 [tiles · 32, inputs / 2] and bfloat16
    absmax [inputs / 64, tiles · 32], both of whole tiles and blocks. Parts of whole tiles may be packed apart
    and put one below, and one beside the other."""
    outputs, inputs = weight.shape
    whole = torch.nn.functional.pad(weight.float(), (0, -inputs % NF4_BLOCK, 0, -outputs % NF4_TILE))
    level, absmax = quantise_nf4(whole)
    # A byte holds one input's level for output i of a tile (low half) and for output i + 16 (high half).
    tiles = level.reshape(-1, NF4_TILE, whole.shape[1] // 2, 2).transpose(1, 2).reshape(-1, 2, NF4_TILE)
    packed = (tiles[:, 0] | (tiles[:, 1] << 4)).reshape(len(whole), whole.shape[1] // 2).contiguous()
    return packed, absmax.t().to(torch.bfloat16).contiguous()


class Nf4:
    """NF4 by bitsandbytes' fused CPU kernel, called on weights packed as it wants them."""

    rows_free = True

    def __init__(self, weight: torch.Tensor) -> None:
        """`weight` is [outputs, inputs]. Raises RuntimeError without the kernel."""
        self._take(*pack_nf4(weight), *weight.shape)

    @classmethod
    def packed(cls, weight: torch.Tensor, absmax: torch.Tensor, outputs: int, inputs: int) -> Nf4:
        """Of what `pack_nf4` gave for a matrix [outputs, inputs]."""
        product = cls.__new__(cls)
        product._take(weight, absmax, outputs, inputs)
        return product

    def _take(self, weight: torch.Tensor, absmax: torch.Tensor, outputs: int, inputs: int) -> None:
        routine = _nf4_routine()
        if routine is None:
            raise RuntimeError("no fused NF4 kernel on this processor")
        self._routine = routine
        self._weight, self._absmax = weight.contiguous(), absmax.contiguous()
        self._outputs, self._padded = outputs, len(weight)
        self._rest = -inputs % NF4_BLOCK
        self._inputs = inputs + self._rest
        self.nbytes = self._weight.nbytes + self._absmax.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(torch.bfloat16).contiguous()
        if self._rest:
            x = torch.nn.functional.pad(x, (0, self._rest))
        out = torch.empty((len(x), self._padded), dtype=torch.bfloat16)
        self._routine(
            len(x), self._padded, self._inputs,
            x.data_ptr(), self._weight.data_ptr(), self._absmax.data_ptr(), out.data_ptr(),
            NF4_BLOCK, self._inputs, self._padded,
        )  # fmt: skip
        return out if self._padded == self._outputs else out[:, : self._outputs]


# ---- bitsandbytes on CUDA ----------------------------------------------------------------------------------


@cache
def _bitsandbytes() -> Any:
    """The library, imported without the package `kernels`, by which it would have the hub's code run. Raises
    ImportError."""
    hidden = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("bitsandbytes")
    finally:
        del sys.modules["kernels"]
        if hidden is not None:
            sys.modules["kernels"] = hidden


class CudaNf4:
    """NF4 by bitsandbytes' CUDA kernels, double quantisation. Which kernel runs depends on the number of
    rows, so that number is kept fixed."""

    rows_free = False

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        """What `pack_cuda_nf4` gave, on the device. Raises ImportError without bitsandbytes."""
        functional = _bitsandbytes().functional
        self._weight = tensors["weight"]
        rest = {name: tensor for name, tensor in tensors.items() if name != "weight"}
        self._state = functional.QuantState.from_dict(rest, device=self._weight.device)
        self.nbytes = self._weight.nbytes + self._state.absmax.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        matmul_4bit = _bitsandbytes().matmul_4bit
        product: torch.Tensor = matmul_4bit(x.to(torch.bfloat16), self._weight.t(), quant_state=self._state)
        return product


def pack_cuda_nf4(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """A matrix [outputs, inputs] as bitsandbytes holds it, `weight` and its state, on the matrix's device."""
    packed, state = _bitsandbytes().functional.quantize_4bit(
        weight.to(torch.bfloat16), blocksize=NF4_BLOCK, compress_statistics=True, quant_type="nf4"
    )
    return {"weight": packed, **state.as_dict(packed=True)}


class CudaInt8:
    """int8 by row and by token; the sums are exact integers."""

    rows_free = True
    LEAST_ROWS = 32
    """cuBLAS' int8 product wants more than 16 rows"""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        self._weight = weight.t().contiguous().t()
        self._scale = scale.float()
        self.nbytes = weight.nbytes + self._scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        step = x.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30).div_(127)
        levels = torch.div(x, step).round_().to(torch.int8)
        if rows < self.LEAST_ROWS:
            levels = torch.nn.functional.pad(levels, (0, 0, 0, self.LEAST_ROWS - rows))
        return torch._int_mm(levels, self._weight.t())[:rows].float().mul_(step).mul_(self._scale)


def rows_free(products: Sequence[Product]) -> bool:
    return all(product.rows_free for product in products)
