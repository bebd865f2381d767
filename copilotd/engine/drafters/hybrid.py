"""All sources behind the one interface: who is asked, and for how much, by measured cost and gain."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from msgspec import Struct

from copilotd.engine.constraint import Walk
from copilotd.engine.drafters import draft_model, echo, lookup
from copilotd.engine.drafters.base import Proposal
from copilotd.engine.drafters.draft_model import DraftModel
from copilotd.engine.generation import Cancelled, GenerationRequest
from copilotd.engine.policy import Acceptance, Balance, Costs, Estimate, best_length
from copilotd.engine.sampling import Randomness
from copilotd.engine.slots import document

WARM = 64
"""Ids that the draft model's cache may lack: they are fed with the next draft."""
PROBE_AFTER = 32
"""Rounds after which a draft model that did not seem worth its cost is asked for one id all the same, if that
costs no more than this part of them: its cache may have to catch up."""


class Guess(Struct):
    """A one-hot proposal that may be made, with the estimate each of its ids rests on."""

    source: str
    ids: list[int]
    estimates: list[Estimate]
    after: int = 0
    """ids of a model draft that it extends"""

    def chances(self) -> list[float]:
        return [estimate.value for estimate in self.estimates]

    def learn(self, fresh: Sequence[int]) -> None:
        for token, estimate, written in zip(self.ids, self.estimates, fresh, strict=False):
            estimate.learn(token == written)
            if token != written:
                break


class Asked(Struct):
    """What a round has cost already before its target step."""

    riding: int
    """rows of that step that are no drafts"""
    drawing_ms: float = 0.0
    counted_ms: float = 0.0
    """for drawing too, but by the table: a disturbance is nobody's fault"""


class Hybrid:
    """Echo and lookup cost little to ask. So they are asked every round, while that pays or can be afforded,
    and learnt from even when the target is not shown their guess: it was right if that is what was written.
    The draft model is probed instead."""

    def __init__(self, costs: Costs, draft: DraftModel | None, follow: bool = False) -> None:
        """`follow`: let the costs follow what steps take in use."""
        self.costs = costs
        self._follow = follow
        self.acceptance = Acceptance()
        self.balance = Balance()
        self._draft = draft
        self._lookup = lookup.Lookup()
        self._unasked = 0
        """rounds since the draft model was last asked"""

    def begin(self, request: GenerationRequest, randomness: Randomness) -> None:
        self._request = request
        self._walk = Walk(request.constraint)
        self._walked = 0
        self._guesses: list[Guess] = []
        self._drawn: list[float] = []
        self._asked: Asked | None = None
        if request.speculation == "off":
            return
        self._lookup.begin(document(request.slot), request.surroundings, request.library)
        if self._draft is not None:
            self._draft.begin(request, randomness)

    def forget(self, closed: Hashable) -> None:
        """A document is closed: its index goes."""
        self._lookup.forget(closed)

    def propose(self, emitted: Sequence[int], limit: int, riding: int, cancelled: Cancelled) -> Proposal:
        speculation = self._request.speculation
        if speculation == "off" or (speculation == "auto" and self.balance.spent):
            return Proposal()
        started = time.perf_counter()
        self._asked = Asked(riding)
        proposal = self._ask(emitted, limit, riding, cancelled)
        if self._follow:
            self.costs.observe_asking((time.perf_counter() - started) * 1e3 - self._asked.drawing_ms)
        return proposal

    def _ask(self, emitted: Sequence[int], limit: int, riding: int, cancelled: Cancelled) -> Proposal:
        least = 1 if self._request.speculation == "on" else 0
        self._walk.advance(emitted[self._walked :])
        self._walked = len(emitted)

        self._guesses = [self._echo(emitted, limit), *self._look_up(emitted, limit)]
        plans = [
            (*best_length(self.costs, riding, guess.chances(), least=least), guess) for guess in self._guesses
        ]
        length, rate, guess = max(plans, key=lambda plan: plan[1])

        draft_limit = self._draft_limit(emitted, limit, riding, rate)
        if draft_limit:
            proposal = self._draft_and_extend(emitted, draft_limit, limit, riding, cancelled)
            if proposal.ids:
                return proposal
        proposal = Proposal()
        proposal.extend(guess.ids[:length], guess.source)
        return proposal

    def learn(self, accepted: int, fresh: Sequence[int], rows: int, ms: float) -> None:
        if self._follow:
            self.costs.observe_target(rows, ms)
        for i, probability in enumerate(self._drawn[: accepted + 1]):
            self.acceptance.drawn(probability).learn(i < accepted)
            self.acceptance.draft.learn(i < accepted)
        for guess in self._guesses:
            if accepted >= guess.after:
                guess.learn(fresh[guess.after :])
        self._settle(accepted, rows)
        self._guesses, self._drawn, self._asked = [], [], None

    def _settle(self, accepted: int, rows: int) -> None:
        """What the round saved, or lost, against as many plain steps as ids were written."""
        if self._request.speculation == "off":
            return
        costs, saved_ms = self.costs, 0.0
        plain_ms = costs.target_ms(1)
        if self._asked is not None:
            riding = self._asked.riding
            wider_ms = costs.target_ms(rows) - costs.target_ms(riding)
            saved_ms = accepted * plain_ms - wider_ms - costs.asking - self._asked.counted_ms
        self.balance.settle(plain_ms, saved_ms)

    # ---- one-hot sources ---------------------------------------------------------------------------------

    def _echo(self, emitted: Sequence[int], limit: int) -> Guess:
        ids = echo.guess(self._request.echo, emitted, limit) if self._request.echo else []
        ids = self._proposable(ids, self._walk)
        return Guess(echo.NAME, ids, [self.acceptance.echo] * len(ids))

    def _look_up(
        self, written: Sequence[int], limit: int, walk: Walk | None = None, drawn: Sequence[int] = ()
    ) -> list[Guess]:
        """What may follow the text above, `written` and a model draft; `walk` stands after them."""
        guesses = []
        for found in self._lookup.guesses(written, limit, drawn):
            ids = self._proposable(found.ids, walk or self._walk)
            estimates = [
                self.acceptance.matched(f"{found.source} {found.kind}", found.match + i)
                for i in range(len(ids))
            ]
            guesses.append(Guess(found.source, ids, estimates, len(drawn)))
        return guesses

    def _proposable(self, ids: list[int], walk: Walk) -> list[int]:
        """Up to the first id that the constraint forbids, or that ends a draft."""
        until = self._request.draft_until
        end = next((i + 1 for i, token in enumerate(ids) if token in until), len(ids))
        return ids[: min(end, len(walk.ahead(ids)) - 1)]

    # ---- the draft model ---------------------------------------------------------------------------------

    def _draft_limit(self, emitted: Sequence[int], limit: int, riding: int, rival: float) -> int:
        """How many ids to ask the draft model for at most: 0 when another way promises more."""
        if self._draft is None:
            return 0
        if self._request.speculation == "on":
            _, rate = self._expected([], limit, riding, least=1)
            return limit if rate > rival else 0
        length, rate = self._expected([], limit, riding)
        worth_it = length > 0 and rate > rival
        self._unasked += 1
        if not worth_it and self._unasked < PROBE_AFTER:
            return 0
        lag = self._draft.lag(emitted)
        if lag is None or lag > WARM or not (worth_it or self._probe_is_due(lag, limit, riding)):
            return 0
        self._unasked = 0
        return limit if worth_it else 1

    def _probe_is_due(self, lag: int, limit: int, riding: int) -> bool:
        """After some rounds, where it costs little and could pay if everything were accepted."""
        costs = self.costs
        ms = costs.draft_ms(lag) + costs.target_ms(riding + 1) - costs.target_ms(riding)
        ideal, _ = best_length(costs, riding, [1.0] * limit, draft_ms=costs.draft_ms(1))
        return ms * PROBE_AFTER <= self._unasked * costs.target_ms(1) and ideal > 0

    def _expected(
        self, probabilities: Sequence[float], limit: int, riding: int, least: int = 0
    ) -> tuple[int, float]:
        """The best length of a model draft of which ids with these probabilities are drawn already."""
        drawn = [self.acceptance.drawn(probability).value for probability in probabilities]
        chances = drawn + [self.acceptance.draft.value] * (limit - len(drawn))
        return best_length(self.costs, riding, chances, draft_ms=self.costs.draft_ms(1), least=least)

    def _draft_and_extend(
        self, emitted: Sequence[int], draft_limit: int, limit: int, riding: int, cancelled: Cancelled
    ) -> Proposal:
        assert self._draft is not None
        assert self._asked is not None
        lag = self._draft.lag(emitted) or 1
        started = time.perf_counter()
        drawn = self._draft.draw(
            emitted,
            draft_limit,
            self._walk,
            lambda probabilities: self._expected(probabilities, draft_limit, riding)[0] > len(probabilities),
            cancelled,
        )
        self._drawn = drawn.probabilities
        self._asked.drawing_ms = (time.perf_counter() - started) * 1e3
        if drawn.ids:
            more = (len(drawn.ids) - 1) * self.costs.draft_ms(1)
            self._asked.counted_ms = self.costs.draft_ms(lag) + more
        if self._follow and drawn.ids:
            beside = (self._asked.drawing_ms - sum(drawn.ms)) / len(drawn.ids)
            for ms in drawn.ms[1:]:
                self.costs.observe_draft(1, ms + beside)
        proposal = Proposal(drawn.ids, [draft_model.NAME] * len(drawn.ids), drawn.q, len(drawn.ids))
        if drawn.ids and not drawn.ended:
            guess = self._extension(emitted, drawn.ids, limit, riding)
            proposal.extend(guess.ids, guess.source)
        return proposal

    def _extension(self, emitted: Sequence[int], drawn: list[int], limit: int, riding: int) -> Guess:
        """What lookup adds to a model draft, as far as it pays."""
        walk = self._walk.copy()
        walk.advance(drawn)
        guesses = self._look_up(emitted, limit - len(drawn), walk, drawn)
        self._guesses += guesses
        chances = [self.acceptance.drawn(probability).value for probability in self._drawn]
        spent_ms = len(drawn) * self.costs.draft_ms(1)
        plans = [
            (
                *best_length(
                    self.costs, riding, chances + guess.chances(), spent_ms=spent_ms, least=len(drawn)
                ),
                guess,
            )
            for guess in guesses
        ]
        if not plans:
            return Guess("", [], [])
        length, _, guess = max(plans, key=lambda plan: plan[1])
        kept = length - len(drawn)
        return Guess(guess.source, guess.ids[:kept], guess.estimates[:kept], guess.after)
