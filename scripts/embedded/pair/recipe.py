"""The one configuration file of a training run."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from msgspec import Struct

from pair.model import Shape


class Stage(Struct, frozen=True, kw_only=True):
    """Short rows and small batches first, long rows and large batches late."""

    start: float
    """share of the run's tokens from which on it holds"""
    row: int
    """tokens"""
    batch: int
    """tokens"""
    echo: float = 0.0
    """share of the rows that repeat a stretch of tokens: what teaches a model to copy, long before code does"""

    @property
    def rows(self) -> int:
        return max(1, self.batch // self.row)


class Schedule(Struct, frozen=True, kw_only=True):
    """Warm-up, a plateau, then a linear way down to zero over the last `decay` of all tokens.

    On the plateau `tokens` may still be changed between two stretches of a run.
    """

    tokens: int
    warmup: int
    """steps"""
    decay: float
    """share of `tokens`"""
    stages: list[Stage]
    muon_lr: float
    adam_lr: float
    muon_momentum: float = 0.95
    weight_decay: float = 0.0

    def rate(self, step: int, seen: int) -> float:
        """The factor on both learning rates."""
        left = (self.tokens - seen) / max(1.0, self.decay * self.tokens)
        return max(0.0, min(1.0, (step + 1) / self.warmup, left))

    def stage(self, seen: int) -> Stage:
        return next(stage for stage in reversed(self.stages) if seen >= stage.start * self.tokens)

    @property
    def longest_row(self) -> int:
        return max(stage.row for stage in self.stages)


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
    draft_layers: list[int]
    """of the target, from 0: what the draft begins as"""
    own_share: float
    """of the draft's rows, whose end the target wrote itself"""
    own_rows: int
    """so many of them are written, then they come again"""
    own_tokens: int
    """of each of them are the target's"""

    @classmethod
    def read(cls, path: Path) -> Recipe:
        return msgspec.toml.decode(path.read_bytes(), type=cls)

    @staticmethod
    def add_option(parser: argparse.ArgumentParser) -> None:
        default = Path(__file__).parent.with_name("recipe.toml")
        parser.add_argument("--recipe", type=Path, default=default, help="(default: %(default)s)")
