"""The engine: two models, their caches, their drafters, and one generation at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from copilotd.engine import prefix
from copilotd.engine.calibration import measure
from copilotd.engine.drafters.draft_model import DraftModel
from copilotd.engine.drafters.hybrid import Hybrid
from copilotd.engine.generation import Cancelled, Counters, Emit, Generation, GenerationRequest
from copilotd.engine.policy import Costs
from copilotd.engine.runner import Runner
from copilotd.engine.sampling import Seeded
from copilotd.engine.slots import Slots
from copilotd.engine.speculate import speculate

KV_BUDGET = 512 * 1024 * 1024
"""bytes of KV slots of one model, unless said otherwise"""


class Engine:
    """Used by one thread. `costs` are measured here, and follow what steps take in use, unless given."""

    def __init__(
        self,
        target: Runner,
        draft: Runner | None = None,
        *,
        context_tokens: int,
        max_draft_tokens: int = 8,
        kv_budget: int = KV_BUDGET,
        costs: Costs | None = None,
    ) -> None:
        self.target = target
        self.draft = draft
        self.context_tokens = min(context_tokens, target.max_tokens)
        self.max_draft_tokens = max_draft_tokens
        self.counters = Counters()
        """of all generations together"""
        self.costs = costs or measure(target, draft, max_draft_tokens)
        self._slots = Slots(target, self._capacity(target), kv_budget)
        self._all_slots = [self._slots]
        self._draft_model: DraftModel | None = None
        if draft is not None:
            self._all_slots.append(Slots(draft, self._capacity(draft), kv_budget))
            self._draft_model = DraftModel(draft, self._all_slots[-1], target.vocabulary)
        self._drafter = Hybrid(self.costs, self._draft_model, follow=costs is None)

    def _capacity(self, runner: Runner) -> int:
        return min(self.context_tokens + self.max_draft_tokens + 1, runner.max_tokens)

    @property
    def kv_bytes(self) -> int:
        return sum(slots.bytes for slots in self._all_slots)

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        """Decode until a stop id, the budget, a cancel or a halt. A prompt that leaves no room ends at once.

        Raises ValueError for an empty prompt, and whatever the runner raises; the slot is dropped then.
        """
        if not request.prompt:
            raise ValueError("a prompt has at least one id")
        room = self.context_tokens - len(request.prompt)
        if room < 0:
            return Generation([], [], "length", Counters())
        with self._forgetting(request):
            generation = speculate(
                self.target,
                self._slots.acquire(request.slot, request.prompt),
                self._drafter,
                request,
                Seeded(request.sampling.seed),
                cancelled,
                emit,
                max_new_tokens=min(request.max_new_tokens, room),
                max_draft_tokens=self.max_draft_tokens,
            )
        self.counters.add(generation.counters)
        return generation

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Prefill the target's prompt but for its last id, then the draft's. False when cancelled in between;
        a prompt that has no room, or is empty, is left alone."""
        prompt = list(request.prompt)
        if not 0 < len(prompt) <= self.context_tokens:
            return True
        with self._forgetting(request):
            done = prefix.warm(self.target, self._slots.acquire(request.slot, prompt), prompt, cancelled)
        return done and self.warm_draft(request, cancelled)

    def warm_draft(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Prefill the draft model's prompt, after the target's first answer or in idle time; False when
        cancelled in between. Without a draft model, or without room for it, there is nothing to do."""
        if self._draft_model is None:
            return True
        with self._forgetting(request):
            return self._draft_model.warm_up(request, cancelled)

    def forget(self, closed: Hashable) -> None:
        """A document is closed: nothing of it stays in the caches."""
        for slots in self._all_slots:
            slots.forget(closed)
        self._drafter.forget(closed)

    def shrink(self) -> bool:
        """Halve the caches; False when there is nothing left to give back."""
        given = [slots.shrink() for slots in self._all_slots]
        return any(given)

    @contextmanager
    def _forgetting(self, request: GenerationRequest) -> Iterator[None]:
        """After an error drop the caches of the request's slot: their rows are uncertain."""
        try:
            yield
        except Exception:
            for slots in self._all_slots:
                slots.drop(request.slot)
            raise
