"""Matrix products by the compiled kernels: int8 by row, or 4 bits in blocks of 64.

Activations are rounded to int8 in blocks of 64, each with its own scale. The sums over a block are exact, and
blocks are added in order, so rows are free.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from copilotd.engine.native import library
from copilotd.engine.products import NF4_LEVELS

BLOCK = 64
TILE = 16
STEPS = 63
LEVELS = NF4_LEVELS.mul(STEPS).round()
"""NormalFloat4 in steps of 1/63, as `kernels/product.c` multiplies it"""


def pack_int8(weight: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As the kernels want int8 [outputs, inputs] with float32 scale [outputs]: uint8 [tiles, blocks, bytes] and
    float32 [tiles · 16]."""
    units = _whole(weight).view(-1, TILE, weight_blocks(weight), BLOCK // 4, 4).permute(0, 2, 3, 1, 4)
    packed = units.reshape(units.shape[0], units.shape[1], -1).contiguous().view(torch.uint8)
    return packed, torch.nn.functional.pad(scale.float(), (0, -len(scale) % TILE))


def pack_nf4(weight: torch.Tensor) -> torch.Tensor:
    """Float [outputs, inputs] as uint8 [tiles, blocks, bytes]: levels, behind them the blocks' maxima as halves.

    The nearest level by block (Dettmers et al. 2023, QLoRA)."""
    whole = _whole(weight.float())
    blocks = weight_blocks(weight)
    by_block = whole.view(len(whole), blocks, BLOCK)
    most = by_block.abs().amax(dim=2).half()
    relative = by_block / most.float().clamp_min(1e-30)[..., None]
    borders = ((LEVELS[1:] + LEVELS[:-1]) / (2 * STEPS)).contiguous()
    level = torch.bucketize(relative, borders).to(torch.uint8)
    # a byte holds one output's level of input i (low half) and of input i + 4 (high half)
    pairs = level.view(-1, TILE, blocks, BLOCK // 8, 2, 4)
    units = (pairs[..., 0, :] | (pairs[..., 1, :] << 4)).permute(0, 2, 3, 1, 4)
    levels = units.reshape(-1, blocks, TILE * BLOCK // 2)
    maxima = most.view(-1, TILE, blocks).transpose(1, 2).contiguous().view(torch.uint8)
    return torch.cat((levels, maxima), dim=2).contiguous()


def weight_blocks(weight: torch.Tensor) -> int:
    return -(-weight.shape[1] // BLOCK)


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """Padded to whole tiles and blocks with zeros."""
    outputs, inputs = weight.shape
    return torch.nn.functional.pad(weight, (0, -inputs % BLOCK, 0, -outputs % TILE))


class Compiled:
    """Implements `Product`."""

    rows_free = True

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor | None, outputs: int, inputs: int) -> None:
        """What `pack_int8`, or without `scale` `pack_nf4`, gave for a matrix [outputs, inputs]. Raises
        CannotBuild."""
        self._kernels = library.kernels()
        self._weight = torch.empty_like(weight)
        self._kernels.prefer_large_pages(self._weight.data_ptr(), weight.nbytes)
        self._weight.copy_(weight)
        self._scale = None if scale is None else scale.contiguous()
        self.nbytes = weight.nbytes + (0 if scale is None else scale.nbytes)
        self.structure = library.Product(
            weight=self._weight.data_ptr(),
            scale=None if self._scale is None else self._scale.data_ptr(),
            outputs=outputs,
            inputs=inputs,
            kind=library.NF4 if scale is None else library.INT8,
        )
        """valid as long as this product lives"""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Raises ValueError where x is not as wide as the matrix: the kernels would read beyond it."""
        x = x.float().contiguous()
        rows, inputs = x.shape
        if inputs != self.structure.inputs:
            raise ValueError(f"x has {inputs} columns, the matrix {self.structure.inputs} inputs")
        out = torch.empty((rows, self.structure.outputs))
        scratch = torch.empty(self._kernels.activations_bytes(rows, inputs), dtype=torch.uint8)
        self._kernels.multiply_floats(
            ctypes.byref(self.structure), x.data_ptr(), rows, out.data_ptr(), out.shape[1],
            scratch.data_ptr(), torch.get_num_threads(),
        )  # fmt: skip
        return out


@cache
def exact() -> bool:
    """Whether the kernels, as compiled here, sum exactly, at the very ends of their ranges."""
    signs = torch.tensor([1.0, -1.0, 1.0])[:, None]
    x, weight = signs * 127, (signs * 127).expand(3, 2 * BLOCK)
    inputs = weight.shape[1]
    products = {
        127 * 127: Compiled(*pack_int8(weight.to(torch.int8), torch.ones(3)), 3, inputs),
        127 * STEPS: Compiled(pack_nf4(weight / 127 * STEPS), None, 3, inputs),
    }
    return all(
        torch.equal(product(x.expand(3, inputs)), inputs * one * signs * signs.T)
        for one, product in products.items()
    )
