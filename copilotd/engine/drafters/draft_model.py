"""A small model that writes ahead of the target: its own prompt, its own cache, the same law of drawing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from msgspec import Struct, field

from copilotd.engine import prefix
from copilotd.engine.constraint import Walk
from copilotd.engine.generation import Cancelled, GenerationRequest
from copilotd.engine.runner import Cache, Runner
from copilotd.engine.sampling import Randomness, best, distribution, masked
from copilotd.engine.slots import Slots

NAME = "draft"


class Drawn(Struct):
    """What the draft model wrote, id by id."""

    ids: list[int] = field(default_factory=list)
    q: list[torch.Tensor | None] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    """its own, of each id; what it is chosen by next"""
    ms: list[float] = field(default_factory=list)
    """what each id took; the first with all that its cache lacked"""
    ended: bool = False
    """after a stop id or a `draft_until` id"""


GoOn = Callable[[Sequence[float]], bool]
"""Given the probabilities of the ids drawn so far: whether to draw another. It may look at what was drawn, and
nothing drawn is taken back, so the law holds."""


class DraftModel:
    """`vocabulary` is the target's: both models' ids mean the same text, but one may have fewer."""

    def __init__(self, runner: Runner, slots: Slots, vocabulary: int) -> None:
        self._runner = runner
        self._slots = slots
        self._vocabulary = vocabulary
        self._common = min(vocabulary, runner.vocabulary)
        self._cache: Cache | None = None

    def begin(self, request: GenerationRequest, randomness: Randomness) -> None:
        self._request = request
        self._randomness = randomness
        self._prompt = list(request.draft_prompt or request.prompt)
        self._cache = self._slots.peek(request.slot)
        self._held = 0
        """ids of the prompt that the cache was seen to hold"""
        self._known = max(self._prompt) < self._runner.vocabulary
        """the prompt has no id that the draft model lacks"""

    def lag(self, emitted: Sequence[int]) -> int | None:
        """How many ids of prompt and `emitted` its cache lacks; None without a cache or without room. Looking
        changes nothing."""
        if self._cache is None or not self._fits(emitted):
            return None
        held, prompt = self._cache.ids, self._prompt
        if self._held < len(prompt):
            self._held = prefix.common_prefix(held, prompt)
        if self._held < len(prompt):
            return len(prompt) + len(emitted) - self._held
        return len(emitted) - prefix.common_prefix(held[len(prompt) :], list(emitted))

    def warm_up(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Prefill the prompt of a request, where there is room for it; False when cancelled in between."""
        prompt = list(request.draft_prompt or request.prompt)
        if len(prompt) > self._slots.capacity or max(prompt) >= self._runner.vocabulary:
            return True
        return prefix.warm(self._runner, self._slots.acquire(request.slot, prompt), prompt, cancelled)

    def draw(
        self, emitted: Sequence[int], limit: int, walk: Walk, go_on: GoOn, cancelled: Cancelled
    ) -> Drawn:
        """Write at most `limit` ids after prompt and `emitted`; ends after a stop id or a `draft_until` id.

        `walk` stands after `emitted`. Nothing when cancelled before the first step, or without room.
        """
        sequence = [*self._prompt, *emitted]
        drawn = Drawn()
        limit = min(limit, self._slots.capacity - len(sequence) + 1)
        if not self._fits(emitted) or limit < 1:
            return drawn
        cache = self._cache = self._slots.acquire(self._request.slot, sequence)
        self._held = 0
        if not self._catch_up(cache, sequence, cancelled):
            return drawn
        walk = walk.copy()
        ends = self._request.stop_ids | self._request.draft_until
        pending = sequence[len(cache.ids) :]
        while not cancelled():
            started = time.perf_counter()
            row = self._runner.step(cache, pending, rows=1)[:, : self._common]
            token, q, probability = self._draw_one(masked(row, [walk.mask()])[0])
            drawn.ms.append((time.perf_counter() - started) * 1e3)
            drawn.ids.append(token)
            drawn.q.append(q)
            drawn.probabilities.append(probability)
            drawn.ended = token in ends
            if drawn.ended or len(drawn.ids) == limit or not go_on(drawn.probabilities):
                break
            walk.advance([token])
            pending = [token]
        return drawn

    def _catch_up(self, cache: Cache, sequence: list[int], cancelled: Cancelled) -> bool:
        """Forget rejected rows; feed what was written without it. After a draft that was accepted whole, its
        last id is such a one: it was drawn and never stepped."""
        prefix.reuse(cache, sequence)
        return prefix.feed(self._runner, cache, sequence, leave=self._runner.chunk, cancelled=cancelled)

    def _draw_one(self, row: torch.Tensor) -> tuple[int, torch.Tensor | None, float]:
        """(id, q over the target's vocabulary or None when greedy, the draft's probability of it)."""
        sampling = self._request.sampling
        if sampling.greedy:
            token = best(row)
            return token, None, float(torch.exp(row[token] - torch.logsumexp(row, 0)))
        law = distribution(row, sampling)
        token = self._randomness.choose(law)
        q = torch.zeros(self._vocabulary, dtype=torch.float64, device=law.device)
        q[: self._common] = law
        return token, q, float(law[token])

    def _fits(self, emitted: Sequence[int]) -> bool:
        """After the prompt."""
        room = self._slots.capacity - len(self._prompt)
        return self._known and len(emitted) <= room and max(emitted, default=0) < self._runner.vocabulary
