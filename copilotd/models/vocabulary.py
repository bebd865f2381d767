"""A tokenizer as copilotd uses one: user text never becomes a control token, bytes are kept exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class FimTokens(Struct, frozen=True):
    """ids of the PSM layout; the repository ids are None where the model has none."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None


class Vocabulary(Protocol):
    size: int
    """real entries, control tokens included: ids are below it"""
    control: frozenset[int]
    """every control id: never in user text, never in an answer"""
    fim: FimTokens | None
    """None: the model continues a prefix only"""
    begin: int | None
    """id every prompt starts with, where the model was trained so"""

    def encode(self, text: str) -> list[int]:
        """ids of user text. Markers such as <|fim_prefix|> come out as plain characters."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes a token stands for, maybe half a character; b"" for a control token."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; a half character at the end is dropped, control tokens are b""."""
        ...
