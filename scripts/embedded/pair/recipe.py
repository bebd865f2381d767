"""The one configuration file of a training run."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from msgspec import Struct

from pair.model import Shape


class Schedule(Struct, frozen=True, kw_only=True):
    """Warm-up, a plateau, then a linear way down to zero over the last `decay` of all tokens.

    On the plateau `tokens` may still be changed between two stretches of a run.
    """

    tokens: int
    batch_tokens: int
    warmup: int
    """steps"""
    decay: float
    """share of `tokens`"""
    row_tokens: list[tuple[float, int]]
    """(share of the tokens from which on, tokens of a row): short rows first, then long ones"""
    muon_lr: float
    adam_lr: float
    muon_momentum: float = 0.95
    weight_decay: float = 0.0

    def rate(self, step: int, seen: int) -> float:
        """The factor on both learning rates."""
        left = (self.tokens - seen) / max(1.0, self.decay * self.tokens)
        return max(0.0, min(1.0, (step + 1) / self.warmup, left))

    def row_length(self, seen: int) -> int:
        return next(length for share, length in reversed(self.row_tokens) if seen >= share * self.tokens)


class Rows(Struct, frozen=True, kw_only=True):
    """Shares of the kinds of rows; the rest is plain text, left to right."""

    fim: float
    repository: float


class Recipe(Struct, frozen=True, kw_only=True):
    seed: int
    shares: dict[str, float]
    """of the rows, by language"""
    tokenizer_characters: int
    rows: Rows
    target: Shape
    draft: Shape
    target_schedule: Schedule
    draft_schedule: Schedule
    own_share: float
    """of the draft's rows, that the target wrote itself"""
    own_rows: int
    """at most so many of them are written, then they come again"""

    @classmethod
    def read(cls, path: Path) -> Recipe:
        return msgspec.toml.decode(path.read_bytes(), type=cls)

    @staticmethod
    def add_option(parser: argparse.ArgumentParser) -> None:
        default = Path(__file__).parent.with_name("recipe.toml")
        parser.add_argument("--recipe", type=Path, default=default, help="(default: %(default)s)")
