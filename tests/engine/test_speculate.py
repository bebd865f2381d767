"""The loop on a toy model: identity, stops, budgets, cancelling, reuse, counters."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from copilotd.engine.drafters.draft_model import DraftModel
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest, Sampling, Surroundings
from copilotd.engine.slots import Slots
from tests.support import engine_checks as checks
from tests.support.automaton import BeginsWith
from tests.support.engine_checks import CHEAP_DRAFTS, adversaries, carry_on, never, nothing, run_loop
from tests.support.toy_runner import ToyRunner, hashed

V = 40


def toy(seed: int = 1, noise: float = 0.0, **options: int) -> ToyRunner:
    return ToyRunner(hashed(V, seed, noise=noise), V, **options)


def engine(draft: ToyRunner | None = None, target: ToyRunner | None = None, **options: int) -> Engine:
    return Engine(target or toy(), draft, costs=CHEAP_DRAFTS, **{"context_tokens": 256, **options})


def test_identity_with_every_drafter() -> None:
    checks.check_toy_identity()


def test_a_stop_id_inside_an_accepted_run_ends_there() -> None:
    checks.check_stop()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.7, top_k=3),
        Sampling(temperature=1.5, top_p=0.8),
    ],
)
def test_the_law_of_whole_continuations(sampling: Sampling) -> None:
    checks.check_law(sampling)


def test_the_law_under_a_constraint() -> None:
    checks.check_healed_law()


def test_the_law_with_the_seeded_stream() -> None:
    checks.check_seeded_law()


def test_the_draft_cache_is_refilled() -> None:
    checks.check_draft_keeps_up()


@pytest.mark.parametrize("budget", range(12))
def test_the_budget_of_new_tokens_is_kept(budget: int) -> None:
    target = toy()
    full = run_loop(target, GenerationRequest(prompt=[1, 2], max_new_tokens=12), nothing()).ids
    request = GenerationRequest(prompt=[1, 2], max_new_tokens=budget)
    for drafter in adversaries(full, V, 0).values():
        found = run_loop(target, request, drafter)
        assert found.ids == full[:budget]
        assert found.finish == "length"
        assert len(found.logprobs) == budget


@pytest.mark.parametrize("context", [20, 21, 29])
def test_the_context_is_kept_whatever_is_drafted(context: int) -> None:
    """Where it ends does not depend on K: capacity is counted without drafts."""
    prompt = list(range(20))
    expected = None
    for speculation in ("off", "on"):
        found = engine(toy(noise=0.2), context_tokens=context).generate(
            GenerationRequest(prompt=prompt, max_new_tokens=99, speculation=speculation), never, carry_on
        )
        assert found.finish == "length"
        assert len(found.ids) == context - 20
        assert expected in (None, found.ids)
        expected = found.ids


def test_the_model_s_own_limit_is_kept() -> None:
    target, draft = toy(max_tokens=64), toy(noise=0.1, max_tokens=40)
    found = engine(draft, target, context_tokens=999).generate(
        GenerationRequest(prompt=list(range(30)), max_new_tokens=99, speculation="on"), never, carry_on
    )
    assert len(found.ids) == 34


def test_a_prompt_without_room_is_answered_empty() -> None:
    found = engine(context_tokens=64).generate(
        GenerationRequest(prompt=[1] * 65, max_new_tokens=5), never, carry_on
    )
    assert (found.ids, found.finish) == ([], "length")


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one id"):
        engine().generate(GenerationRequest(prompt=[], max_new_tokens=5), never, carry_on)


def test_emit_sees_every_id_once_and_may_halt() -> None:
    rounds: list[list[int]] = []
    said: list[float] = []

    def emit(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
        rounds.append(list(ids))
        said.extend(logprobs)
        return sum(map(len, rounds)) >= 5

    request = GenerationRequest(prompt=[1, 2, 3], max_new_tokens=30, speculation="on")
    found = engine(toy()).generate(request, never, emit)
    assert found.finish == "halted"
    assert [token for ids in rounds for token in ids] == found.ids
    assert said == found.logprobs
    assert all(rounds)
    assert len(found.ids) >= 5


def test_cancelling_keeps_what_was_computed() -> None:
    """Asked before every step; the next request starts from the rows that are there."""
    target = toy()
    prompt = [i % V for i in range(100)]
    request = GenerationRequest(prompt=prompt, max_new_tokens=20, speculation="on", slot="s")
    expected = run_loop(target, request, nothing()).ids
    subject = engine(toy(noise=0.3), target)
    computed = 0
    for patience in range(1, 40):
        left = iter(range(patience))
        found = subject.generate(request, lambda left=left: next(left, None) is None, carry_on)
        assert found.ids == expected[: len(found.ids)]
        assert found.counters.reused_tokens == min(computed, len(prompt) - 1)
        cache = subject._slots.peek("s")
        assert cache is not None
        assert cache.ids == [*prompt, *found.ids][: len(cache.ids)]
        computed = len(cache.ids)
        if found.finish == "length":
            break
    assert found.ids == expected


def test_cancelled_at_once_nothing_is_stepped() -> None:
    target = toy()
    found = engine(None, target).generate(
        GenerationRequest(prompt=[1, 2], max_new_tokens=5), lambda: True, carry_on
    )
    assert (found.ids, found.finish, target.steps) == ([], "cancelled", [])


def test_the_prompt_is_never_run_again() -> None:
    subject = engine(None)
    prompt = [i * 7 % V for i in range(90)]
    asked = GenerationRequest(prompt=prompt, max_new_tokens=8, slot="s")
    first = subject.generate(asked, never, carry_on)
    assert first.counters.prefill_tokens == 90
    typed = GenerationRequest(prompt=[*prompt, *first.ids[:3], 5], max_new_tokens=8, slot="s")
    assert subject.generate(typed, never, carry_on).counters.prefill_tokens == 1
    same = subject.generate(typed, never, carry_on).counters
    assert (same.prefill_tokens, same.reused_tokens) == (1, 93)
    back = GenerationRequest(prompt=prompt[:80], max_new_tokens=8, slot="s")
    assert subject.generate(back, never, carry_on).counters.prefill_tokens == 1


def test_the_last_prefill_chunk_carries_the_first_draft() -> None:
    target = toy()
    prompt = [*range(20), *range(14)]
    request = GenerationRequest(
        prompt=prompt, surroundings=Surroundings(before=prompt), max_new_tokens=9, speculation="on"
    )
    counters = engine(None, target).generate(request, never, carry_on).counters
    assert counters.drafted["lookup"] > 0
    assert target.steps[:2] == [(16, 0), (16, 0)]
    assert target.steps[2][0] > 2
    assert target.steps[2][1] == target.steps[2][0] - 1
    assert counters.prefill_tokens == 34


def test_counters_agree_with_the_steps() -> None:
    target, draft = toy(), toy(noise=0.4)
    subject = engine(draft, target)
    prompt = [1, 2, 3, 1, 2, 3]
    request = GenerationRequest(
        prompt=prompt, surroundings=Surroundings(before=prompt), max_new_tokens=40, speculation="on"
    )
    found = subject.generate(request, never, carry_on)
    counters = found.counters
    assert counters.target_steps == len(target.steps)
    assert counters.draft_steps == len(draft.steps)
    assert counters.target_steps + sum(counters.accepted.values()) == len(found.ids)
    assert sum(rows - 1 for _, rows in target.steps) == sum(counters.drafted.values())
    for source, drafted in counters.drafted.items():
        assert counters.accepted[source] <= counters.reached[source] <= drafted
    subject.generate(request, never, carry_on)
    assert subject.counters.target_steps == len(target.steps)


def test_off_asks_nobody() -> None:
    draft = toy()
    subject = engine(draft)
    prompt = [1, 2, 3] * 6
    request = GenerationRequest(
        prompt=prompt,
        surroundings=Surroundings(before=prompt),
        echo=[1, 2],
        max_new_tokens=9,
        speculation="off",
    )
    assert subject.generate(request, never, carry_on).counters.drafted == {}
    assert draft.steps == []


def test_an_echo_is_taken_while_it_holds() -> None:
    target = toy()
    request = GenerationRequest(prompt=[4, 5], max_new_tokens=16, speculation="on")
    full = engine(None, target).generate(request, never, carry_on).ids
    echo = [*full[:10], (full[10] + 1) % V, *full[11:]]
    request = GenerationRequest(prompt=[4, 5], max_new_tokens=16, echo=echo, speculation="on")
    found = engine(None, target).generate(request, never, carry_on)
    assert found.ids == full
    assert found.counters.drafted["echo"] == 8 + 6  # the ninth id is the target's own, one is kept for it
    assert found.counters.accepted["echo"] == 8 + 1


def test_drafts_end_at_a_newline_on_a_one_line_request() -> None:
    newline = 9
    before = [1, 2, 3, newline, 4, 5, 6, 7, 1, 2]
    request = GenerationRequest(
        prompt=before,
        surroundings=Surroundings(before=before),
        draft_until=frozenset({newline}),
        max_new_tokens=1 + 8,
        speculation="on",
    )
    target = toy()
    engine(None, target).generate(request, lambda: len(target.steps) > 0, carry_on)
    assert target.steps == [(12, 3)]  # 10 of the prompt, then 3 and the newline


def test_the_draft_model_ends_at_a_newline_too() -> None:
    draft = toy()
    model = DraftModel(draft, Slots(draft, 64, 1 << 30), V)
    written = run_loop(toy(), GenerationRequest(prompt=[1], max_new_tokens=6), nothing()).ids
    newline = written[3]
    request = GenerationRequest(prompt=[1], max_new_tokens=9, draft_until=frozenset({newline}))
    model.begin(request, checks.Seeded(0))
    drawn = model.draw([], 8, checks.Walk(None), lambda probabilities: True, never)
    assert drawn.ids == written[: written.index(newline) + 1]
    assert drawn.ended


def test_a_constraint_binds_every_source() -> None:
    """Greedy: the output is the masked target's, and a lookup that breaks the constraint is dropped."""
    strings = [chr(97 + i % 8) * (1 + i // 8) for i in range(V)]
    start = strings[20]
    target = toy()
    before = [1, 2, 3, 4, 1, 2]
    for draft in (None, toy(noise=0.2), toy(seed=9)):
        ids = {}
        for speculation in ("off", "on"):
            request = GenerationRequest(
                prompt=before,
                surroundings=Surroundings(before=before),
                max_new_tokens=16,
                constraint=BeginsWith(start, strings),
                speculation=speculation,
            )
            ids[speculation] = engine(draft, target).generate(request, never, carry_on).ids
        assert ids["on"] == ids["off"]
        assert "".join(strings[i] for i in ids["on"]).startswith(start)


@pytest.mark.parametrize(("target_rows", "draft_rows"), [(128, 120), (120, 136), (110, 100), (100, 110)])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, seed=3)])
def test_vocabularies_of_different_size(target_rows: int, draft_rows: int, sampling: Sampling) -> None:
    """H12: drafts are really used, shapes fit, and no id beyond the common ones is drafted."""
    target = ToyRunner(hashed(200, 1, noise=0.0), target_rows)
    draft = ToyRunner(hashed(200, 1, noise=0.2), draft_rows)
    subject = Engine(target, draft, context_tokens=256, costs=CHEAP_DRAFTS)
    ids = {}
    for speculation in ("off", "on"):
        request = GenerationRequest(
            prompt=[5, 6, 7], max_new_tokens=24, sampling=sampling, speculation=speculation
        )
        found = subject.generate(request, never, carry_on)
        ids[speculation] = found.ids
        assert max(found.ids) < target_rows
    assert found.counters.drafted["draft"] > 0
    if sampling.greedy:
        assert ids["on"] == ids["off"]


def test_greedy_settings_write_the_greedy_text() -> None:
    """H14."""
    subject = engine(toy(noise=0.3))

    def write(sampling: Sampling, speculation: str = "on") -> list[int]:
        request = GenerationRequest(
            prompt=[1, 2, 3], max_new_tokens=20, sampling=sampling, speculation=speculation
        )
        return subject.generate(request, never, carry_on).ids

    greedy = write(Sampling(), "off")
    for sampling in (
        Sampling(temperature=0.0, top_p=0.9),
        Sampling(temperature=0.0, top_p=0.0),
        Sampling(temperature=1e-6),
        Sampling(temperature=1.0, top_p=0.0),
        Sampling(temperature=1.0, top_k=1),
    ):
        assert write(sampling) == write(sampling) == write(sampling, "off") == greedy
    assert write(Sampling(temperature=1.0, seed=5)) != greedy


def test_random_histories_leave_the_cache_right() -> None:
    """Accept, reject, cancel, jump back: after each the cache is that of a fresh run."""
    rng = random.Random(2)
    target = toy(chunk=8)
    subject = engine(toy(noise=0.5), target)
    text = [rng.randrange(V) for _ in range(60)]
    for _ in range(60):
        cut = rng.randrange(1, len(text))
        prompt = [*text[:cut], *([rng.randrange(V)] if rng.random() < 0.3 else [])]
        patience = iter(range(rng.randrange(1, 30)))
        request = GenerationRequest(
            prompt=prompt,
            surroundings=Surroundings(before=prompt),
            max_new_tokens=rng.randrange(1, 20),
            slot=("d", rng.randrange(2)),
            speculation=rng.choice(["on", "off", "auto"]),
            stop_ids=frozenset({rng.randrange(V)}),
        )
        found = subject.generate(request, lambda patience=patience: next(patience, None) is None, carry_on)
        cache = subject._slots.peek(request.slot)
        assert cache is not None
        checks.check_cache(target, cache, [*prompt, *found.ids], torch.equal)


def test_an_error_forgets_the_slot() -> None:
    target = toy()
    subject = engine(toy(), target)
    request = GenerationRequest(prompt=[1, 2], max_new_tokens=4, slot="s")
    subject.generate(request, never, carry_on)
    assert subject._slots.peek("s") is not None
    with pytest.raises(ValueError, match="vocabulary"):
        subject.generate(GenerationRequest(prompt=[V + 3], max_new_tokens=4, slot="s"), never, carry_on)
    assert subject._slots.peek("s") is None
    assert len(subject.generate(request, never, carry_on).ids) == 4


# ---- who is asked ----------------------------------------------------------------------------------------


def test_auto_asks_the_draft_model_only_when_warm() -> None:
    draft = toy(noise=0.1)
    subject = engine(draft)
    prompt = [i * 3 % V for i in range(100)]
    request = GenerationRequest(prompt=prompt, max_new_tokens=20, slot="s")
    assert "draft" not in subject.generate(request, never, carry_on).counters.drafted
    assert subject.warm_draft(request, never)
    assert subject.generate(request, never, carry_on).counters.drafted["draft"] > 0


def test_warming_can_be_cancelled_and_goes_on_where_it_was() -> None:
    draft = toy()
    subject = engine(draft)
    request = GenerationRequest(prompt=[1] * 50, max_new_tokens=4, slot="s")
    patience = iter(range(2))
    assert not subject.warm_draft(request, lambda: next(patience, None) is None)
    assert subject.warm_draft(request, never)
    assert sum(ids for ids, _ in draft.steps) == 49
    assert subject.warm(request, never)
    first = subject.generate(request, never, carry_on)
    assert first.counters.prefill_tokens == 1
    assert subject.warm(request, never)
    typed = GenerationRequest(prompt=[1] * 50 + first.ids, max_new_tokens=4, slot="s")
    assert subject.generate(typed, never, carry_on).counters.prefill_tokens == 1  # the answer's rows stayed
    assert subject.generate(request, never, carry_on).counters.prefill_tokens == 1


def test_a_draft_prompt_of_its_own() -> None:
    target, draft = toy(), toy()
    request = GenerationRequest(
        prompt=list(range(30)), draft_prompt=list(range(20, 30)), max_new_tokens=8, speculation="on"
    )
    found = engine(draft, target).generate(request, never, carry_on)
    assert found.counters.accepted["draft"] > 3  # the toy looks back six ids only
    assert draft.steps[0] == (10, 1)
