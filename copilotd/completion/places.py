"""The places of a document that prompts are laid for: at most two, one for each of its cache slots."""

from __future__ import annotations

from copilotd.completion.anchor import LINES_BELOW_ANCHOR, Layout, shortened
from copilotd.completion.ask import Ask
from copilotd.completion.explanation import Explanation
from copilotd.completion.prompt import PromptWriter
from copilotd.engine.prefix import common_prefix
from copilotd.wording import plural

COLD_S = 0.2
"""of prefill that a cold place may wait for: as long again goes by until its first line is written"""
COLD_TOKENS = 160
"""but never fewer than these in its windows"""
SAME_PLACE = 8
"""a slot that has more than this part of a prompt is where it goes"""


class Places:
    def __init__(self, prompts: PromptWriter, cold_tokens: int = 0) -> None:
        """`cold_tokens`: how much may be prefilled while somebody waits; 0: what is done in COLD_S."""
        self._prompts = prompts
        self._cold_tokens = cold_tokens
        self._layouts: dict[int, Layout] = {}
        """by slot"""
        self._sent: dict[int, list[int]] = {}
        """by slot, the prompt that was last sent there"""
        self._slot = 0

    @property
    def current(self) -> Layout | None:
        return self._layouts.get(self._slot)

    def sent(self, slot: int, prompt: list[int]) -> None:
        self._sent[slot] = prompt

    def at(self, ask: Ask, tokens_per_s: float, explanation: Explanation) -> Layout:
        """The layout that still holds, or a new one: short where a long one would take too long."""
        for slot in (self._slot, 1 - self._slot):
            layout = self._layouts.get(slot)
            if layout is not None and self._holds(layout, ask):
                self._slot = slot
                return layout
        snippets = self._prompts.fitting(ask.snippets)
        budget = self._prompts.budget(ask, snippets)
        layout = self._prompts.lay(ask, budget, self._slot, self.current, snippets)
        missing, layout.slot = self._cost(self._prompts.fill(layout, ask).prompt)
        to_prefill = f"{plural(missing, 'token')} to prefill"
        quick = self._cold_tokens or max(COLD_TOKENS, int(COLD_S * tokens_per_s))
        if missing > quick and (short := shortened(budget, quick)) is not budget:
            layout = self._prompts.lay(ask, short, 1 - self._slot, None)
            layout.complete = False
            explanation.add("anchor", f"a cold place: {to_prefill}, so a short prompt first")
        else:
            explanation.add("anchor", f"anchored anew, {to_prefill}")
        self.adopt(layout)
        return layout

    def _holds(self, layout: Layout, ask: Ask) -> bool:
        header = self._prompts.header(ask, layout.snippets)
        budget = self._prompts.budget(ask, layout.snippets)
        if layout.head[: len(header)] != header or not layout.holds(ask.text, ask.cursor):
            return False
        typed = len(self._prompts.fill(layout, ask).ids)
        return typed <= min(budget.typed, self._prompts.context - budget.answer - len(layout.head))

    def _cost(self, prompt: list[int]) -> tuple[int, int]:
        """(tokens that no slot has, the slot to use): the one that has most of it, else the other one, so that
        the place just left stays warm."""
        shared = {slot: common_prefix(prompt, ids) for slot, ids in self._sent.items()}
        best = max(shared, key=shared.__getitem__, default=self._slot)
        most = shared.get(best, 0)
        if self._sent and most <= len(prompt) // SAME_PLACE:
            best = 1 - self._slot
        return len(prompt) - most, best

    def longer(self, ask: Ask) -> Layout | None:
        """A long prompt in the other slot for the short one of a cold place."""
        layout = self.current
        return None if layout is None or layout.complete else self._ahead(ask, layout)

    def nearer(self, ask: Ask) -> Layout | None:
        """An anchor near the cursor, in the other slot, when much was typed below the old one; or the same
        place with the first pieces of other files that have come."""
        layout = self.current
        if layout is None or not layout.holds(ask.text, ask.cursor):
            return None
        filled = self._prompts.fill(layout, ask)
        poor = not layout.snippets and self._prompts.fitting(ask.snippets) != ()
        far = self._prompts.fills_in and filled.typed.count("\n") > LINES_BELOW_ANCHOR
        full = len(filled.ids) > self._prompts.budget(ask, layout.snippets).typed * 3 // 4
        return self._ahead(ask, layout) if layout.stale or far or full or poor else None

    def _ahead(self, ask: Ask, old: Layout) -> Layout | None:
        """To be prefilled, then adopted; None when the old one is as good."""
        snippets = self._prompts.fitting(ask.snippets)
        budget = self._prompts.budget(ask, snippets)
        new = self._prompts.lay(ask, budget, 1 - old.slot, old, snippets)
        if new.head == old.head:
            old.complete = True
            return None
        self._layouts.pop(new.slot, None)
        return new

    def adopt(self, layout: Layout) -> None:
        self._layouts[layout.slot] = layout
        self._slot = layout.slot
