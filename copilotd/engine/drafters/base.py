"""The interface of a drafter: it proposes what may come next, the target decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from msgspec import Struct, field

from copilotd.engine.generation import Cancelled, GenerationRequest
from copilotd.engine.sampling import Randomness


class Proposal(Struct):
    """k proposed ids; every one of them goes to the target (dropping a drawn one would bend the law)."""

    ids: list[int] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    """the source of each id, for the counters: a lookup may extend a model draft"""
    q: list[torch.Tensor | None] = field(default_factory=list)
    """float64 [target's vocabulary]: the filtered distribution each id was drawn from; None for a one-hot
    proposal"""
    steps: int = 0
    """forward steps of a draft model that it took"""

    def extend(self, ids: Sequence[int], source: str) -> None:
        """Append a one-hot proposal."""
        self.ids.extend(ids)
        self.source.extend([source] * len(ids))
        self.q.extend([None] * len(ids))

    def cut(self, length: int) -> None:
        """Keep the first `length` ids: only for what the target could not have accepted."""
        del self.ids[length:], self.source[length:], self.q[length:]


class Drafter(Protocol):
    def begin(self, request: GenerationRequest, randomness: Randomness) -> None:
        """A new generation starts. What is drawn in it is drawn from `randomness`."""
        ...

    def propose(self, emitted: Sequence[int], limit: int, riding: int, cancelled: Cancelled) -> Proposal:
        """At most `limit` ids that may follow the prompt and `emitted`; an empty proposal says "nothing".

        `riding` rows go with them in the same target step: the end of the prompt, or the last id.
        """
        ...

    def learn(self, accepted: int, fresh: Sequence[int], rows: int, ms: float) -> None:
        """Of the last proposal so many ids were accepted; the round emitted `fresh`; its target step had so
        many rows and took so long."""
        ...
