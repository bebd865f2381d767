"""How much to draft: while the expected gain exceeds the measured cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

FOLLOW = 1.04
"""factor by which an entry moves at one observation"""
TOLERATED = 1 / 32
"""what speculating may cost beyond what it saves, as a part of plain decoding"""
AHEAD = 8.0
"""Plain steps. What was saved longer ago is not there to be lost again."""


class Costs(Struct):
    """Measured milliseconds of a step by its number of rows, ascending; never a formula."""

    target: tuple[tuple[int, float], ...]
    draft: tuple[tuple[int, float], ...] = ()
    """empty without a draft model"""
    asking: float = 0.0
    """of a round, for looking up and deciding, drawing left out; 0.0 until it was seen"""

    def target_ms(self, rows: int) -> float:
        return interpolated(self.target, rows)

    def draft_ms(self, rows: int) -> float:
        return interpolated(self.draft, rows)

    def observe_target(self, rows: int, ms: float) -> None:
        """Follow what steps take in use, at the context and beside the neighbours they really have."""
        self.target = followed(self.target, rows, ms)

    def observe_draft(self, rows: int, ms: float) -> None:
        self.draft = followed(self.draft, rows, ms)

    def observe_asking(self, ms: float) -> None:
        """The first time may have met a stalled machine: it counts as an eighth of a step at most."""
        first = min(ms, self.target_ms(1) / 8)
        ((_, self.asking),) = followed(((0, self.asking or first),), 0, ms)


def followed(table: tuple[tuple[int, float], ...], rows: int, ms: float) -> tuple[tuple[int, float], ...]:
    """The table with its entry for `rows`, if it has one, a step nearer to `ms`: what it tends to is the
    median, so that a step that was disturbed counts no more than any other."""
    return tuple(
        (at, value * (FOLLOW if ms > value else 1 / FOLLOW) if at == rows else value) for at, value in table
    )


def interpolated(table: Sequence[tuple[int, float]], rows: int) -> float:
    """Between two measured points, and beyond the last, along a straight line."""
    if rows <= len(table) and table[rows - 1][0] == rows:  # every small number of rows is measured
        return table[rows - 1][1]
    if len(table) == 1:
        return table[0][1]
    at = min(max(bisect_left(table, (rows, 0.0)), 1), len(table) - 1)
    (low, low_ms), (high, high_ms) = table[at - 1], table[at]
    return low_ms + (high_ms - low_ms) * (rows - low) / (high - low)


class Estimate:
    """A moving mean of outcomes, which starts at a prior worth a few of them."""

    PRIOR = 4
    MEMORY = 64
    """outcomes after which the older half has faded"""

    def __init__(self, prior: float) -> None:
        self.value = prior
        self._seen = self.PRIOR

    def learn(self, outcome: bool) -> None:
        self._seen = min(self._seen + 1, self.MEMORY)
        self.value += (outcome - self.value) / self._seen


class Balance:
    """Plain steps by which speculating is ahead of plain decoding, of which it may lose a small part.

    Estimates say how much to draft; whatever they are worth, who does not ask while this is spent is never
    slower than plain by more than that part. It fills again in the rounds that are left plain, so asking
    comes back: now and then while it loses, in every round as soon as it wins.
    """

    def __init__(self) -> None:
        self.steps = AHEAD

    @property
    def spent(self) -> bool:
        return self.steps <= 0.0

    def settle(self, plain_ms: float, saved_ms: float) -> None:
        """A round is over. What a machine that stood still has cost is not held against speculation for ever."""
        self.steps = max(-AHEAD, min(self.steps + saved_ms / plain_ms + TOLERATED, AHEAD))


class Acceptance:
    """Chance that an id is accepted once verification reaches it, by source and by how sure the source is."""

    DRAFT_BUCKETS = 8

    def __init__(self) -> None:
        self.echo = Estimate(0.9)
        self.draft = Estimate(0.6)
        """of an id not drawn yet"""
        self._matches: dict[tuple[str, int], Estimate] = {}
        self._drawn = [Estimate((i + 0.5) / self.DRAFT_BUCKETS) for i in range(self.DRAFT_BUCKETS)]

    def matched(self, source: str, match: int) -> Estimate:
        """By the length of the match, in powers of two. An id further on rests on a longer match."""
        octave = match.bit_length()
        found = self._matches.get((source, octave))
        if found is None:
            found = self._matches[source, octave] = Estimate(1.0 - 0.5 ** (octave - 1))
        return found

    def drawn(self, probability: float) -> Estimate:
        """By the probability that the draft model itself gave."""
        return self._drawn[min(int(probability * self.DRAFT_BUCKETS), self.DRAFT_BUCKETS - 1)]


def best_length(
    costs: Costs,
    riding: int,
    chances: Sequence[float],
    *,
    draft_ms: float = 0.0,
    spent_ms: float = 0.0,
    least: int = 0,
) -> tuple[int, float]:
    """(k, tokens per millisecond): how many of the ids to propose, at least `least`.

    Expected tokens of a round are 1 + c1 + c1 c2 + … (Leviathan et al. 2022, equation 1, for chances that
    differ). A round costs a plain step, what the drafts add to a step of `riding` rows (the prefill they ride
    along with is spent anyway), `draft_ms` for each draft and `spent_ms` for what is drafted already.
    """
    plain, ridden = costs.target_ms(1), costs.target_ms(riding)
    reach = tokens = 1.0
    best = (0, tokens / (plain + spent_ms) if least == 0 else 0.0)
    for k, chance in enumerate(chances, 1):
        reach *= chance
        tokens += reach
        rate = tokens / (plain + costs.target_ms(riding + k) - ridden + k * draft_ms + spent_ms)
        if k >= least and rate > best[1]:
            best = (k, rate)
    return best
