"""What is asked of the engine and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:  # a daemon in front of a team's server runs without torch
    import torch

Cancelled: TypeAlias = Callable[[], bool]
"""Asked between any two forward steps, prefill chunks included; True ends the work there."""


class Emit(Protocol):
    """Called after each round with the ids it added (never a stop id); True ends the generation after them."""

    def __call__(self, ids: Sequence[int], logprobs: Sequence[float] = (), /) -> bool:
        """`logprobs` as in Generation, one for each id; () from a backend that knows none."""
        ...


Speculation: TypeAlias = Literal["auto", "on", "off"]


class Sampling(Struct, frozen=True):
    """How the next id is drawn. Order of the filters: constraint, temperature, top-k, top-p."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature <= 1e-5 or self.top_p <= 0.0 or self.top_k == 1


class Constraint(Protocol):
    """A finite automaton over ids: which id may come next (token healing's byte automaton is one).

    The engine asks row by row along a draft, so that row i's mask follows the drafted ids before it.
    """

    def start(self) -> int:
        """The state before the first generated id."""
        ...

    def next(self, state: int, token: int) -> int:
        """The state after `token`, which `mask(state)` allows."""
        ...

    def mask(self, state: int) -> torch.Tensor | None:
        """bool [vocabulary], True where an id may come next; None where every id may."""
        ...


class Surroundings(Struct, frozen=True):
    """The document in *document order*, as lookup sees it (not the prompt's order)."""

    before: Sequence[int] = ()
    """ids of the text above the cursor, typed text included, ending where the prompt ends: what healing drops
    is written again"""
    after: Sequence[int] = ()
    """ids of the text after the cursor"""


class Library(Protocol):
    """Ids of other documents that may be looked up too."""

    def find(self, tail: Sequence[int], limit: int) -> tuple[list[int], int]:
        """At most `limit` ids that followed the longest match of the end of `tail` somewhere, and the match's
        length; ([], 0) for none. Cheap: asked in every round."""
        ...


class GenerationRequest(Struct, frozen=True, kw_only=True):
    prompt: Sequence[int]
    """ids for the target, at least one"""
    draft_prompt: Sequence[int] = ()
    """ids for the draft model, whose prompt may be shorter; empty: the target's prompt"""
    surroundings: Surroundings = field(default_factory=Surroundings)
    library: Library | None = None
    """the workspace, looked up where the document has no longer match"""
    echo: Sequence[int] = ()
    """what is left of an earlier completion for this spot, proposed first"""
    slot: Hashable = None
    """which KV slot to prefer: one per document and role"""
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    """every control id: ends the generation, is never emitted"""
    draft_until: frozenset[int] = frozenset()
    """a draft ends after any of these (ids with a newline, on a one-line request)"""
    sampling: Sampling = Sampling()
    constraint: Constraint | None = None
    speculation: Speculation = "auto"


class Counters(Struct):
    """Counted, never timed, but for the two times in milliseconds."""

    reused_tokens: int = 0
    prefill_tokens: int = 0
    generated_tokens: int = 0
    target_steps: int = 0
    """those that gave logits; chunks of prefill before the last are not among them"""
    draft_steps: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    """proposed tokens by source: echo, lookup, workspace, draft"""
    accepted: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    """drafted positions that verification came to: accepted ones and the first rejected"""
    prefill_ms: float = 0.0
    """until the first ids: the last chunk of the prompt carries the first draft"""
    decode_ms: float = 0.0

    def add(self, other: Counters) -> None:
        """Make this the sum of both."""
        for name in self.__struct_fields__:
            mine, more = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                more = {source: mine.get(source, 0) + more.get(source, 0) for source in mine | more}
                setattr(self, name, more)
            else:
                setattr(self, name, mine + more)


Finish: TypeAlias = Literal["stop", "length", "cancelled", "halted"]
"""stop: a stop id; length: max_new_tokens or no room in the context; halted: emit said so."""


class Proposed(Struct, frozen=True):
    """What was put before the target in one round, and how much of it the target would have written too."""

    ids: Sequence[int]
    source: Sequence[str]
    """of each id"""
    accepted: int


class Generation(Struct):
    ids: list[int]
    """what was emitted: no stop id among them"""
    logprobs: list[float]
    """natural log of the target's (constrained, unscaled by temperature) probability of each id"""
    finish: Finish
    counters: Counters
    proposed: list[Proposed] = field(default_factory=list)
