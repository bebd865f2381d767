"""The engine: two models, their caches, their drafters, and one generation at a time."""

from __future__ import annotations

from copilotd.engine.calibration import measure
from copilotd.engine.drafters.draft_model import DraftModel
from copilotd.engine.drafters.hybrid import Hybrid
from copilotd.engine.generation import Cancelled, Counters, Emit, Generation, GenerationRequest
from copilotd.engine.policy import Costs
from copilotd.engine.prefix import feed, reuse
from copilotd.engine.runner import Runner
from copilotd.engine.sampling import Seeded
from copilotd.engine.slots import Slots
from copilotd.engine.speculate import speculate

KV_BUDGET = 512 * 1024 * 1024
"""bytes of KV slots of one model, unless said otherwise"""


class Engine:
    """Used by one thread. `costs` are measured here unless they are given."""

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
        self.slots = Slots(target, self._capacity(target), kv_budget)
        self._draft_slots: Slots | None = None
        self._draft_model: DraftModel | None = None
        if draft is not None:
            self._draft_slots = Slots(draft, self._capacity(draft), kv_budget)
            self._draft_model = DraftModel(draft, self._draft_slots, target.vocabulary)
        self._drafter = Hybrid(self.costs, self._draft_model)

    def _capacity(self, runner: Runner) -> int:
        return min(self.context_tokens + self.max_draft_tokens + 1, runner.max_tokens)

    @property
    def kv_bytes(self) -> int:
        return self.slots.bytes + (self._draft_slots.bytes if self._draft_slots else 0)

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        """Decode until a stop id, the budget, a cancel or a halt. A prompt that leaves no room ends at once.

        Raises ValueError for an empty prompt, and whatever the runner raises; the slot is dropped then.
        """
        if not request.prompt:
            raise ValueError("a prompt has at least one id")
        room = self.context_tokens - len(request.prompt)
        if room < 0 or request.max_new_tokens < 0:
            return Generation([], [], "length", Counters())
        try:
            generation = speculate(
                self.target,
                self.slots.acquire(request.slot, request.prompt),
                self._drafter,
                request,
                Seeded(request.sampling.seed),
                cancelled,
                emit,
                max_new_tokens=min(request.max_new_tokens, room),
                max_draft_tokens=self.max_draft_tokens,
            )
        except Exception:
            self.forget(request)
            raise
        add(self.counters, generation.counters)
        return generation

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Prefill the target's prompt but for its last id, then the draft's; False when cancelled in between."""
        prompt = list(request.prompt)
        if not prompt or len(prompt) > self.context_tokens:
            return True
        try:
            cache = self.slots.acquire(request.slot, prompt)
            reuse(cache, prompt)
            return feed(self.target, cache, prompt, 1, cancelled) and self.warm_draft(request, cancelled)
        except Exception:
            self.forget(request)
            raise

    def warm_draft(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Prefill the draft model's prompt, after the target's first answer or in idle time."""
        if self._draft_model is None:
            return True
        try:
            return self._draft_model.warm_up(request, cancelled)
        except Exception:
            self.forget(request)
            raise

    def forget(self, request: GenerationRequest) -> None:
        """Drop the caches of the request's slot, whose rows are uncertain after an error."""
        self.slots.drop(request.slot)
        if self._draft_slots is not None:
            self._draft_slots.drop(request.slot)


def add(total: Counters, one: Counters) -> None:
    """Add the counters of one generation to a total."""
    for name in ("reused_tokens", "prefill_tokens", "target_steps", "draft_steps", "prefill_ms", "decode_ms"):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    for name in ("drafted", "accepted", "reached"):
        tally = getattr(total, name)
        for source, amount in getattr(one, name).items():
            tally[source] = tally.get(source, 0) + amount
