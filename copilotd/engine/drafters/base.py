"""The interface of a drafter: it proposes what may come next, the target decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from msgspec import Struct

from copilotd.engine.generation import Cancelled, GenerationRequest


class Proposal(Struct):
    """k proposed ids; every one of them goes to the target (dropping a drawn one would bend the law)."""

    ids: list[int]
    source: list[str]
    """the source of each id, for the counters: a lookup may extend a model draft"""
    q: list[torch.Tensor | None]
    """float64 [vocabulary]: the filtered distribution each id was drawn from; None for a one-hot proposal"""
    confidence: float | None = None
    """what the source itself says of its first id: match length for lookup, probability for a model"""


class Drafter(Protocol):
    name: str

    def begin(self, request: GenerationRequest) -> None:
        """A new generation starts."""
        ...

    def propose(self, emitted: Sequence[int], limit: int, cancelled: Cancelled) -> Proposal:
        """At most `limit` ids that may follow the prompt and `emitted`; an empty proposal says "nothing"."""
        ...
