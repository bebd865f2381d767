"""How much is drafted, given costs and chances."""

from __future__ import annotations

import itertools
import random

import pytest

from copilotd.engine.calibration import measure, widths
from copilotd.engine.drafters import hybrid
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest, Surroundings
from copilotd.engine.policy import AHEAD, TOLERATED, Acceptance, Balance, Costs, Estimate, best_length
from copilotd.engine.sampling import Seeded
from tests.support.engine_checks import carry_on, never, nothing, run_loop
from tests.support.toy_runner import ToyRunner, hashed

FLAT = Costs(target=((1, 10.0), (9, 10.0)), draft=((1, 1.0), (2, 1.0)))
LINEAR = Costs(target=((1, 10.0), (9, 90.0)), draft=((1, 9.0), (2, 9.0)))


def test_the_table_is_read_between_and_beyond_its_points() -> None:
    costs = Costs(target=((1, 10.0), (2, 11.0), (4, 15.0)), draft=((1, 3.0),))
    assert [costs.target_ms(rows) for rows in (1, 2, 3, 4, 6)] == [10, 11, 13, 15, 19]
    assert costs.draft_ms(5) == 3.0


def test_free_rows_take_the_whole_draft_and_dear_ones_none() -> None:
    assert best_length(FLAT, 1, [0.5] * 8)[0] == 8
    assert best_length(LINEAR, 1, [0.95] * 8) == (0, 0.1)
    assert best_length(LINEAR, 1, [0.1] * 8, least=1)[0] == 1


def test_the_best_length_is_the_best_of_all() -> None:
    rng = random.Random(0)
    for _ in range(200):
        ms = list(itertools.accumulate(rng.random() * 4 for _ in range(9)))
        costs = Costs(target=tuple((rows + 1, 5 + t) for rows, t in enumerate(ms)))
        chances = [rng.random() for _ in range(8)]
        draft_ms = rng.random()

        def rate(k: int, costs: Costs = costs, chances: list[float] = chances, d: float = draft_ms) -> float:
            tokens = 1 + sum(itertools.accumulate(chances[:k], lambda a, b: a * b))
            return tokens / (costs.target_ms(1 + k) + k * d)

        best = max(range(9), key=rate)
        length, value = best_length(costs, 1, chances, draft_ms=draft_ms)
        assert (length, value) == (best, pytest.approx(rate(best)))


def test_prefill_that_is_paid_anyway_does_not_count() -> None:
    """Riding on a prompt of many rows costs what the drafts add, no more and no less."""
    dear = Costs(target=((1, 10.0), (2, 30.0), (200, 2000.0), (201, 2001.0), (210, 2010.0)))
    assert best_length(dear, 1, [0.9])[0] == 0
    assert best_length(dear, 200, [0.9])[0] == 1


def test_estimates_follow_the_outcomes() -> None:
    estimate = Estimate(0.5)
    for _ in range(300):
        estimate.learn(True)
    assert estimate.value > 0.98
    for _ in range(300):
        estimate.learn(False)
    assert estimate.value < 0.02


def test_estimates_are_kept_by_match_and_by_probability() -> None:
    acceptance = Acceptance()
    assert acceptance.matched("lookup", 2) is acceptance.matched("lookup", 3)
    assert acceptance.matched("lookup", 2) is not acceptance.matched("lookup", 4)
    assert acceptance.matched("lookup", 16).value > acceptance.matched("lookup", 2).value
    assert acceptance.drawn(1.0).value > acceptance.drawn(0.1).value


def losing() -> tuple[Engine, ToyRunner]:
    """A draft model that knows nothing, on a device where a draft costs something."""
    draft = ToyRunner(hashed(40, 99), 40)
    costs = Costs(target=((1, 10.0), (2, 11.0), (9, 18.0)), draft=((1, 2.0), (2, 2.0)))
    return Engine(ToyRunner(hashed(40, 1), 40), draft, context_tokens=500, costs=costs), draft


def test_a_losing_draft_model_is_only_probed() -> None:
    engine, _ = losing()
    request = GenerationRequest(prompt=[1, 2, 3], max_new_tokens=400, slot="s")
    engine.warm_draft(request, never)
    counters = engine.generate(request, never, carry_on).counters
    asked = counters.drafted["draft"]
    probes = counters.target_steps / hybrid.PROBE_AFTER
    assert probes / 2 < asked < probes + 12  # a dozen at first, to find out


def test_a_draft_model_that_could_never_pay_is_not_even_probed() -> None:
    draft = ToyRunner(hashed(40, 1), 40)
    engine = Engine(ToyRunner(hashed(40, 1), 40), draft, context_tokens=500, costs=LINEAR)
    request = GenerationRequest(prompt=[1, 2, 3], max_new_tokens=200, slot="s")
    engine.warm_draft(request, never)
    assert engine.generate(request, never, carry_on).counters.drafted == {}


def test_a_draft_model_that_became_good_is_found_again() -> None:
    engine, draft = losing()
    request = GenerationRequest(prompt=[1, 2, 3], max_new_tokens=400, slot="s")
    engine.warm_draft(request, never)
    engine.generate(request, never, carry_on)
    draft.law = hashed(40, 1)
    better = engine.generate(request, never, carry_on).counters
    for _ in range(6):
        engine.warm_draft(request, never)
        better = engine.generate(request, never, carry_on).counters
    assert better.accepted["draft"] > 200


def test_a_lookup_that_loses_is_watched_and_found_again() -> None:
    """It is not shown to the target, and learns all the same from what the target writes."""
    target = ToyRunner(hashed(40, 1, order=2), 40)
    costs = Costs(target=((1, 10.0), (2, 16.0), (9, 20.0)))
    engine = Engine(target, None, context_tokens=500, costs=costs)
    rng = random.Random(1)
    misleading = [rng.randrange(4) for _ in range(300)]
    for _ in range(4):
        request = GenerationRequest(
            prompt=misleading, surroundings=Surroundings(before=misleading), max_new_tokens=40
        )
        engine.generate(request, never, carry_on)
    acceptance = engine._drafter.acceptance
    low = acceptance.matched("lookup", 2).value
    honest = run_loop(
        target, GenerationRequest(prompt=[1, 2], max_new_tokens=150), nothing(), max_draft_tokens=0
    ).ids
    request = GenerationRequest(
        prompt=[1, 2], surroundings=Surroundings(before=[1, 2, *honest, 7, 1, 2]), max_new_tokens=150
    )
    counters = engine.generate(request, never, carry_on).counters
    assert acceptance.matched("lookup", 32).value > low
    assert counters.accepted["lookup"] > 80


def test_an_asking_that_costs_more_than_it_brings_grows_rare_and_comes_back() -> None:
    """Nothing repeats at first; then the text is a copy of what stands above."""
    target = ToyRunner(hashed(40, 1, order=2), 40)
    costs = Costs(target=((1, 10.0), (9, 18.0)), asking=2.0)
    engine = Engine(target, None, context_tokens=2000, costs=costs)
    lookup, asked = engine._drafter._lookup, []
    guesses = lookup.guesses
    lookup.guesses = lambda *text: (asked.append(1), guesses(*text))[1]  # type: ignore[method-assign, assignment]
    rounds = 0
    for first in range(40):
        prompt = [first, (first * 7 + 1) % 40]
        request = GenerationRequest(prompt=prompt, max_new_tokens=10)
        rounds += engine.generate(request, never, carry_on).counters.target_steps
    lost = 2.0 * len(asked) / 10.0
    assert 0.5 * rounds * TOLERATED < lost <= AHEAD + rounds * TOLERATED + 0.2
    honest = run_loop(
        target, GenerationRequest(prompt=[1, 2], max_new_tokens=300), nothing(), max_draft_tokens=0
    ).ids
    request = GenerationRequest(
        prompt=[1, 2], surroundings=Surroundings(before=[1, 2, *honest, 7, 1, 2]), max_new_tokens=300
    )
    assert engine.generate(request, never, carry_on).counters.accepted.get("lookup", 0) > 150


def test_a_balance_holds_no_more_than_it_may_lose() -> None:
    balance = Balance()
    for _ in range(100):
        balance.settle(10.0, 30.0)
    assert balance.steps == AHEAD
    for _ in range(int(AHEAD) + 1):
        balance.settle(10.0, -10.0)
    assert balance.spent
    for _ in range(round(1 / TOLERATED) + 1):
        balance.settle(10.0, 0.0)
    assert not balance.spent
    balance.settle(10.0, -1e6)
    for _ in range(round(AHEAD / TOLERATED) + 1):
        balance.settle(10.0, 0.0)
    assert not balance.spent


def test_what_was_asked_is_followed_from_the_first_time() -> None:
    costs = Costs(target=((1, 1.0),))
    costs.observe_asking(0.1)
    assert costs.asking == pytest.approx(0.1, rel=0.05)
    for _ in range(60):
        costs.observe_asking(0.2)
    assert costs.asking == pytest.approx(0.2, rel=0.05)


def test_a_stall_at_the_first_asking_is_soon_forgotten() -> None:
    costs = Costs(target=((1, 30.0),))
    costs.observe_asking(10_000.0)
    assert costs.asking < 4.0
    for _ in range(60):
        costs.observe_asking(0.4)
    assert costs.asking == pytest.approx(0.4, rel=0.1)


def test_widths_are_few_and_within_a_chunk() -> None:
    assert widths(9, 256) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert widths(65, 256)[-4:] == [32, 48, 64, 65]
    assert widths(9, 4) == [1, 2, 3, 4]
    assert widths(1, 4) == [1]


def test_costs_are_measured_and_never_fall() -> None:
    runner = ToyRunner(hashed(40, 1), 40, max_tokens=64)
    costs = measure(runner, runner, 8)
    milliseconds = [ms for _, ms in costs.target]
    assert [rows for rows, _ in costs.target] == list(range(1, 10))
    assert milliseconds == sorted(milliseconds)
    assert all(ms > 0 for ms in milliseconds)
    assert [rows for rows, _ in costs.draft] == [1, 2, 8]
    assert measure(runner, None, 8).draft == ()


CPU = Costs(
    target=((1, 15.2), (2, 18.0), (3, 20.9), (4, 24.6), (5, 36.0), (8, 49.8), (9, 55.0)),
    draft=((1, 3.0), (2, 3.5)),
)
"""the shape of 0.5B NF4 on two cores, with a small draft"""
GPU = Costs(target=((1, 25.0), (9, 27.0)), draft=((1, 2.0), (2, 2.0)))


def modelled_ms(costs: Costs, steps: list[tuple[int, int]], draft_steps: list[tuple[int, int]]) -> float:
    return sum(costs.target_ms(ids) for ids, _ in steps) + sum(costs.draft_ms(ids) for ids, _ in draft_steps)


@pytest.mark.parametrize("costs", [CPU, GPU, LINEAR, FLAT], ids=["cpu", "gpu", "linear", "flat"])
@pytest.mark.parametrize("noise", [0.0, 0.2, 0.5, 3.0])
def test_auto_is_never_slower_than_plain(costs: Costs, noise: float) -> None:
    """In the time the table says, at every quality of the draft; and with a good draft it is faster."""
    target = ToyRunner(hashed(40, 1), 40)
    draft = ToyRunner(hashed(40, 1, noise=noise), 40)
    engine = Engine(target, draft, context_tokens=500, costs=costs)
    spent = {}
    for speculation in ("off", "auto"):
        request = GenerationRequest(
            prompt=[1, 2, 3],
            surroundings=Surroundings(before=[1, 2, 3]),
            max_new_tokens=450,
            slot=speculation,
            speculation=speculation,
        )
        engine.warm_draft(request, never)
        target.steps.clear()
        draft.steps.clear()
        engine.generate(request, never, carry_on)
        spent[speculation] = modelled_ms(costs, target.steps, draft.steps)
    assert spent["auto"] <= 1.03 * spent["off"]
    if noise == 0.0 and costs is not LINEAR:
        assert spent["off"] > 1.4 * spent["auto"]


def test_an_outcome_is_learnt_once() -> None:
    """A round may come without a proposal: at the end of the budget, or beside a full chunk of prompt."""
    before = [1, 2, 3, 1, 2]
    drafter = hybrid.Hybrid(FLAT, None)
    request = GenerationRequest(prompt=before, surroundings=Surroundings(before=before), max_new_tokens=9)
    drafter.begin(request, Seeded(0))
    drafter.propose([], 4, 1, never)
    drafter.learn(0, [9], 1, 1.0)
    value = drafter.acceptance.matched("lookup match", 2).value
    assert value < 0.5
    drafter.learn(0, [9], 1, 1.0)
    assert drafter.acceptance.matched("lookup match", 2).value == value


def test_costs_follow_the_steps_in_use() -> None:
    """Measured in a lucky moment, a table would keep drafts out for ever; a single disturbance moves little."""
    costs = Costs(target=((1, 1.6), (2, 13.7), (9, 20.0)), draft=((1, 1.0),))
    assert best_length(costs, 1, [0.8] * 8)[0] == 0
    for _ in range(80):
        costs.observe_target(1, 12.0)
    assert costs.target_ms(1) == pytest.approx(12.0, rel=0.05)
    assert best_length(costs, 1, [0.8] * 8)[0] > 0
    costs.observe_target(1, 5000.0)
    assert costs.target_ms(1) < 13.0
    costs.observe_target(77, 1.0)
    costs.observe_draft(1, 0.5)
    assert costs.target_ms(2) == 13.7
    assert costs.draft_ms(1) < 1.0


def test_given_costs_stay_and_measured_ones_move() -> None:
    runner = ToyRunner(hashed(40, 1), 40)
    request = GenerationRequest(prompt=[1, 2], max_new_tokens=30)
    given = Engine(runner, context_tokens=100, costs=Costs(target=CPU.target, draft=CPU.draft))
    given.generate(request, never, carry_on)
    assert given.costs.target == CPU.target
    measured = Engine(runner, context_tokens=100)
    before = measured.costs.target
    measured.generate(request, never, carry_on)
    assert measured.costs.target != before
