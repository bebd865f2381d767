"""Models copilotd knows by name: their shapes, licences and drafts. Reading this loads no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct


class Sizes(Struct, frozen=True, kw_only=True):
    """The numbers of a decoder that decide what it weighs."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    rows: int
    """of the table of tokens, padding included"""
    tied: bool
    """the head is the table of tokens"""

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of one layer's products, those that are computed together as one"""
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        return (
            (queries + 2 * keys, self.hidden),
            (self.hidden, queries),
            (2 * self.intermediate, self.hidden),
            (self.hidden, self.intermediate),
        )

    @property
    def layer_parameters(self) -> int:
        return self.layers * sum(outputs * inputs for outputs, inputs in self.products)

    @property
    def parameters(self) -> int:
        """Matrices only; norms and biases are a thousandth."""
        return self.layer_parameters + self.rows * self.hidden * (1 if self.tied else 2)


class Entry(Struct, frozen=True, kw_only=True):
    """One model. `hub` is empty for a model that is not on the hub."""

    name: str
    hub: str = ""
    sizes: Sizes
    licence: str
    permissive: bool = True
    """whether work may be done with it, a company's too; `auto` takes no other"""
    draft: str | None = None
    """the name of the draft that goes with it"""
    target: bool = True
    """whether `auto` may choose it as a target"""

    @property
    def parameters(self) -> int:
        return self.sizes.parameters

    @property
    def int8(self) -> bool:
        """The files hold int8 by row already."""
        return not self.hub


def _qwen(
    name: str,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: tuple[int, int],
    *,
    rows: int = 152_064,
    head_size: int = 128,
    draft: str | None = "Qwen2.5-Coder-0.5B",
    licence: str = "Apache-2.0",
) -> Entry:
    """A base model of the Qwen2.5-Coder family. The small ones share the table of tokens with the head."""
    sizes = Sizes(
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads[0],
        key_heads=heads[1],
        head_size=head_size,
        rows=rows,
        tied=rows == _SMALL_ROWS,
    )
    permissive = licence == "Apache-2.0"
    return Entry(
        name=name, hub=f"Qwen/{name}", sizes=sizes, licence=licence, permissive=permissive, draft=draft
    )


def _small(hidden: int, intermediate: int, layers: int, heads: tuple[int, int, int], rows: int) -> Sizes:
    """`heads`: of queries, of keys, and their size"""
    return Sizes(
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads[0],
        key_heads=heads[1],
        head_size=heads[2],
        rows=rows,
        tied=True,
    )


_SMALL_ROWS = 151_936

CATALOGUE = (
    _qwen("Qwen2.5-Coder-32B", 5120, 27_648, 64, (40, 8)),
    _qwen("Qwen2.5-Coder-14B", 5120, 13_824, 48, (40, 8)),
    _qwen("Qwen2.5-Coder-7B", 3584, 18_944, 28, (28, 4)),
    _qwen("Qwen2.5-Coder-3B", 2048, 11_008, 36, (16, 2), rows=_SMALL_ROWS, licence="Qwen-Research"),
    _qwen("Qwen2.5-Coder-1.5B", 1536, 8960, 28, (12, 2), rows=_SMALL_ROWS),
    _qwen("Qwen2.5-Coder-0.5B", 896, 4864, 24, (14, 2), rows=_SMALL_ROWS, head_size=64, draft=None),
    Entry(name="starter", sizes=_small(576, 1536, 30, (9, 3, 64), 49_152), licence="Apache-2.0"),
    Entry(
        name="embedded",
        sizes=_small(256, 768, 6, (4, 2, 64), 8192),
        licence="Apache-2.0",
        draft="embedded-draft",
    ),
    Entry(
        name="embedded-draft",
        sizes=_small(256, 768, 3, (4, 2, 64), 8192),
        licence="Apache-2.0",
        target=False,
    ),
)
"""the largest first"""


def named(name: str) -> Entry | None:
    """The entry of this name or hub id, whatever its case."""
    wanted = name.casefold()
    return next(
        (entry for entry in CATALOGUE if wanted and wanted in (entry.name.casefold(), entry.hub.casefold())),
        None,
    )


def embedded_folder(role: Literal["target", "draft"]) -> Path:
    return Path(__file__).parent / "embedded" / role
