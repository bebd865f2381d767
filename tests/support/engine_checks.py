"""What must hold of the speculation loop, as functions: the tests call them, and so do the mutation tests."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Sequence

import pytest
import torch

from copilotd.engine.constraint import Walk
from copilotd.engine.drafters.base import Drafter, Proposal
from copilotd.engine.drafters.draft_model import DraftModel
from copilotd.engine.drafters.hybrid import Hybrid
from copilotd.engine.generation import (
    Cancelled,
    Constraint,
    Generation,
    GenerationRequest,
    Sampling,
    Surroundings,
)
from copilotd.engine.policy import Costs
from copilotd.engine.runner import Cache, Runner
from copilotd.engine.sampling import Randomness, Seeded, distribution, masked
from copilotd.engine.slots import Slots
from copilotd.engine.speculate import speculate
from tests.support.automaton import BeginsWith
from tests.support.enumeration import Enumerated, law_of
from tests.support.tiny_models import HOLDS, runner, source_prompts
from tests.support.toy_runner import ToyRunner, hashed

CHEAP_DRAFTS = Costs(target=((1, 10.0), (2, 10.5), (9, 13.0), (65, 40.0)), draft=((1, 0.2), (2, 0.25)))
"""Drafting pays nearly always."""


def never() -> bool:
    return False


def carry_on(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
    return False


class Scripted:
    """A drafter that asks a function for its ids; one-hot."""

    def __init__(self, ids: Callable[[Sequence[int], int], list[int]]) -> None:
        self._ids = ids

    def begin(self, request: GenerationRequest, randomness: Randomness) -> None: ...

    def propose(self, emitted: Sequence[int], limit: int, riding: int, cancelled: Cancelled) -> Proposal:
        proposal = Proposal()
        proposal.extend(self._ids(emitted, limit)[:limit], "scripted")
        return proposal

    def learn(self, accepted: int, fresh: Sequence[int], rows: int, ms: float) -> None: ...


def nothing() -> Scripted:
    return Scripted(lambda emitted, limit: [])


def adversaries(truth: Sequence[int], vocabulary: int, seed: int) -> dict[str, Scripted]:
    """Drafters that know what will be written and use it badly."""
    rng = random.Random(seed)

    def oracle(emitted: Sequence[int], limit: int) -> list[int]:
        return list(truth[len(emitted) : len(emitted) + limit])

    def noisy(emitted: Sequence[int], limit: int) -> list[int]:
        return [rng.randrange(vocabulary) if rng.random() < 0.3 else t for t in oracle(emitted, limit)]

    def wrong(emitted: Sequence[int], limit: int) -> list[int]:
        return [(t + 1) % vocabulary for t in oracle(emitted, limit)]

    def ragged(emitted: Sequence[int], limit: int) -> list[int]:
        return noisy(emitted, rng.randrange(limit + 1))

    def garbage(emitted: Sequence[int], limit: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(limit)]

    return {
        "oracle": Scripted(oracle),
        "noisy": Scripted(noisy),
        "wrong": Scripted(wrong),
        "ragged": Scripted(ragged),
        "garbage": Scripted(garbage),
        "empty": nothing(),
    }


def run_loop(
    target: Runner,
    request: GenerationRequest,
    drafter: Drafter,
    *,
    cache: Cache | None = None,
    randomness: Randomness | None = None,
    cancelled: Cancelled = never,
    max_draft_tokens: int = 8,
) -> Generation:
    capacity = len(request.prompt) + request.max_new_tokens + max_draft_tokens
    return speculate(
        target,
        cache or target.new_cache(min(capacity, target.max_tokens)),
        drafter,
        request,
        randomness or Seeded(request.sampling.seed),
        cancelled,
        carry_on,
        max_new_tokens=request.max_new_tokens,
        max_draft_tokens=max_draft_tokens,
    )


def hybrid(target: Runner, draft: Runner | None, costs: Costs = CHEAP_DRAFTS) -> Hybrid:
    if draft is None:
        return Hybrid(costs, None)
    slots = Slots(draft, draft.max_tokens, 1 << 40)
    return Hybrid(costs, DraftModel(draft, slots, target.vocabulary))


# ---- identity --------------------------------------------------------------------------------------------


class Recorder:
    """A Runner that keeps the logits of every position, by the ids before it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.vocabulary = runner.vocabulary
        self.max_tokens = runner.max_tokens
        self.chunk = runner.chunk
        self.rows: dict[tuple[int, ...], torch.Tensor] = {}

    def new_cache(self, capacity: int) -> Cache:
        return self._runner.new_cache(capacity)

    def cache_bytes(self, capacity: int) -> int:
        return self._runner.cache_bytes(capacity)

    def step(self, cache: Cache, ids: Sequence[int], rows: int) -> torch.Tensor:
        logits = self._runner.step(cache, ids, rows)
        for i in range(rows):
            self.rows[tuple(cache.ids[: len(cache.ids) - rows + 1 + i])] = logits[i].clone()
        return logits


def check_identity(
    target: Runner, request: GenerationRequest, drafters: dict[str, Drafter], max_draft_tokens: int = 8
) -> list[int]:
    """Ids, and the logit bits of every emitted position, are those of the loop without a draft."""
    plain = Recorder(target)
    truth = run_loop(plain, request, nothing(), max_draft_tokens=0)
    for name, drafter in drafters.items():
        recorder = Recorder(target)
        found = run_loop(recorder, request, drafter, max_draft_tokens=max_draft_tokens)
        assert found.ids == truth.ids, name
        assert found.finish == truth.finish, name
        assert found.logprobs == truth.logprobs, name
        for end in range(len(request.prompt), len(request.prompt) + len(truth.ids)):
            position = tuple([*request.prompt, *truth.ids][:end])
            assert torch.equal(recorder.rows[position], plain.rows[position]), (name, end)
    return truth.ids


def check_toy_identity() -> None:
    vocabulary = 40
    target = ToyRunner(hashed(vocabulary, 1), vocabulary)
    rng = random.Random(4)
    for seed in range(12):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 50))]
        request = GenerationRequest(prompt=prompt, max_new_tokens=30, speculation="on")
        truth = run_loop(target, request, nothing(), max_draft_tokens=0).ids
        drafters: dict[str, Drafter] = {**adversaries(truth, vocabulary, seed)}
        draft = ToyRunner(hashed(vocabulary, 1, noise=0.4), vocabulary)
        drafters["hybrid"] = hybrid(target, draft)
        check_identity(target, request, drafters)


def check_stop() -> None:
    """A stop id inside an accepted run ends there; it is neither emitted nor cached (H11)."""
    vocabulary = 40
    target = ToyRunner(hashed(vocabulary, 2), vocabulary)
    prompt = [3, 1, 4, 1, 5]
    full = run_loop(target, GenerationRequest(prompt=prompt, max_new_tokens=24), nothing()).ids
    for position, k in itertools.product(range(8), (1, 2, 4, 8)):
        stop = full[position]
        expected = full[: full.index(stop)]
        request = GenerationRequest(prompt=prompt, max_new_tokens=24, stop_ids=frozenset({stop}))
        cache = target.new_cache(64)
        oracle = adversaries(full, vocabulary, 0)["oracle"]
        found = run_loop(target, request, oracle, cache=cache, max_draft_tokens=k)
        assert (found.ids, found.finish) == (expected, "stop")
        assert cache.ids == [*prompt, *expected][: len(cache.ids)]
        assert len(cache.ids) >= len(prompt) + len(expected) - 1


def check_real_identity(hold: str = "fp32") -> None:
    """The toy's check on the real forward and its cache."""
    target = runner(HOLDS[hold])
    for i, prompt in enumerate(source_prompts(4)):
        request = GenerationRequest(prompt=prompt, max_new_tokens=12)
        truth = run_loop(target, request, nothing(), max_draft_tokens=0).ids
        check_identity(target, request, {**adversaries(truth, target.vocabulary, i)})


# ---- law -------------------------------------------------------------------------------------------------


def target_law(
    law: Callable[[Sequence[int]], torch.Tensor],
    prompt: list[int],
    length: int,
    sampling: Sampling,
    constraint: Constraint | None,
) -> dict[tuple[int, ...], float]:
    """Probability of every continuation when the target draws alone."""
    out: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for ids, probability in out.items():
            walk = Walk(constraint)
            walk.advance(ids)
            p = distribution(masked(law([*prompt, *ids])[None], [walk.mask()])[0], sampling)
            longer |= {(*ids, t): probability * float(p[t]) for t in range(len(p)) if p[t] > 0}
        out = longer
    return out


STRINGS = ["a", "b", "ab", "ba"]


def check_law(sampling: Sampling, constraint: Constraint | None = None) -> None:
    """Whole continuations, model draft with its adaptive stop and lookup extending it: the target's law."""
    proposed: set[tuple[str, ...]] = set()
    for prompt in ([0, 1, 2, 3, 0], [0, 1, 2, 0, 1, 2, 0]):  # without a match at first, and with a long one
        found, expected = laws(prompt, 3, sampling, constraint, proposed)
        assert set(found) <= set(expected)
        for ids, probability in expected.items():
            assert found.get(ids, 0.0) == pytest.approx(probability, abs=1e-12), ids
    shapes = {("draft",), ("draft", "draft"), ("draft", "lookup"), ("lookup", "lookup")}
    assert constraint or shapes <= proposed, f"not every way of drafting came into play: {proposed}"


def laws(
    prompt: list[int],
    length: int,
    sampling: Sampling,
    constraint: Constraint | None,
    proposed: set[tuple[str, ...]],
) -> tuple[dict[Hashable, float], dict[tuple[int, ...], float]]:
    """The law of the loop, enumerated, and the target's own; notes the sources of every proposal."""
    vocabulary = 4
    costs = Costs(target=((1, 10.0), (2, 10.8), (3, 11.6)), draft=((1, 1.5), (2, 1.6)))
    target_logits = hashed(vocabulary, 5, scale=1.3)
    draft_logits = hashed(vocabulary, 5, scale=1.3, noise=1.5)
    request = GenerationRequest(
        prompt=prompt,
        surroundings=Surroundings(before=prompt),
        max_new_tokens=length,
        sampling=sampling,
        constraint=constraint,
        speculation="on",
    )

    class Watched(Hybrid):
        def propose(self, emitted: Sequence[int], limit: int, riding: int, cancelled: Cancelled) -> Proposal:
            proposal = super().propose(emitted, limit, riding, cancelled)
            proposed.add(tuple(proposal.source))
            return proposal

    def run(randomness: Enumerated) -> Hashable:
        target, draft = ToyRunner(target_logits, vocabulary), ToyRunner(draft_logits, vocabulary)
        drafter = Watched(costs, DraftModel(draft, Slots(draft, 64, 1 << 30), vocabulary))
        return tuple(run_loop(target, request, drafter, randomness=randomness, max_draft_tokens=2).ids)

    return law_of(run), target_law(target_logits, prompt, length, sampling, constraint)


def check_sampled_law() -> None:
    check_law(Sampling(temperature=1.0))


def check_healed_law() -> None:
    """The constraint masks target and draft alike."""
    check_law(Sampling(temperature=1.0), BeginsWith("aba", STRINGS))


def check_seeded_law(draws: int = 4000) -> None:
    """Drafts and verdicts take their numbers from one stream; two of one seed would be correlated."""
    from scipy.stats import chisquare

    vocabulary = 4
    laws = hashed(vocabulary, 5, scale=1.3), hashed(vocabulary, 5, scale=1.3, noise=1.5)
    target, draft = (ToyRunner(law, vocabulary) for law in laws)
    drafter = hybrid(target, draft)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(draws):
        sampling = Sampling(temperature=1.0, seed=seed)
        request = GenerationRequest(prompt=[0, 1], max_new_tokens=2, sampling=sampling, speculation="on")
        ids = tuple(run_loop(target, request, drafter).ids)
        counts[ids] = counts.get(ids, 0) + 1
    expected = target_law(laws[0], [0, 1], 2, Sampling(temperature=1.0), None)
    observed = [counts.get(ids, 0) for ids in expected]
    assert chisquare(observed, [p * draws for p in expected.values()]).pvalue > 1e-4


# ---- caches ----------------------------------------------------------------------------------------------


def check_draft_keeps_up() -> None:
    """A draft of the target's own law is accepted whole, round after round: its cache lacks nothing."""
    vocabulary = 40
    law = hashed(vocabulary, 3)
    target, draft = ToyRunner(law, vocabulary), ToyRunner(law, vocabulary)
    drafter = hybrid(target, draft)
    request = GenerationRequest(prompt=[7, 8, 9], max_new_tokens=40, speculation="on", slot="d")
    counters = run_loop(target, request, drafter).counters
    assert counters.accepted["draft"] == counters.drafted["draft"] > 25


def check_cache(
    runner: Runner,
    cache: Cache,
    sequence: list[int],
    equal: Callable[[torch.Tensor, torch.Tensor], bool],
    name: str = "",
) -> None:
    """The cache holds a prefix of the sequence, and what it gives next is what a fresh one gives."""
    assert cache.ids == sequence[: len(cache.ids)]
    probe = sequence[len(cache.ids) :] or [0]
    fresh = runner.new_cache(len(cache.ids) + len(probe))
    for start in range(0, len(cache.ids), runner.chunk):
        runner.step(fresh, cache.ids[start : start + runner.chunk], rows=0)
    length = len(cache.ids)
    warm = runner.step(cache, probe[: runner.chunk], rows=1)
    cache.truncate(length)
    cold = runner.step(fresh, probe[: runner.chunk], rows=1)
    assert equal(warm, cold), name
