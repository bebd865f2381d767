"""What a model takes in memory and reads for a token, computed from its shape. Reading this loads no torch."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from copilotd.models.catalogue import Sizes

Quantisation: TypeAlias = Literal["nf4", "int8", "bf16", "fp32"]
Device: TypeAlias = Literal["cpu", "cuda"]

SLOTS = 4
"""caches that a person works with: two documents, two places each"""
PROCESS = {"cpu": 400_000_000, "cuda": 600_000_000}
"""bytes beside weights and caches. CPU: the interpreter, torch, the tokenizer. CUDA: the libraries' workspaces and
what a step works on"""
MARGIN = 1.1
_BLOCK = 64
_NF4_TILE, _COMPILED_TILE = 32, 16
_KV_BLOCK = 256
"""caches are whole blocks of so many tokens"""


class Footprint(Struct, frozen=True, kw_only=True):
    """Bytes of one model."""

    weights: int
    """products and the table of tokens, as long as it is loaded"""
    read_per_token: int
    """of weights, by a plain step"""
    cache: int
    """of one KV slot"""
    transient: int
    """more than `weights`, while the largest matrix is being quantised"""


def footprint(
    sizes: Sizes,
    quantisation: Quantisation,
    device: Device,
    *,
    draft: bool,
    context_tokens: int,
    int8_files: bool = False,
    compiled: bool = False,
) -> Footprint:
    """`int8_files`: the table of tokens is int8 on disk and stays so. `compiled`: quantised weights are
    multiplied by kernels compiled for the processor, whose caches are of halves."""
    compiled = compiled and quantisation in ("nf4", "int8")
    inside = sizes.layers * sum(
        product_bytes(*shape, quantisation, device, compiled=compiled) for shape in sizes.products
    )
    # as in `load`: a target's head is never below int8
    whole = quantisation in ("bf16", "fp32") or draft
    head = product_bytes(
        sizes.rows, sizes.hidden, quantisation if whole else "int8", device, compiled=compiled
    )
    words = sizes.rows * sizes.hidden
    table = words + 4 * sizes.rows if int8_files else words * (4 if quantisation == "fp32" else 2)
    rows = -(-context_tokens // _KV_BLOCK) * _KV_BLOCK
    largest = max(words, *(outputs * inputs for outputs, inputs in sizes.products))
    return Footprint(
        weights=inside + head + table,
        read_per_token=inside + head,
        cache=2 * (2 if compiled else 4) * sizes.layers * sizes.key_heads * sizes.head_size * rows,
        transient=largest * (2 if device == "cuda" else 3),
    )


def product_bytes(
    outputs: int, inputs: int, quantisation: Quantisation, device: Device, *, compiled: bool = False
) -> int:
    """Of the weights of one product, as `engine.products` or, quantised, `engine.native.products` holds them."""
    if compiled or (quantisation == "nf4" and device == "cpu"):  # in whole tiles
        outputs += -outputs % (_COMPILED_TILE if compiled else _NF4_TILE)
        inputs += -inputs % _BLOCK
    if quantisation == "int8":
        return outputs * inputs + 4 * outputs
    if quantisation == "nf4" and device == "cpu":
        return outputs * inputs // 2 + 2 * outputs * inputs // _BLOCK
    if quantisation == "nf4":  # double quantisation: a byte for a block's scale, and float32 for 256 of those
        blocks = outputs * inputs // _BLOCK
        return outputs * inputs // 2 + blocks + blocks // 64
    return outputs * inputs * (2 if quantisation == "bf16" else 4)


def process_bytes(target: Footprint, draft: Footprint | None, slots: int, device: Device) -> int:
    """What a process with both takes in all, with so many caches of each."""
    models = [target] if draft is None else [target, draft]
    return PROCESS[device] + sum(model.weights + slots * model.cache for model in models)


def needed(target: Footprint, draft: Footprint | None, device: Device) -> int:
    """Bytes that must be free before both are loaded, with the margin."""
    models = [target] if draft is None else [target, draft]
    loading = max(model.transient for model in models)  # over before the caches grow
    most = max(process_bytes(target, draft, SLOTS, device), process_bytes(target, draft, 0, device) + loading)
    return int(most * MARGIN)
